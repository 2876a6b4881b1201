//! What the emulated devices have not, refused with the codes that programs know, and calls in the wrong order.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use cudarc::{
    driver::{CudaContext, LaunchConfig, PushKernelArg, sys},
    nvrtc::Ptx,
};
use sys::CUdevice_attribute as Attribute;

use crate::platform::{assert_passed, code, context, in_child, is_child, library};

const INVALID_VALUE: i32 = 1;
const NOT_INITIALIZED: i32 = 3;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const NOT_SUPPORTED: i32 = 801;

/// Kernels that demand a block of 8 by 4 threads, and at most 64 threads.
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
fn what_devices_have_not_is_zero_and_refused() {
    let context = context();
    for attribute in [
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
        Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
    ] {
        assert_eq!(context.attribute(attribute), Ok(0), "{attribute:?}");
    }
    let event_flags = 2 | 4;
    // SAFETY: the refused calls look at none of their arguments.
    unsafe {
        assert_eq!(sys::cuMemAddressReserve(&mut 0, 1 << 21, 0, 0, 0) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuMemCreate(&mut 0, 1 << 21, ptr::null(), 0) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuIpcGetMemHandle(ptr::null_mut(), 0) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuEventCreate(&mut ptr::null_mut(), event_flags) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuArrayCreate_v2(&mut ptr::null_mut(), ptr::null()) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuTexObjectDestroy(0) as i32, NOT_SUPPORTED);
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
