//! Faults of kernels stick until the process ends, so each test here runs in a process of its own.

use std::ffi::{c_char, c_void};

use cudarc::{
    driver::{CudaContext, result, sys},
    nvrtc::Ptx,
};
use libloading::Symbol;

use crate::{
    platform::{assert_passed, code, context, in_child, is_child, library},
    programs::{FOREVER, STORE},
};

const INVALID_VALUE: i32 = 1;
const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_FAILED: i32 = 719;
const NOT_READY: i32 = 600;
const LAUNCH_TIMEOUT: i32 = 702;
const NOT_SUPPORTED: i32 = 801;

pub fn fault_report() -> String {
    told(b"gpufleet_emulator_fault_report")
}

pub fn fault_kernel() -> String {
    told(b"gpufleet_emulator_fault_kernel")
}

fn told(symbol: &[u8]) -> String {
    type Report = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    // SAFETY: the library documents this signature.
    let report: Symbol<Report> = unsafe { library().get(symbol) }.unwrap();
    // SAFETY: without a buffer, the function returns only the length.
    let length = unsafe { report(std::ptr::null_mut(), 0) };
    let mut text = vec![0u8; length + 1];
    // SAFETY: the buffer has the size that is passed.
    unsafe { report(text.as_mut_ptr().cast(), text.len()) };
    text.pop();
    String::from_utf8(text).unwrap()
}

#[test]
fn an_illegal_access_sticks_until_the_process_ends() {
    if !is_child() {
        return assert_passed(&in_child("faults::an_illegal_access_sticks_until_the_process_ends", &[]));
    }
    let context = context();
    let store = context.load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap();
    let stream = context.new_stream().unwrap();
    assert_eq!((fault_report(), fault_kernel()), (String::new(), String::new()));
    // SAFETY: that the kernel writes past the allocation is what is tested; the emulator checks each access.
    unsafe {
        let mut address = result::malloc_sync(16 * 4).unwrap();
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        let (function, on) = (store.cu_function(), stream.cu_stream());
        result::launch_kernel(function, (1, 1, 1), (32, 1, 1), 0, on, &mut arguments).unwrap();
        assert_eq!(code(result::stream::synchronize(on)), ILLEGAL_ADDRESS);
        assert_eq!(code(result::malloc_sync(16)), ILLEGAL_ADDRESS);
        assert_eq!(code(result::memcpy_dtoh_sync(&mut [0u8; 4], address)), ILLEGAL_ADDRESS);
        assert_eq!(code(result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, on, &mut arguments)), ILLEGAL_ADDRESS);
        assert_eq!(sys::cuStreamQuery(on) as i32, ILLEGAL_ADDRESS);
    }
    assert_eq!(code(context.synchronize()), ILLEGAL_ADDRESS);
    let report = fault_report();
    assert!(report.contains("store") && report.contains("thread (16, 0, 0)"), "{report}");
    assert!(report.contains("64-byte allocation"), "{report}");
    assert_eq!(fault_kernel(), "store");
}

/// Adds one to a number, by a store or by an atomic.
const WRITERS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry stores(.param .u64 x) {\n.reg .b64 %rd<2>;\n.reg .b32 %r<3>;\nld.param.u64 %rd1, [x];\n\
    ld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n\
    .visible .entry adds(.param .u64 x) {\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [x];\n\
    red.global.add.u32 [%rd1], 1;\nret;\n}\n";

#[test]
fn kernels_only_read_protected_memory() {
    const TEST: &str = "faults::kernels_only_read_protected_memory";
    if !is_child() {
        for kernel in ["stores", "adds"] {
            assert_passed(&in_child(TEST, &[("WRITER", kernel)]));
        }
        return assert_passed(&in_child(TEST, &[("WRITER", "none"), ("GPUFLEET_EMULATOR_PROTECTION", "off")]));
    }
    type Protect = unsafe extern "C" fn(sys::CUdeviceptr) -> i32;
    // SAFETY: the library documents this signature.
    let protect: Symbol<Protect> = unsafe { library().get(b"gpufleet_emulator_protect") }.unwrap();
    let context = context();
    // SAFETY: the memory has room for what is copied, and the function takes any number.
    let address = unsafe {
        let address = result::malloc_sync(64).unwrap();
        result::memset_d8_sync(address, 7, 64).unwrap();
        address
    };
    let kernel = std::env::var("WRITER").unwrap();
    if kernel == "none" {
        // SAFETY: as above.
        return assert_eq!(unsafe { protect(address) }, NOT_SUPPORTED);
    }
    let (module, stream) = (context.load_module(Ptx::from_src(WRITERS)).unwrap(), context.new_stream().unwrap());
    let function = module.load_function(&kernel).unwrap();
    let mut argument = address;
    let mut run = || {
        let mut arguments = [std::ptr::from_mut(&mut argument).cast::<c_void>()];
        // SAFETY: the kernel takes one address, of memory that is there.
        unsafe {
            result::launch_kernel(function.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut arguments)
                .unwrap();
            result::stream::synchronize(stream.cu_stream())
        }
    };
    // SAFETY: as above.
    unsafe {
        assert_eq!((protect(address), protect(address + 8)), (0, INVALID_VALUE));
        result::memset_d8_sync(address, 8, 64).unwrap();
        assert_eq!(code(run()), 0, "the host has written to it since");
        assert_eq!(protect(address), 0);
    }
    assert_eq!(code(run()), ILLEGAL_ADDRESS);
    let report = fault_report();
    assert!(
        report.contains("0 bytes into the 64-byte allocation") && report.contains("which is read-only"),
        "{report}"
    );
    assert_eq!(fault_kernel(), kernel);
}

/// A counter that is never set to zero, compiled from CUDA C with line information.
const COUNT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry count(.param .u64 counter) {\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [counter];\n\
    .loc 1 3 5\nred.global.add.u32 [%rd1], 1;\nret;\n}\n.file 1 \"/home/someone/count.cu\"\n";

#[test]
fn checks_are_switched_on_by_the_environment() {
    const TEST: &str = "faults::checks_are_switched_on_by_the_environment";
    if !is_child() {
        assert_passed(&in_child(TEST, &[]));
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_CHECKS", "races,uninitialised")]));
    }
    let checked = std::env::var_os("GPUFLEET_EMULATOR_CHECKS").is_some();
    let context = context();
    let count = context.load_module(Ptx::from_src(COUNT)).unwrap().load_function("count").unwrap();
    // SAFETY: the kernel adds to one word, for which there is room.
    let (filled, fresh) = unsafe {
        let launch = |mut counter: u64| {
            let mut arguments = [std::ptr::from_mut(&mut counter).cast::<c_void>()];
            let null = std::ptr::null_mut();
            result::launch_kernel(count.cu_function(), (1, 1, 1), (32, 1, 1), 0, null, &mut arguments).unwrap();
            code(result::stream::synchronize(null))
        };
        let counter = result::malloc_sync(4).unwrap();
        result::memset_d8_sync(counter, 0, 4).unwrap();
        (launch(counter), launch(result::malloc_sync(4).unwrap()))
    };
    assert_eq!((filled, fresh), (0, if checked { LAUNCH_FAILED } else { 0 }));
    let report = fault_report();
    assert_eq!(
        report.contains("uninitialised bytes in global memory in kernel `count`\n  at count.cu:3 ("),
        checked,
        "{report}"
    );
}

#[test]
fn a_context_that_ends_takes_its_kernels_along() {
    if !is_child() {
        return assert_passed(&in_child("faults::a_context_that_ends_takes_its_kernels_along", &[]));
    }
    let survivor = context();
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    let forever = context.load_module(Ptx::from_src(FOREVER)).unwrap().load_function("forever").unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the kernel has no parameters; that the context's handle is destroyed twice is an error code only.
    unsafe {
        let function = forever.cu_function();
        result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []).unwrap();
        assert_eq!(sys::cuCtxDestroy_v2(context.cu_ctx()) as i32, 0);
    }
    survivor.synchronize().unwrap();
    assert_eq!(fault_report(), "");
}

#[test]
fn a_process_ends_promptly_while_a_kernel_runs() {
    const TEST: &str = "faults::a_process_ends_promptly_while_a_kernel_runs";
    const STATUS: i32 = 7;
    if !is_child() {
        // That this returns is the test: an endless kernel would hold up every waiting thread.
        let output = in_child(TEST, &[]);
        assert_eq!(output.status.code(), Some(STATUS), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let context = context();
    let forever = context.load_module(Ptx::from_src(FOREVER)).unwrap().load_function("forever").unwrap();
    let streams = [context.new_stream().unwrap(), context.new_stream().unwrap()];
    for stream in &streams {
        // SAFETY: the kernel has no parameters.
        unsafe {
            result::launch_kernel(forever.cu_function(), (64, 1, 1), (64, 1, 1), 0, stream.cu_stream(), &mut [])
                .unwrap();
            assert_eq!(sys::cuStreamQuery(stream.cu_stream()) as i32, NOT_READY);
        }
    }
    // Another thread waits for the kernel, as an executor's might.
    let waiting = std::sync::Arc::clone(&streams[0]);
    std::thread::spawn(move || waiting.synchronize());
    std::process::exit(STATUS);
}

#[test]
fn an_endless_kernel_ends_with_its_budget_and_names_its_line() {
    const TEST: &str = "faults::an_endless_kernel_ends_with_its_budget_and_names_its_line";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_INSTRUCTIONS_MAX", "100000")]));
    }
    let context = context();
    let forever = context.load_module(Ptx::from_src(FOREVER)).unwrap().load_function("forever").unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the kernel has no parameters.
    unsafe { result::launch_kernel(forever.cu_function(), (1, 1, 1), (32, 1, 1), 0, stream.cu_stream(), &mut []) }
        .unwrap();
    assert_eq!(code(stream.synchronize()), LAUNCH_TIMEOUT);
    assert_eq!(code(context.synchronize()), LAUNCH_TIMEOUT);
    let report = fault_report();
    assert!(report.contains("kernel `forever`") && report.contains("PTX line 9"), "{report}");
}
