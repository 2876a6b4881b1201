//! Function names without a version, which drivers keep for programs that were built for an earlier CUDA and look
//! functions up by name. `cuGetProcAddress` does not return these functions: it returns the version that a program asks
//! for.

use gpufleet_surface::argument::{In, Out};

use super::boundary::boundary;
use super::{
    capture::begin_capture,
    graph_exec,
    graph_kernel::{self, FirstKernelParams},
};
use crate::driver::{capture::Mode, handle::Handle, pinned, status::Status};

/// Defines functions whose later version takes equal arguments: 32-bit numbers and pointer-sized values.
macro_rules! same {
    ($($old:ident = $new:ident($($argument:ident: $type:ty),*);)+) => {
        unsafe extern "C" {
            $(safe fn $new($($argument: $type),*) -> i32;)+
        }
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $old($($argument: $type),*) -> i32 {
                $new($($argument),*)
            }
        )+
    };
}

same! {
    cuCtxCreate = cuCtxCreate_v2(context: usize, flags: u32, device: i32);
    cuCtxDestroy = cuCtxDestroy_v2(context: usize);
    cuCtxPopCurrent = cuCtxPopCurrent_v2(context: usize);
    cuCtxPushCurrent = cuCtxPushCurrent_v2(context: usize);
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);
    cuEventDestroy = cuEventDestroy_v2(event: usize);
    cuLinkAddData = cuLinkAddData_v2(
        state: usize, kind: u32, data: usize, bytes: usize, name: usize, count: u32, options: usize, values: usize
    );
    cuLinkAddFile = cuLinkAddFile_v2(
        state: usize, kind: u32, path: usize, count: u32, options: usize, values: usize
    );
    cuLinkCreate = cuLinkCreate_v2(count: u32, options: usize, values: usize, state: usize);
    cuMemHostRegister = cuMemHostRegister_v2(pointer: usize, bytes: usize, flags: u32);
    cuStreamBatchMemOp = cuStreamBatchMemOp_v2(stream: usize, count: u32, operations: usize, flags: u32);
    cuStreamDestroy = cuStreamDestroy_v2(stream: usize);
    cuStreamWaitValue32 = cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32);
    cuStreamWaitValue64 = cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32);
    cuStreamWriteValue32 = cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32);
    cuStreamWriteValue64 = cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32);
}

/// Defines functions whose arguments have changed.
macro_rules! changed {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)+) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> i32 {
                boundary(stringify!($name), move || $body)
            }
        )+
    };
}

changed! {
    fn cuGraphAddKernelNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<FirstKernelParams>,
    ) {
        graph_kernel::add_kernel(node, graph, dependencies, count, || Ok(graph_kernel::of_first(params.get()?)))
    }

    fn cuGraphKernelNodeGetParams(node: Handle, params: Out<FirstKernelParams>) {
        params.fill(|| graph_kernel::first_of(node))
    }

    fn cuGraphKernelNodeSetParams(node: Handle, params: In<FirstKernelParams>) {
        graph_kernel::set_kernel(node, &graph_kernel::of_first(params.get()?))
    }

    fn cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<FirstKernelParams>) {
        graph_exec::set_kernel(exec, node, &graph_kernel::of_first(params.get()?))
    }

    fn cuMemAllocHost(pointer: Out<usize>, bytes: u32) {
        pointer.fill(|| pinned::alloc(bytes as usize, 0))
    }

    fn cuStreamBeginCapture(stream: Handle) {
        begin_capture(stream, Mode::Global)
    }

    fn cuGraphInstantiate(exec: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<u8>, room: usize) {
        instantiate(exec, graph, error_node, log, room)
    }

    fn cuGraphInstantiate_v2(exec: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<u8>, room: usize) {
        instantiate(exec, graph, error_node, log, room)
    }

    fn cuGraphExecUpdate(exec: Handle, graph: Handle, error_node: Out<Handle>, result: Out<u32>) {
        graph_exec::update(exec, graph, |number, node| {
            error_node.set(node);
            result.set(number);
        })
    }
}

fn instantiate(
    exec: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    log: Out<u8>,
    room: usize,
) -> Result<(), Status> {
    error_node.set(0);
    if room > 0 {
        // There is no log; the code says it all.
        log.set(0);
    }
    exec.fill(|| graph_exec::instantiate(graph, 0))
}

/// Defines functions with 32-bit addresses and sizes, which can't represent addresses of the emulated devices.
macro_rules! narrow {
    ($($name:ident)+) => {
        $(
            // The C calling convention lets a callee ignore arguments, so one signature serves all.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> i32 {
                Status::NotSupported.code()
            }
        )+
    };
}

narrow! {
    cuArray3DCreate
    cuArray3DGetDescriptor
    cuArrayCreate
    cuArrayGetDescriptor
    cuDeviceTotalMem
    cuGraphicsResourceGetMappedPointer
    cuGraphicsResourceSetMapFlags
    cuIpcOpenMemHandle
    cuMemAlloc
    cuMemAllocPitch
    cuMemFree
    cuMemGetAddressRange
    cuMemGetInfo
    cuMemHostGetDevicePointer
    cuMemcpy2D
    cuMemcpy2DAsync
    cuMemcpy2DUnaligned
    cuMemcpy3D
    cuMemcpy3DAsync
    cuMemcpyAtoA
    cuMemcpyAtoD
    cuMemcpyAtoH
    cuMemcpyAtoHAsync
    cuMemcpyDtoA
    cuMemcpyDtoD
    cuMemcpyDtoDAsync
    cuMemcpyDtoH
    cuMemcpyDtoHAsync
    cuMemcpyHtoA
    cuMemcpyHtoAAsync
    cuMemcpyHtoD
    cuMemcpyHtoDAsync
    cuMemsetD16
    cuMemsetD2D16
    cuMemsetD2D32
    cuMemsetD2D8
    cuMemsetD32
    cuMemsetD8
    cuModuleGetGlobal
    cuTexRefGetAddress
    cuTexRefSetAddress
    cuTexRefSetAddress2D
}
