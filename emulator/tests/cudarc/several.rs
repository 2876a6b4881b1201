//! Several devices in one process: each has its own memory, contexts and faults.

use std::ptr;

use cudarc::{
    driver::{CudaContext, result, sys},
    nvrtc::Ptx,
};

use crate::{
    platform::{assert_passed, code, context, in_child, is_child},
    programs::STORE,
};

const DEVICES: &str = "GPUFLEET_EMULATOR_DEVICES";
const INVALID_CONTEXT: i32 = 201;
const PEER_UNSUPPORTED: i32 = 217;
const INVALID_HANDLE: i32 = 400;
const ILLEGAL_ADDRESS: i32 = 700;
const PEER_NOT_ENABLED: i32 = 705;

#[test]
fn devices_do_not_reach_each_others_memory() {
    if !is_child() {
        return assert_passed(&in_child("several::devices_do_not_reach_each_others_memory", &[(DEVICES, "2")]));
    }
    let first = context();
    let second = CudaContext::new(1).unwrap();
    let mut can = 9;
    // SAFETY: handles and places are valid, and the emulator checks each access of the kernel.
    unsafe {
        assert_eq!(sys::cuDeviceCanAccessPeer(&mut can, 0, 1) as i32, 0);
        assert_eq!(can, 0);
        first.bind_to_thread().unwrap();
        assert_eq!(sys::cuCtxEnablePeerAccess(second.cu_ctx(), 0) as i32, PEER_UNSUPPORTED);
        assert_eq!(sys::cuCtxEnablePeerAccess(second.cu_ctx(), 1) as i32, 1);
        assert_eq!(sys::cuCtxEnablePeerAccess(first.cu_ctx(), 0) as i32, INVALID_CONTEXT);
        assert_eq!(sys::cuCtxDisablePeerAccess(second.cu_ctx()) as i32, PEER_NOT_ENABLED);

        second.bind_to_thread().unwrap();
        let elsewhere = result::malloc_sync(64).unwrap();
        result::memcpy_htod_sync(elsewhere, &[7u32; 16]).unwrap();
        first.bind_to_thread().unwrap();
        let here = result::malloc_sync(64).unwrap();
        let (a, b) = (first.cu_ctx(), second.cu_ctx());
        assert_eq!(sys::cuMemcpyPeer(here, a, elsewhere, b, 64) as i32, 0);
        assert_eq!(sys::cuMemcpyPeer(here, a, elsewhere, ptr::null_mut(), 64) as i32, INVALID_CONTEXT);
        let mut words = [0u32; 16];
        result::memcpy_dtoh_sync(&mut words, here).unwrap();
        assert_eq!(words, [7; 16]);

        let store = first.load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap();
        let (on_first, on_second) = (first.new_stream().unwrap(), second.new_stream().unwrap());
        let mut address = elsewhere;
        let mut launch = |stream: sys::CUstream| {
            let mut arguments = [ptr::from_mut(&mut address).cast()];
            code(result::launch_kernel(store.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream, &mut arguments))
        };
        assert_eq!(launch(on_second.cu_stream()), INVALID_HANDLE);
        assert_eq!(launch(on_first.cu_stream()), 0);
        assert_eq!(code(on_first.synchronize()), ILLEGAL_ADDRESS);

        // The fault affects only the first device.
        assert_eq!(code(first.synchronize()), ILLEGAL_ADDRESS);
        on_second.synchronize().unwrap();
        second.bind_to_thread().unwrap();
        result::memcpy_dtoh_sync(&mut words, elsewhere).unwrap();
        assert_eq!(words, [7; 16]);
    }
}

#[test]
fn each_device_has_memory_of_its_own() {
    if !is_child() {
        let variables = [(DEVICES, "2"), ("GPUFLEET_EMULATOR_MEMORY", "64MiB")];
        return assert_passed(&in_child("several::each_device_has_memory_of_its_own", &variables));
    }
    let (first, second) = (context(), CudaContext::new(1).unwrap());
    // SAFETY: the memory is not read.
    unsafe {
        second.bind_to_thread().unwrap();
        let taken = result::malloc_sync(40 << 20).unwrap();
        assert_eq!(code(result::malloc_sync(40 << 20)), 2);
        first.bind_to_thread().unwrap();
        result::free_sync(result::malloc_sync(40 << 20).unwrap()).unwrap();
        second.bind_to_thread().unwrap();
        result::free_sync(taken).unwrap();
    }
}

#[test]
fn the_current_context_tells_the_device() {
    if !is_child() {
        return assert_passed(&in_child("several::the_current_context_tells_the_device", &[(DEVICES, "3")]));
    }
    let (first, third) = (context(), CudaContext::new(2).unwrap());
    let device = || {
        let mut device = -1;
        // SAFETY: the result has a place.
        assert_eq!(unsafe { sys::cuCtxGetDevice(&mut device) } as i32, 0);
        device
    };
    first.bind_to_thread().unwrap();
    assert_eq!(device(), 0);
    // SAFETY: the contexts are live.
    unsafe {
        assert_eq!(sys::cuCtxPushCurrent_v2(third.cu_ctx()) as i32, 0);
        assert_eq!(device(), 2);
        let mut popped = ptr::null_mut();
        assert_eq!(sys::cuCtxPopCurrent_v2(&mut popped) as i32, 0);
        assert_eq!((popped, device()), (third.cu_ctx(), 0));
    }
    // A stream belongs to its device's context, whatever context is current.
    let stream = third.new_stream().unwrap();
    first.bind_to_thread().unwrap();
    let mut context = ptr::null_mut();
    // SAFETY: the result has a place.
    assert_eq!(unsafe { sys::cuStreamGetCtx(stream.cu_stream(), &mut context) } as i32, 0);
    assert_eq!(context, third.cu_ctx());
}

#[test]
fn registering_the_memory_of_another_device_changes_nothing() {
    const TEST: &str = "several::registering_the_memory_of_another_device_changes_nothing";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[(DEVICES, "2")]));
    }
    let (first, second) = (context(), CudaContext::new(1).unwrap());
    second.bind_to_thread().unwrap();
    // SAFETY: the memory is the second device's own, and results have their places.
    unsafe {
        let address = result::malloc_sync(4096).unwrap();
        first.bind_to_thread().unwrap();
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        assert_eq!(sys::cuMemHostRegister_v2(pointer, 4096, 0) as i32, 1);
        let (mut ordinal, attribute) = (9, sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        assert_eq!(sys::cuPointerGetAttribute(ptr::from_mut(&mut ordinal).cast(), attribute, address) as i32, 0);
        assert_eq!(ordinal, 1);
        result::free_sync(address).unwrap();
    }
}

#[test]
fn a_library_ends_in_every_context_also_after_a_fault() {
    const TEST: &str = "several::a_library_ends_in_every_context_also_after_a_fault";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[(DEVICES, "2")]));
    }
    let text = format!("{STORE}\n.global .align 4 .b8 room[1000000];\n\0");
    let (first, others) = (context(), [(); 8].map(|()| CudaContext::new_non_primary(1, 0).unwrap()));
    // SAFETY: handles and places are valid; the kernel writes to null, and the emulator stops it.
    unsafe {
        let (mut library, mut kernel, none) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let image = text.as_ptr().cast();
        let (no_values, no_options) = (ptr::null_mut(), ptr::null_mut());
        let status = sys::cuLibraryLoadData(&mut library, image, none, no_values, 0, no_options, no_values, 0);
        assert_eq!(status as i32, 0);
        assert_eq!(sys::cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()) as i32, 0);
        others[0].bind_to_thread().unwrap();
        let before = result::mem_get_info().unwrap().0;
        for context in others.iter().chain([&first]) {
            context.bind_to_thread().unwrap();
            assert_eq!(sys::cuKernelGetFunction(&mut ptr::null_mut(), kernel) as i32, 0);
        }
        let mut null = 0u64;
        let mut arguments = [ptr::from_mut(&mut null).cast()];
        result::launch_kernel(kernel.cast(), (1, 1, 1), (1, 1, 1), 0, ptr::null_mut(), &mut arguments).unwrap();
        assert_eq!(code(first.synchronize()), ILLEGAL_ADDRESS);
        assert_eq!(sys::cuLibraryUnload(library) as i32, ILLEGAL_ADDRESS);
        others[0].bind_to_thread().unwrap();
        assert_eq!(result::mem_get_info().unwrap().0, before);
    }
}
