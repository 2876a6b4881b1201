//! Function names without a version, which programs for an earlier CUDA look up.

use std::{ffi::c_void, ptr};

use cudarc::driver::{result, sys};
use libloading::Symbol;

use crate::{
    platform::{context, library},
    programs::{SAXPY, STORE},
};

const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const NOT_SUPPORTED: i32 = 801;

/// Some of the functions with 32-bit sizes and addresses.
const NARROW: [&str; 17] = [
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuArrayGetDescriptor",
    "cuArray3DGetDescriptor",
    "cuMemcpyAtoA",
    "cuMemcpyAtoD",
    "cuMemcpyAtoH",
    "cuMemcpyAtoHAsync",
    "cuMemcpyDtoA",
    "cuMemcpyHtoA",
    "cuMemcpyHtoAAsync",
    "cuTexRefSetAddress",
    "cuTexRefGetAddress",
    "cuTexRefSetAddress2D",
    "cuIpcOpenMemHandle",
    "cuGraphicsResourceGetMappedPointer",
    "cuGraphicsResourceSetMapFlags",
];

fn old<T>(name: &str) -> Symbol<'static, T> {
    // SAFETY: the callers give the signature of the earlier headers.
    unsafe { library().get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `CUDA_KERNEL_NODE_PARAMS` before library kernels existed.
#[repr(C)]
struct Params {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

#[test]
fn graphs_are_built_and_changed_by_their_first_functions() {
    type Add =
        unsafe extern "C" fn(*mut sys::CUgraphNode, sys::CUgraph, *const sys::CUgraphNode, usize, *const Params) -> i32;
    type Instantiate =
        unsafe extern "C" fn(*mut sys::CUgraphExec, sys::CUgraph, *mut sys::CUgraphNode, *mut u8, usize) -> i32;
    type Get = unsafe extern "C" fn(sys::CUgraphNode, *mut Params) -> i32;
    type Set = unsafe extern "C" fn(sys::CUgraphNode, *const Params) -> i32;
    type SetInExec = unsafe extern "C" fn(sys::CUgraphExec, sys::CUgraphNode, *const Params) -> i32;
    type Update = unsafe extern "C" fn(sys::CUgraphExec, sys::CUgraph, *mut sys::CUgraphNode, *mut u32) -> i32;
    let context = context();
    let module = context.load_module(cudarc::nvrtc::Ptx::from_src(STORE)).unwrap();
    let kernel = module.load_function("store").unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the kernel writes its threads' numbers to the memory of its parameter; the places of all results outlive
    // the calls.
    unsafe {
        let memory = result::malloc_sync(64).unwrap();
        result::memset_d8_sync(memory, 0xff, 64).unwrap();
        let mut parameters = [ptr::from_ref(&memory).cast_mut().cast()];
        let mut params = Params {
            function: kernel.cu_function(),
            grid: [1, 1, 1],
            block: [2, 1, 1],
            shared_bytes: 0,
            parameters: parameters.as_mut_ptr(),
            extra: ptr::null_mut(),
        };
        let (mut graph, mut node, mut exec) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(sys::cuGraphCreate(&mut graph, 0) as i32, 0);
        assert_eq!(old::<Add>("cuGraphAddKernelNode")(&mut node, graph, ptr::null(), 0, &params), 0);
        assert_eq!(
            old::<Instantiate>("cuGraphInstantiate_v2")(&mut exec, graph, ptr::null_mut(), ptr::null_mut(), 0),
            0
        );
        let written = || {
            assert_eq!(sys::cuGraphLaunch(exec, stream.cu_stream()) as i32, 0);
            stream.synchronize().unwrap();
            let mut words = [0u32; 4];
            result::memcpy_dtoh_sync(&mut words, memory).unwrap();
            words
        };
        assert_eq!(written(), [0, 1, u32::MAX, u32::MAX]);
        params.block[0] = 3;
        assert_eq!(old::<SetInExec>("cuGraphExecKernelNodeSetParams")(exec, node, &params), 0);
        assert_eq!(written(), [0, 1, 2, u32::MAX]);
        params.block[0] = 4;
        assert_eq!(old::<Set>("cuGraphKernelNodeSetParams")(node, &params), 0);
        let mut result = u32::MAX;
        assert_eq!(old::<Update>("cuGraphExecUpdate")(exec, graph, ptr::null_mut(), &mut result), 0);
        assert_eq!((result, written()), (0, [0, 1, 2, 3]));
        let mut told = Params { function: ptr::null_mut(), grid: [0; 3], block: [0; 3], ..params };
        assert_eq!(old::<Get>("cuGraphKernelNodeGetParams")(node, &mut told), 0);
        assert_eq!((told.function, told.grid, told.block), (params.function, [1, 1, 1], [4, 1, 1]));
        assert_eq!(sys::cuGraphExecDestroy(exec) as i32, 0);
        assert_eq!(sys::cuGraphDestroy(graph) as i32, 0);
        result::free_sync(memory).unwrap();
    }
}

#[test]
fn unchanged_functions_do_what_their_versions_do() {
    context();
    type OfHandle = unsafe extern "C" fn(*mut c_void) -> i32;
    let (mut stream, mut event) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both handles are valid once.
    unsafe {
        assert_eq!(sys::cuStreamCreate(&mut stream, 0) as i32, 0);
        assert_eq!(old::<OfHandle>("cuStreamDestroy")(stream.cast()), 0);
        assert_eq!(old::<OfHandle>("cuStreamDestroy")(stream.cast()), 400);
        assert_eq!(sys::cuEventCreate(&mut event, 0) as i32, 0);
        assert_eq!(old::<OfHandle>("cuEventDestroy")(event.cast()), 0);
        // With a 32-bit address.
        assert_eq!(old::<unsafe extern "C" fn(*mut u32, u32) -> i32>("cuMemAlloc")(&mut 0, 4), NOT_SUPPORTED);
        for name in NARROW {
            assert_eq!(old::<unsafe extern "C" fn() -> i32>(name)(), NOT_SUPPORTED, "{name}");
        }
        let mut pointer = ptr::null_mut();
        assert_eq!(old::<unsafe extern "C" fn(*mut *mut c_void, u32) -> i32>("cuMemAllocHost")(&mut pointer, 8), 0);
        assert_eq!(sys::cuMemFreeHost(pointer) as i32, 0);
        let mut graph = ptr::null_mut();
        assert_eq!(sys::cuStreamCreate(&mut stream, 0) as i32, 0);
        assert_eq!(old::<OfHandle>("cuStreamBeginCapture")(stream.cast()), 0);
        assert_eq!(sys::cuStreamEndCapture(stream, &mut graph) as i32, 0);
        assert_eq!(sys::cuGraphDestroy(graph) as i32, 0);
        assert_eq!(sys::cuStreamDestroy_v2(stream) as i32, 0);
    }
}

#[test]
fn a_launch_is_put_together_call_by_call() {
    type SetShape = unsafe extern "C" fn(sys::CUfunction, i32, i32, i32) -> i32;
    type SetBytes = unsafe extern "C" fn(sys::CUfunction, u32) -> i32;
    type SetInteger = unsafe extern "C" fn(sys::CUfunction, i32, u32) -> i32;
    type SetFloat = unsafe extern "C" fn(sys::CUfunction, i32, f32) -> i32;
    type SetValue = unsafe extern "C" fn(sys::CUfunction, i32, *const c_void, u32) -> i32;
    type Launch = unsafe extern "C" fn(sys::CUfunction) -> i32;
    type LaunchGrid = unsafe extern "C" fn(sys::CUfunction, i32, i32) -> i32;
    type LaunchAsync = unsafe extern "C" fn(sys::CUfunction, i32, i32, sys::CUstream) -> i32;
    let context = context();
    let module = context.load_module(cudarc::nvrtc::Ptx::from_src(SAXPY)).unwrap();
    let kernel = module.load_function("saxpy").unwrap();
    let (function, stream) = (kernel.cu_function(), context.new_stream().unwrap());
    // SAFETY: the signatures are those of the headers, and the kernel's arrays have the length that it receives.
    unsafe {
        let (x, y) = (result::malloc_sync(16).unwrap(), result::malloc_sync(16).unwrap());
        result::memcpy_htod_sync(x, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        result::memcpy_htod_sync(y, &[0.5f32; 4]).unwrap();
        let launch = old::<Launch>("cuLaunch");
        assert_eq!(launch(function), INVALID_VALUE, "without a block");
        assert_eq!(old::<SetShape>("cuFuncSetBlockShape")(function, 2, 0, 1), INVALID_VALUE);
        assert_eq!(old::<SetShape>("cuFuncSetBlockShape")(function, 2, 1, 1), 0);
        assert_eq!(old::<SetBytes>("cuFuncSetSharedSize")(function, 0), 0);
        assert_eq!(launch(function), INVALID_VALUE, "without parameters");
        assert_eq!(old::<SetFloat>("cuParamSetf")(function, 0, 2.0), 0);
        let pointers = [x, y];
        assert_eq!(old::<SetValue>("cuParamSetv")(function, 8, pointers.as_ptr().cast(), 16), 0);
        assert_eq!(old::<SetInteger>("cuParamSeti")(function, 24, 4), 0);
        assert_eq!(old::<SetInteger>("cuParamSeti")(function, -4, 4), INVALID_VALUE);
        assert_eq!(old::<SetInteger>("cuParamSeti")(function, 4096, 4), INVALID_VALUE);
        assert_eq!(old::<SetBytes>("cuParamSetSize")(function, 4096), INVALID_VALUE);
        assert_eq!(old::<SetBytes>("cuParamSetSize")(function, 28), 0);
        let result = || {
            context.synchronize().unwrap();
            let mut result = [0.0f32; 4];
            result::memcpy_dtoh_sync(&mut result, y).unwrap();
            result
        };
        assert_eq!((launch(function), result()), (0, [2.5, 4.5, 0.5, 0.5]));
        // The settings apply to later launches.
        assert_eq!((old::<LaunchGrid>("cuLaunchGrid")(function, 2, 1), result()), (0, [4.5, 8.5, 6.5, 8.5]));
        assert_eq!(old::<SetFloat>("cuParamSetf")(function, 0, -1.0), 0);
        let launched = old::<LaunchAsync>("cuLaunchGridAsync")(function, 2, 1, stream.cu_stream());
        assert_eq!((launched, result()), (0, [3.5, 6.5, 3.5, 4.5]));
        for pointer in pointers {
            result::free_sync(pointer).unwrap();
        }
    }
}

#[test]
fn a_context_ends_with_the_last_detachment() {
    type Attach = unsafe extern "C" fn(*mut sys::CUcontext, u32) -> i32;
    type Detach = unsafe extern "C" fn(sys::CUcontext) -> i32;
    let primary = context();
    let (mut context, mut attached, mut current) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the signatures are those of the headers, and the places of all results outlive the calls.
    unsafe {
        let (attach, detach) = (old::<Attach>("cuCtxAttach"), old::<Detach>("cuCtxDetach"));
        assert_eq!(detach(primary.cu_ctx()), INVALID_CONTEXT, "a primary context is released");
        assert_eq!(sys::cuCtxCreate_v2(&mut context, 0, 0) as i32, 0);
        assert_eq!(attach(&mut attached, 1), INVALID_VALUE);
        assert_eq!(attach(&mut attached, 0), 0);
        assert_eq!((attached, detach(primary.cu_ctx())), (context, INVALID_CONTEXT));
        assert_eq!((detach(context), sys::cuCtxSynchronize() as i32), (0, 0));
        assert_eq!(detach(context), 0);
        assert_eq!(sys::cuCtxGetCurrent(&mut current) as i32, 0);
        assert_eq!(current, primary.cu_ctx());
        assert_eq!(sys::cuCtxPushCurrent_v2(context) as i32, INVALID_CONTEXT);
    }
}
