//! The functions of a driver that random programs call.

use std::ffi::{c_char, c_void};

use libloading::Library;

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)+) => {
        pub struct Driver {
            $(pub $name: extern "C" fn($($argument),*) -> i32,)+
        }

        impl Driver {
            pub fn of(library: &Library) -> Self {
                Self {
                    // SAFETY: the types of the functions in the C headers.
                    $($name: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }.unwrap(),)+
                }
            }
        }
    };
}

functions! {
    init: "cuInit" (u32);
    create_context: "cuCtxCreate_v2" (*mut u64, u32, i32);
    destroy_context: "cuCtxDestroy_v2" (u64);
    set_context: "cuCtxSetCurrent" (u64);
    current_context: "cuCtxGetCurrent" (*mut u64);
    synchronize: "cuCtxSynchronize" ();
    alloc: "cuMemAlloc_v2" (*mut u64, usize);
    alloc_pitch: "cuMemAllocPitch_v2" (*mut u64, *mut usize, usize, usize, u32);
    alloc_async: "cuMemAllocAsync" (*mut u64, usize, u64);
    free: "cuMemFree_v2" (u64);
    free_async: "cuMemFreeAsync" (u64, u64);
    info: "cuMemGetInfo_v2" (*mut usize, *mut usize);
    range: "cuMemGetAddressRange_v2" (*mut u64, *mut usize, u64);
    attribute: "cuPointerGetAttribute" (*mut c_void, u32, u64);
    write: "cuMemcpyHtoD_v2" (u64, *const u8, usize);
    write_async: "cuMemcpyHtoDAsync_v2" (u64, *const u8, usize, u64);
    read: "cuMemcpyDtoH_v2" (*mut u8, u64, usize);
    read_async: "cuMemcpyDtoHAsync_v2" (*mut u8, u64, usize, u64);
    copy: "cuMemcpyDtoD_v2" (u64, u64, usize);
    copy_async: "cuMemcpyDtoDAsync_v2" (u64, u64, usize, u64);
    copy_any: "cuMemcpy" (u64, u64, usize);
    copy_flat: "cuMemcpy2D_v2" (*const c_void);
    fill8: "cuMemsetD8_v2" (u64, u8, usize);
    fill16: "cuMemsetD16Async" (u64, u16, usize, u64);
    fill32: "cuMemsetD32Async" (u64, u32, usize, u64);
    fill_flat: "cuMemsetD2D8_v2" (u64, usize, u8, usize, usize);
    create_stream: "cuStreamCreateWithPriority" (*mut u64, u32, i32);
    destroy_stream: "cuStreamDestroy_v2" (u64);
    query_stream: "cuStreamQuery" (u64);
    synchronize_stream: "cuStreamSynchronize" (u64);
    wait_event: "cuStreamWaitEvent" (u64, u64, u32);
    stream_priority: "cuStreamGetPriority" (u64, *mut i32);
    stream_flags: "cuStreamGetFlags" (u64, *mut u32);
    stream_context: "cuStreamGetCtx" (u64, *mut u64);
    call_host: "cuLaunchHostFunc" (u64, Option<unsafe extern "C" fn(*mut c_void)>, *mut c_void);
    create_event: "cuEventCreate" (*mut u64, u32);
    destroy_event: "cuEventDestroy_v2" (u64);
    record_event: "cuEventRecord" (u64, u64);
    query_event: "cuEventQuery" (u64);
    synchronize_event: "cuEventSynchronize" (u64);
    elapsed: "cuEventElapsedTime" (*mut f32, u64, u64);
    load: "cuModuleLoadData" (*mut u64, *const u8);
    unload: "cuModuleUnload" (u64);
    function: "cuModuleGetFunction" (*mut u64, u64, *const c_char);
    global: "cuModuleGetGlobal_v2" (*mut u64, *mut usize, u64, *const c_char);
    function_attribute: "cuFuncGetAttribute" (*mut i32, u32, u64);
    set_function_attribute: "cuFuncSetAttribute" (u64, u32, i32);
    occupancy: "cuOccupancyMaxActiveBlocksPerMultiprocessor" (*mut i32, u64, i32, usize);
    launch: "cuLaunchKernel" (u64, u32, u32, u32, u32, u32, u32, u32, u64, *const *const c_void, *const *const c_void);
    begin_capture: "cuStreamBeginCapture_v2" (u64, u32);
    end_capture: "cuStreamEndCapture" (u64, *mut u64);
    is_capturing: "cuStreamIsCapturing" (u64, *mut u32);
    create_graph: "cuGraphCreate" (*mut u64, u32);
    destroy_graph: "cuGraphDestroy" (u64);
    clone_graph: "cuGraphClone" (*mut u64, u64);
    add_empty: "cuGraphAddEmptyNode" (*mut u64, u64, *const u64, usize);
    nodes: "cuGraphGetNodes" (u64, *mut u64, *mut usize);
    node_kind: "cuGraphNodeGetType" (u64, *mut u32);
    destroy_node: "cuGraphDestroyNode" (u64);
    instantiate: "cuGraphInstantiateWithFlags" (*mut u64, u64, u64);
    launch_graph: "cuGraphLaunch" (u64, u64);
    destroy_exec: "cuGraphExecDestroy" (u64);
    alloc_host: "cuMemHostAlloc" (*mut *mut u8, usize, u32);
    free_host: "cuMemFreeHost" (*mut u8);
}

impl Driver {
    /// Makes a call that has an answer and no effect; its code.
    pub fn next_answer(&self) -> i32 {
        let (mut free, mut total) = (0, 0);
        (self.info)(&raw mut free, &raw mut total)
    }
}
