//! Every function that cudarc may look up exists.

use std::ffi::{CStr, c_char, c_void};

use libloading::Symbol;

use crate::platform::library;

/// The functions that cudarc 0.19.10 declares with its feature `cuda-12080`, one per line.
const DECLARED: &str = include_str!("symbols.txt");
const NOT_SUPPORTED: i32 = 801;

#[test]
fn every_symbol_that_cudarc_declares_is_exported() {
    let missing = DECLARED.lines().filter(|name| {
        // SAFETY: the symbol is only looked up, as an address.
        unsafe { library().get::<*const c_void>(name.as_bytes()) }.is_err()
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(DECLARED.lines().count(), 443);
}

#[test]
fn what_is_not_implemented_says_so() {
    // SAFETY: an unsupported function ignores its arguments.
    let encode = unsafe { library().get::<unsafe extern "C" fn() -> i32>(b"cuTensorMapEncodeTiled") }.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { encode() }, NOT_SUPPORTED);
}

#[test]
fn the_emulator_tells_its_version() {
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the library documents this signature.
    let version: Symbol<Version> = unsafe { library().get(b"gpufleet_emulator_version") }.unwrap();
    // SAFETY: the text is never freed.
    let text = unsafe { CStr::from_ptr(version()) };
    assert_eq!(text.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

#[test]
fn functions_are_also_found_by_the_names_in_the_headers() {
    type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *const c_void, i32, u64, *mut u32) -> i32;
    // SAFETY: the headers define this signature.
    let find: Symbol<GetProcAddress> = unsafe { library().get(b"cuGetProcAddress_v2") }.unwrap();
    let (mut address, mut status) = (std::ptr::null(), u32::MAX);
    // SAFETY: both results have a place.
    assert_eq!(unsafe { find(c"cuMemAlloc".as_ptr(), &mut address, 12_080, 0, &mut status) }, 0);
    // SAFETY: the symbol is only looked up, as an address.
    let versioned = unsafe { library().get::<unsafe extern "C" fn()>(b"cuMemAlloc_v2") }.unwrap();
    assert_eq!((address, status), (*versioned as *const c_void, 0));
}
