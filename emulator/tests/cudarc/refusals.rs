//! Features that the emulated devices lack, with the error codes that programs expect, and calls in the wrong order.

use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use cudarc::{
    driver::{CudaContext, LaunchConfig, PushKernelArg, result, sys},
    nvrtc::Ptx,
};
use sys::CUdevice_attribute as Attribute;

use crate::{
    platform::{assert_passed, code, context, in_child, is_child, library},
    programs::PRINT,
};

const INVALID_VALUE: i32 = 1;
const NOT_INITIALIZED: i32 = 3;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const NOT_SUPPORTED: i32 = 801;

/// Kernels that require a block of 8 by 4 threads, and at most 64 threads.
const BOUNDED: &str = "
.version 8.0
.target sm_80
.address_size 64

.visible .entry demanding(.param .u64 out)
.reqntid 8, 4, 1
{
	ret;
}

.visible .entry modest(.param .u64 out)
.maxntid 64, 1, 1
{
	ret;
}
";

#[test]
fn nothing_works_before_the_driver_is_started() {
    if !is_child() {
        return assert_passed(&in_child("refusals::nothing_works_before_the_driver_is_started", &[]));
    }
    library();
    let (mut count, mut version, mut current) = (0, 0, ptr::null_mut());
    // SAFETY: all results have their places.
    unsafe {
        assert_eq!(sys::cuDeviceGetCount(&mut count) as i32, NOT_INITIALIZED);
        assert_eq!(sys::cuCtxGetCurrent(&mut current) as i32, NOT_INITIALIZED);
        assert_eq!(sys::cuMemFree_v2(0) as i32, NOT_INITIALIZED);
        assert_eq!(sys::cuDriverGetVersion(&mut version) as i32, 0);
        assert!(version >= 12_080);
        assert_eq!(sys::cuInit(1) as i32, INVALID_VALUE);
        assert_eq!(sys::cuDeviceGetCount(&mut count) as i32, NOT_INITIALIZED);
        assert_eq!(sys::cuInit(0) as i32, 0);
        assert_eq!(sys::cuDeviceGetCount(&mut count) as i32, 0);
        // Started, but without a context.
        assert_eq!(sys::cuCtxGetCurrent(&mut current) as i32, 0);
        assert!(current.is_null());
        assert_eq!(sys::cuCtxSynchronize() as i32, INVALID_CONTEXT);
        assert_eq!(sys::cuMemAlloc_v2(&mut 0, 16) as i32, INVALID_CONTEXT);
        assert_eq!(sys::cuStreamCreate(&mut ptr::null_mut(), 0) as i32, INVALID_CONTEXT);
        assert_eq!(sys::cuDeviceGet(&mut 0, 64) as i32, INVALID_DEVICE);
    }
}

#[test]
fn a_forked_child_is_told_that_nothing_is_initialized() {
    if !is_child() {
        return assert_passed(&in_child("refusals::a_forked_child_is_told_that_nothing_is_initialized", &[]));
    }
    type Text = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    let context = context();
    let print = context.load_module(Ptx::from_src(PRINT)).unwrap().load_function("print").unwrap();
    let mut room = [0u8; 64];
    // SAFETY: the library documents this signature; the child calls the driver, which takes no locks there, and exits
    // without running anything of its parent.
    unsafe {
        let texts = [&b"gpufleet_emulator_printf"[..], b"gpufleet_emulator_fault_report"];
        let texts = texts.map(|name| library().get::<Text>(name).unwrap());
        // After the first call the output is kept for this function, so the child would find it.
        texts[0](ptr::null_mut(), 0);
        result::launch_kernel(print.cu_function(), (1, 1, 1), (1, 1, 1), 0, ptr::null_mut(), &mut []).unwrap();
        context.synchronize().unwrap();
        let child = libc::fork();
        if child == 0 {
            let (mut count, mut version) = (0, 0);
            let codes = [
                sys::cuInit(0) as i32,
                sys::cuDeviceGetCount(&mut count) as i32,
                sys::cuCtxSynchronize() as i32,
                sys::cuMemAlloc_v2(&mut 0, 16) as i32,
            ];
            let texts = texts.each_ref().map(|text| text(room.as_mut_ptr().cast(), room.len()));
            let told =
                codes == [NOT_INITIALIZED; 4] && texts == [0; 2] && sys::cuDriverGetVersion(&mut version) as i32 == 0;
            libc::_exit(i32::from(!told));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    context.synchronize().unwrap();
}

#[test]
fn what_devices_have_not_is_zero_and_refused() {
    let context = context();
    for attribute in [
        Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
        Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    ] {
        assert_eq!(context.attribute(attribute), Ok(0), "{attribute:?}");
    }
    let event_flags = 2 | 4;
    // SAFETY: the refused calls ignore their arguments.
    unsafe {
        assert_eq!(sys::cuMemMapArrayAsync(ptr::null_mut(), 0, ptr::null_mut()) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuIpcGetMemHandle(ptr::null_mut(), 0) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuEventCreate(&mut ptr::null_mut(), event_flags) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuTexRefCreate(&mut ptr::null_mut()) as i32, NOT_SUPPORTED);
        let mut table = ptr::null();
        assert_eq!(sys::cuGetExportTable(&mut table, ptr::null()) as i32, NOT_SUPPORTED);
    }
}

#[test]
fn the_bounds_that_a_kernel_declares_are_kept() {
    let context = context();
    let module = context.load_module(Ptx::from_src(BOUNDED)).unwrap();
    let (demanding, modest) = (module.load_function("demanding").unwrap(), module.load_function("modest").unwrap());
    let stream = context.new_stream().unwrap();
    let launch = |function, block_dim| {
        let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim, shared_mem_bytes: 0 };
        // SAFETY: the kernels do nothing.
        code(unsafe { stream.launch_builder(function).arg(&0u64).launch(shape) })
    };
    assert_eq!(launch(&demanding, (8, 4, 1)), 0);
    assert_eq!(launch(&demanding, (4, 8, 1)), INVALID_VALUE);
    assert_eq!(launch(&modest, (32, 2, 1)), 0);
    assert_eq!(launch(&modest, (65, 1, 1)), INVALID_VALUE);
    let threads = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    assert_eq!(modest.get_attribute(threads), Ok(64));
    assert_eq!(modest.occupancy_max_active_blocks_per_multiprocessor(65, 0, None), Ok(0));
    stream.synchronize().unwrap();
}

#[test]
fn flags_of_a_context_choose_one_way_to_wait() {
    library();
    let flags = |flags| code(CudaContext::new_non_primary(0, flags));
    assert_eq!(flags(0), 0);
    assert_eq!(flags(4), 0);
    assert_eq!(flags(3), INVALID_VALUE);
    assert_eq!(flags(1 << 20), INVALID_VALUE);
}

#[test]
fn an_object_lives_as_long_as_a_graph_needs_it() {
    unsafe extern "C" fn count(destroyed: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the object.
        unsafe { &*destroyed.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }
    context();
    let destroyed = AtomicUsize::new(0);
    let data = ptr::from_ref(&destroyed).cast_mut().cast();
    let times = || destroyed.load(Ordering::SeqCst);
    let (mut object, mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: handles and places are valid.
    unsafe {
        assert_eq!(sys::cuUserObjectCreate(&mut object, data, Some(count), 2, 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuUserObjectCreate(&mut object, data, Some(count), 2, 1) as i32, 0);
        assert_eq!(sys::cuGraphCreate(&mut graph, 0) as i32, 0);
        assert_eq!(sys::cuGraphRetainUserObject(graph, object, 1, 1) as i32, 0);
        assert_eq!(sys::cuUserObjectRelease(object, 2) as i32, INVALID_VALUE);
        assert_eq!(sys::cuUserObjectRelease(object, 1) as i32, 0);
        assert_eq!(sys::cuUserObjectRetain(object, 1) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) as i32, 0);
        assert_eq!(sys::cuGraphReleaseUserObject(graph, object, 2) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphReleaseUserObject(graph, object, 1) as i32, 0);
        assert_eq!(sys::cuGraphDestroy(graph) as i32, 0);
        assert_eq!(times(), 0);
        assert_eq!(sys::cuGraphExecDestroy(exec) as i32, 0);
        assert_eq!(times(), 1);
    }
}
