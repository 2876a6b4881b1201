//! Fault injection, as the worker's tests use it.

use cudarc::{
    driver::{CudaContext, CudaFunction, CudaStream, result},
    nvrtc::Ptx,
};

use crate::{
    faults::{fault_kernel, fault_report},
    platform::{assert_passed, code, context, in_child, is_child, library},
    programs::STORE,
};

const FAULTS: &str = "GPUFLEET_EMULATOR_FAULTS";
const OUT_OF_MEMORY: i32 = 2;
const NOT_READY: i32 = 600;

fn store() -> (std::sync::Arc<CudaContext>, CudaFunction) {
    let context = context();
    let store = context.load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap();
    (context, store)
}

/// Launches `store` on one thread with an address of its own.
fn launch(stream: &CudaStream, store: &CudaFunction, address: &mut u64) -> i32 {
    let mut arguments = [std::ptr::from_mut(address).cast()];
    // SAFETY: the argument is the kernel's.
    code(unsafe {
        result::launch_kernel(store.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut arguments)
    })
}

#[test]
fn a_launch_fails_by_its_number_and_the_device_stays_faulted() {
    const TEST: &str = "injection::a_launch_fails_by_its_number_and_the_device_stays_faulted";
    for (name, expected) in [
        ("illegal-address", 700),
        ("misaligned-address", 716),
        ("trap", 719),
        ("assert", 710),
        ("timeout", 702),
        ("uncorrectable-memory", 214),
        ("device-lost", 999),
    ] {
        if !is_child() {
            let (rule, expected) = (format!("launch:2={name}"), format!("{expected}"));
            let output = in_child(TEST, &[(FAULTS, rule.as_str()), ("EXPECTED_CODE", expected.as_str())]);
            assert_passed(&output);
        }
    }
    if is_child() {
        let expected = std::env::var("EXPECTED_CODE").unwrap().parse::<i32>().unwrap();
        let (context, store) = store();
        let stream = context.new_stream().unwrap();
        // SAFETY: the memory is the kernel's to write.
        let mut address = unsafe { result::malloc_sync(4) }.unwrap();
        assert_eq!(launch(&stream, &store, &mut address), 0);
        assert_eq!(code(stream.synchronize()), 0);
        assert_eq!(fault_report(), "");
        assert_eq!(launch(&stream, &store, &mut address), 0);
        assert_eq!(code(stream.synchronize()), expected);
        assert_eq!(code(context.synchronize()), expected);
        assert_eq!(launch(&stream, &store, &mut address), expected);
        let report = fault_report();
        assert!(report.contains("launch 2, of kernel `store`") && report.contains(FAULTS), "{report}");
        assert_eq!(fault_kernel(), "store");
    }
}

#[test]
fn an_allocation_fails_and_the_next_one_does_not() {
    const TEST: &str = "injection::an_allocation_fails_and_the_next_one_does_not";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[(FAULTS, "alloc:2=out-of-memory,alloc:4+=out-of-memory")]));
    }
    let stream = context().new_stream().unwrap();
    // SAFETY: the memory is not read.
    let results = [
        code(unsafe { result::malloc_sync(4) }),
        code(unsafe { result::malloc_sync(4) }),
        code(unsafe { result::malloc_async(stream.cu_stream(), 4) }),
        code(unsafe { result::malloc_sync(4) }),
        code(unsafe { result::malloc_async(stream.cu_stream(), 4) }),
    ];
    assert_eq!(results, [0, OUT_OF_MEMORY, 0, OUT_OF_MEMORY, OUT_OF_MEMORY]);
    stream.synchronize().unwrap();
}

#[test]
fn a_copy_finds_the_device_lost() {
    if !is_child() {
        return assert_passed(&in_child("injection::a_copy_finds_the_device_lost", &[(FAULTS, "copy:2=device-lost")]));
    }
    let stream = context().new_stream().unwrap();
    let memory = stream.clone_htod(&[1u32]).unwrap();
    assert_eq!(code(stream.clone_dtoh(&memory)), 999);
    assert_eq!(code(context_again()), 999);
    assert_eq!(fault_kernel(), "", "a copy is no kernel");
}

#[test]
fn a_question_for_free_memory_finds_the_device_lost() {
    const TEST: &str = "injection::a_question_for_free_memory_finds_the_device_lost";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[(FAULTS, "info:2+=device-lost")]));
    }
    let context = context();
    assert_eq!([(); 3].map(|()| code(result::mem_get_info())), [0, 999, 999]);
    assert_eq!(code(context.synchronize()), 999);
}

/// Requests a context again, which does not help after a fault.
fn context_again() -> Result<std::sync::Arc<CudaContext>, cudarc::driver::DriverError> {
    CudaContext::new_non_primary(0, 0)
}

#[test]
fn a_kernel_hangs_by_its_name_until_its_context_ends() {
    const TEST: &str = "injection::a_kernel_hangs_by_its_name_until_its_context_ends";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[(FAULTS, "launch@store=hang")]));
    }
    library();
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    let store = context.load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the memory is the kernel's to write; the context is destroyed here, and its handle not used again.
    unsafe {
        let mut address = result::malloc_sync(4).unwrap();
        assert_eq!(launch(&stream, &store, &mut address), 0);
        assert_eq!(cudarc::driver::sys::cuStreamQuery(stream.cu_stream()) as i32, NOT_READY);
        assert_eq!(cudarc::driver::sys::cuCtxDestroy_v2(context.cu_ctx()) as i32, 0);
    }
    assert_eq!(fault_report(), "");
}

#[test]
fn a_rule_that_makes_no_sense_fails_the_start() {
    const TEST: &str = "injection::a_rule_that_makes_no_sense_fails_the_start";
    if is_child() {
        library();
        assert_eq!(code(CudaContext::new(0)), 802);
        return;
    }
    let output = in_child(TEST, &[(FAULTS, "launch:soon=trap")]);
    assert_passed(&output);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(FAULTS) && stderr.contains("launch:7=illegal-address"), "{stderr}");
}
