//! Confinement of a stream's kernels to one job's memory, and their interruption. Faults stick, so each test runs in a
//! process of its own.

use std::ffi::c_void;

use cudarc::{
    driver::{result, sys},
    nvrtc::Ptx,
};
use libloading::Symbol;

use crate::{
    faults::{fault_kernel, fault_report},
    platform::{assert_passed, code, context, in_child, is_child, library},
    programs::STORE,
};

/// Sets a flag, and never ends.
const SPIN: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry spin(.param .u64 flag) {\n.reg .b64 %d;\nld.param.u64 %d, [flag];\nst.global.u32 [%d], 1;\n\
    AGAIN:\nbra.uni AGAIN;\n}\n";

type Confine = unsafe extern "C" fn(sys::CUstream, *const sys::CUdeviceptr, usize) -> i32;
type Interrupt = unsafe extern "C" fn(sys::CUstream) -> i32;

const ILLEGAL_ADDRESS: i32 = 700;
const LAUNCH_TIMEOUT: i32 = 702;
const INVALID_HANDLE: i32 = 400;
const NOT_SUPPORTED: i32 = 801;

fn confine() -> Symbol<'static, Confine> {
    // SAFETY: the library documents this signature.
    unsafe { library().get(b"gpufleet_emulator_confine") }.unwrap()
}

#[test]
fn a_confined_stream_reaches_its_own_memory_alone() {
    const TEST: &str = "scopes::a_confined_stream_reaches_its_own_memory_alone";
    if !is_child() {
        assert_passed(&in_child(TEST, &[]));
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_PROTECTION", "off")]));
    }
    let context = context();
    let store = context.load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap();
    let stream = context.new_stream().unwrap();
    let on = stream.cu_stream();
    let launch = |mut address: u64| {
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        // SAFETY: the kernel takes one address; what it does there is what is tested.
        unsafe {
            result::launch_kernel(store.cu_function(), (1, 1, 1), (16, 1, 1), 0, on, &mut arguments).unwrap();
            code(result::stream::synchronize(on))
        }
    };
    // SAFETY: the lists have the lengths that are passed.
    unsafe {
        let [own, other] = [result::malloc_sync(64).unwrap(), result::malloc_sync(64).unwrap()];
        let confined = confine()(on, &own, 1);
        if std::env::var("GPUFLEET_EMULATOR_PROTECTION").is_ok() {
            return assert_eq!((confined, launch(other)), (NOT_SUPPORTED, 0), "as on a GPU");
        }
        assert_eq!((confined, launch(own)), (0, 0));
        assert_eq!((confine()(on, std::ptr::null(), 0), launch(other)), (0, 0), "without bounds");
        assert_eq!(confine()(std::ptr::dangling_mut(), &own, 1), INVALID_HANDLE);
        assert_eq!((confine()(on, &own, 1), launch(other)), (0, ILLEGAL_ADDRESS));
    }
    let report = fault_report();
    assert!(report.contains("the address is in memory of another job, or of none"), "{report}");
    assert!(!report.contains("allocation at"), "it tells nothing of the other's memory: {report}");
}

#[test]
fn an_interrupted_kernel_says_where_its_threads_are() {
    const TEST: &str = "scopes::an_interrupted_kernel_says_where_its_threads_are";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[]));
    }
    // SAFETY: the library documents this signature.
    let interrupt: Symbol<Interrupt> = unsafe { library().get(b"gpufleet_emulator_interrupt") }.unwrap();
    let context = context();
    let spin = context.load_module(Ptx::from_src(SPIN)).unwrap().load_function("spin").unwrap();
    let stream = context.new_stream().unwrap();
    let on = stream.cu_stream();
    let handle = on as usize;
    // SAFETY: the kernel takes one address, of memory that outlives it, which the thread only reads.
    unsafe {
        let flag = result::malloc_host(4, 0).unwrap().cast::<u32>();
        flag.write(0);
        let mut address = flag as u64;
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        result::launch_kernel(spin.cu_function(), (1, 1, 1), (32, 1, 1), 0, on, &mut arguments).unwrap();
        let ending = std::thread::spawn(move || {
            let flag = std::sync::atomic::AtomicU32::from_ptr(address as *mut u32);
            while flag.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            interrupt(handle as sys::CUstream)
        });
        assert_eq!(code(result::stream::synchronize(on)), LAUNCH_TIMEOUT);
        assert_eq!(ending.join().unwrap(), 0);
    }
    let report = fault_report();
    assert!(report.contains("it ran too long") && report.contains("and 31 others of its warp"), "{report}");
    assert_eq!(fault_kernel(), "spin");
}
