//! Libraries, which belong to no context, and linking.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use cudarc::driver::{result, sys};

use crate::{
    platform::{context, separate_context},
    programs::{SAXPY, STORE, UNKNOWN_OPCODE},
};

const INVALID_VALUE: i32 = 1;
const NO_BINARY: i32 = 209;
const INVALID_PTX: i32 = 218;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const NOT_SUPPORTED: i32 = 801;

fn load(image: &str) -> (i32, sys::CUlibrary) {
    let (image, mut library) = (CString::new(image).unwrap(), ptr::null_mut());
    let (none, no_values) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the image ends with a NUL; there are no options.
    let status = unsafe {
        sys::cuLibraryLoadData(&mut library, image.as_ptr().cast(), none, no_values, 0, ptr::null_mut(), no_values, 0)
    };
    (status as i32, library)
}

fn kernel(library: sys::CUlibrary, name: &CStr) -> (i32, sys::CUkernel) {
    let mut kernel = ptr::null_mut();
    // SAFETY: the result has a place.
    let status = unsafe { sys::cuLibraryGetKernel(&mut kernel, library, name.as_ptr()) };
    (status as i32, kernel)
}

/// Runs `store` with four threads; returns what it stored.
fn run(function: sys::CUfunction) -> [u32; 4] {
    let mut words = [9; 4];
    // SAFETY: the argument is the kernel's, and the memory large enough.
    unsafe {
        let mut address = result::malloc_sync(16).unwrap();
        let mut arguments = [ptr::from_mut(&mut address).cast::<c_void>()];
        result::launch_kernel(function, (1, 1, 1), (4, 1, 1), 0, ptr::null_mut(), &mut arguments).unwrap();
        result::memcpy_dtoh_sync(&mut words, address).unwrap();
        result::free_sync(address).unwrap();
    }
    words
}

#[test]
fn a_kernel_of_a_library_runs_in_every_context() {
    let first = context();
    let (status, library) = load(STORE);
    assert_eq!(status, 0);
    let (status, store) = kernel(library, c"store");
    assert_eq!(status, 0);
    assert_eq!(kernel(library, c"nowhere").0, NOT_FOUND);
    assert_eq!(run(store.cast()), [0, 1, 2, 3]);
    let second = separate_context();
    assert_eq!(run(store.cast()), [0, 1, 2, 3]);
    // SAFETY: handles and places are valid; stale ones are refused.
    unsafe {
        let (mut in_second, mut in_first) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(sys::cuKernelGetFunction(&mut in_second, store) as i32, 0);
        assert_eq!(run(in_second), [0, 1, 2, 3]);
        first.bind_to_thread().unwrap();
        assert_eq!(sys::cuKernelGetFunction(&mut in_first, store) as i32, 0);
        assert_ne!(in_first, in_second);
        let (mut address, mut bytes) = (0, 0);
        let global = sys::cuLibraryGetGlobal(&mut address, &mut bytes, library, c"answer".as_ptr());
        assert_eq!((global as i32, bytes), (0, 4));
        let mut answer = [0u32];
        result::memcpy_dtoh_sync(&mut answer, address).unwrap();
        assert_eq!(answer, [42]);
        assert_eq!(sys::cuLibraryUnload(library) as i32, 0);
        assert_eq!(sys::cuLibraryUnload(library) as i32, INVALID_HANDLE);
        assert_eq!(sys::cuKernelGetFunction(&mut in_first, store) as i32, INVALID_HANDLE);
    }
    drop(second);
}

#[test]
fn kernels_are_listed_and_tell_about_themselves() {
    context();
    let (_, library) = load(SAXPY);
    let (_, saxpy) = kernel(library, c"saxpy");
    // SAFETY: handles and places are valid.
    unsafe {
        let (mut count, mut listed) = (0, [ptr::null_mut(); 2]);
        assert_eq!(sys::cuLibraryGetKernelCount(&mut count, library) as i32, 0);
        assert_eq!(sys::cuLibraryEnumerateKernels(listed.as_mut_ptr(), 2, library) as i32, 0);
        assert_eq!((count, listed), (1, [saxpy, ptr::null_mut()]));
        let (mut name, mut owner) = (ptr::null(), ptr::null_mut());
        assert_eq!(sys::cuKernelGetName(&mut name, saxpy) as i32, 0);
        assert_eq!(CStr::from_ptr(name), c"saxpy");
        assert_eq!(sys::cuKernelGetLibrary(&mut owner, saxpy) as i32, 0);
        assert_eq!(owner, library);
        let (mut offset, mut bytes) = (0, 0);
        assert_eq!(sys::cuKernelGetParamInfo(saxpy, 3, &mut offset, &mut bytes) as i32, 0);
        // A float, two pointers, which are aligned to eight bytes, and a number.
        assert_eq!((offset, bytes), (24, 4));
        assert_eq!(sys::cuKernelGetParamInfo(saxpy, 4, &mut offset, &mut bytes) as i32, INVALID_VALUE);
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let (mut value, mut function) = (0, ptr::null_mut());
        assert_eq!(sys::cuKernelSetAttribute(attribute, 70_000, saxpy, 0) as i32, 0);
        assert_eq!(sys::cuKernelGetAttribute(&mut value, attribute, saxpy, 0) as i32, 0);
        assert_eq!(value, 70_000);
        let other = separate_context();
        assert_eq!(sys::cuKernelGetFunction(&mut function, saxpy) as i32, 0);
        assert_eq!(result::function::get_function_attribute(function, attribute), Ok(70_000));
        assert_eq!(sys::cuLibraryUnload(library) as i32, 0);
        drop(other);
    }
}

#[test]
fn a_library_is_checked_when_it_is_loaded() {
    context();
    assert_eq!(load(UNKNOWN_OPCODE).0, INVALID_PTX);
    assert_eq!(load("\x7fELF").0, NO_BINARY);
}

#[test]
fn one_program_goes_through_the_linker() {
    context();
    let mut log = vec![0u8; 4096];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    // SAFETY: images, options and places outlive the linking.
    unsafe {
        let mut state = ptr::null_mut();
        assert_eq!(sys::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) as i32, 0);
        let add = |kind, text: &str| {
            let (data, none) = (text.as_ptr().cast_mut().cast(), ptr::null_mut());
            sys::cuLinkAddData_v2(state, kind, data, text.len(), c"text".as_ptr(), 0, none, ptr::null_mut()) as i32
        };
        use sys::CUjitInputType as Input;
        let (mut image, mut bytes) = (ptr::null_mut(), 0);
        assert_eq!(sys::cuLinkComplete(state, &mut image, &mut bytes) as i32, INVALID_VALUE);
        assert_eq!(add(Input::CU_JIT_INPUT_CUBIN, "\x7fELF"), NO_BINARY);
        assert_eq!(add(Input::CU_JIT_INPUT_LIBRARY, "!<arch>"), NOT_SUPPORTED);
        assert_eq!(add(Input::CU_JIT_INPUT_PTX, UNKNOWN_OPCODE), INVALID_PTX);
        assert!(String::from_utf8_lossy(&log).contains("frobnicate"));
        assert_eq!(add(Input::CU_JIT_INPUT_PTX, STORE), 0);
        assert_eq!(sys::cuLinkComplete(state, &mut image, &mut bytes) as i32, 0);
        assert!(bytes > STORE.len());
        let module = result::module::load_data(image).unwrap();
        assert_eq!(run(result::module::get_function(module, c"store".to_owned()).unwrap()), [0, 1, 2, 3]);
        assert_eq!(sys::cuLinkDestroy(state) as i32, 0);
        assert_eq!(sys::cuLinkDestroy(state) as i32, INVALID_HANDLE);
        result::module::unload(module).unwrap();
    }
}
