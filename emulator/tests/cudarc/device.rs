//! Device properties, and how the environment changes them.

use cudarc::driver::{
    CudaContext, result,
    sys::{CUdevice_attribute, CUlimit},
};

use crate::platform::{assert_passed, code, context, in_child, is_child, library};

#[test]
fn the_device_says_that_it_is_emulated() {
    let context = context();
    assert!(context.name().unwrap().contains("emulator"));
    assert_ne!(context.uuid().unwrap().bytes, [0; 16]);
    let attribute = |attribute| context.attribute(attribute).unwrap();
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 48 << 10);
    assert!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) >= 1);
}

#[test]
fn limits_are_kept() {
    let context = context();
    context.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, 4096).unwrap();
    assert_eq!(context.get_limit(CUlimit::CU_LIMIT_STACK_SIZE), Ok(4096));
    context.synchronize().unwrap();
}

#[test]
fn an_unknown_ordinal_is_an_error() {
    library();
    assert_eq!(code(CudaContext::new(1000)), 101);
}

#[test]
fn the_environment_chooses_devices_memory_and_compute_capability() {
    if !is_child() {
        let variables = [
            ("GPUFLEET_EMULATOR_DEVICES", "2"),
            ("GPUFLEET_EMULATOR_MEMORY", "64MiB"),
            ("GPUFLEET_EMULATOR_COMPUTE_CAPABILITY", "9.0"),
            ("GPUFLEET_EMULATOR_THREADS", "3"),
        ];
        let name = "device::the_environment_chooses_devices_memory_and_compute_capability";
        return assert_passed(&in_child(name, &variables));
    }
    let (first, second) = (context(), CudaContext::new(1).unwrap());
    assert_eq!(CudaContext::device_count(), Ok(2));
    assert_eq!(second.total_mem(), Ok(64 << 20));
    assert_eq!(second.compute_capability(), Ok((9, 0)));
    assert_ne!(first.uuid().unwrap().bytes, second.uuid().unwrap().bytes);
    let multiprocessors = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    assert_eq!(second.attribute(multiprocessors), Ok(3));
}

#[test]
fn a_malformed_setting_fails_the_start_with_a_clear_line() {
    let test = "device::a_malformed_setting_fails_the_start_with_a_clear_line";
    if is_child() {
        library();
        let refused = CudaContext::new(0).unwrap_err();
        assert_eq!(refused.0 as u32, 802);
        let meaning = refused.error_string().unwrap().to_str().unwrap();
        assert!(meaning.contains("GPUFLEET_EMULATOR_MEMORY=\"plenty\": expected bytes"), "{meaning}");
        return;
    }
    let output = in_child(test, &[("GPUFLEET_EMULATOR_MEMORY", "plenty")]);
    assert_passed(&output);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("failed to read GPUFLEET_EMULATOR_MEMORY=\"plenty\": expected bytes"), "{stderr}");
}

#[test]
fn an_ended_context_gives_its_memory_back_and_is_known_as_ended() {
    if !is_child() {
        return assert_passed(&in_child("device::an_ended_context_gives_its_memory_back_and_is_known_as_ended", &[]));
    }
    library();
    let raw = {
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let (free, total) = context.mem_get_info().unwrap();
        assert!(free <= total);
        // SAFETY: the memory is not read. That it is never freed is part of the test.
        unsafe { result::malloc_sync(total / 2) }.unwrap();
        context.cu_ctx()
    };
    // SAFETY: that a stale handle is refused is what is tested.
    unsafe {
        assert_eq!(code(result::ctx::set_current(raw)), 201);
        assert_eq!(code(result::malloc_sync(16)), 201);
    }
    let context = context();
    // SAFETY: as above. More than half of the memory is free only if the first half was freed.
    let address = unsafe { result::malloc_sync(context.total_mem().unwrap() / 2 + 1) }.unwrap();
    // SAFETY: the allocation is this test's own.
    unsafe { result::free_sync(address) }.unwrap();
}

#[test]
fn bytes_travel_between_two_devices() {
    if !is_child() {
        let variables = [("GPUFLEET_EMULATOR_DEVICES", "2"), ("GPUFLEET_EMULATOR_MEMORY", "64MiB")];
        return assert_passed(&in_child("device::bytes_travel_between_two_devices", &variables));
    }
    let sent = (0..3 << 20).map(|index| index as u8).collect::<Vec<_>>();
    let first = context().new_stream().unwrap();
    let second = CudaContext::new(1).unwrap().new_stream().unwrap();
    let from = first.clone_htod(&sent).unwrap();
    first.synchronize().unwrap();
    let mut to = second.alloc_zeros::<u8>(sent.len()).unwrap();
    second.memcpy_dtod(&from, &mut to).unwrap();
    assert_eq!(second.clone_dtoh(&to).unwrap(), sent);
}
