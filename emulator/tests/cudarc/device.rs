//! What a device tells about itself, and how the environment changes it.

use cudarc::driver::{
    CudaContext,
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
        assert_eq!(code(CudaContext::new(0)), 802);
        return;
    }
    let output = in_child(test, &[("GPUFLEET_EMULATOR_MEMORY", "plenty")]);
    assert_passed(&output);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("failed to read GPUFLEET_EMULATOR_MEMORY=\"plenty\": expected bytes"), "{stderr}");
}
