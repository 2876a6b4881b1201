//! Loading of modules: logs, variables, and images that are refused.

use std::ffi::{CString, c_void};

use cudarc::{
    driver::{result, sys},
    nvrtc::Ptx,
};

use crate::{
    platform::{code, context},
    programs::{SAXPY, STORE, UNKNOWN_OPCODE},
};

/// Loads an image with log buffers, as the executor does to explain a failure; returns the code and the error log.
fn load_with_log(image: &str, room: usize) -> (i32, String) {
    let image = CString::new(image).unwrap();
    let mut log = vec![0u8; room];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(room)];
    let mut module = std::ptr::null_mut();
    // SAFETY: options, values and the log outlive the call.
    let status = unsafe {
        sys::cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    };
    let filled = values[1].addr();
    let text = String::from_utf8(log[..filled].to_vec()).unwrap();
    (status as i32, text.trim_end_matches('\0').to_owned())
}

#[test]
fn a_program_that_does_not_parse_is_refused_with_its_line() {
    context();
    let (status, log) = load_with_log(UNKNOWN_OPCODE, 4096);
    assert_eq!(status, 218, "{log}");
    assert!(log.contains("line 9") && log.contains("frobnicate"), "{log}");
}

#[test]
fn a_log_is_cut_to_its_buffer() {
    context();
    let (status, log) = load_with_log(UNKNOWN_OPCODE, 8);
    assert_eq!((status, log.len()), (218, 7));
}

#[test]
fn machine_code_and_empty_images_are_refused() {
    context();
    assert_eq!(load_with_log("\x7fELF and so on", 256).0, 209);
    assert_eq!(load_with_log("", 256).0, 200);
    assert_eq!(load_with_log("this is no program", 256).0, 218);
    assert_eq!(code(result::module::load(c"no-such-file.ptx".to_owned())), 301);
}

#[test]
fn a_refused_program_leaves_the_context_usable() {
    let context = context();
    assert_eq!(code(context.load_module(Ptx::from_src(UNKNOWN_OPCODE))), 218);
    context.load_module(Ptx::from_src(SAXPY)).unwrap();
}

#[test]
fn variables_and_functions_are_found_by_name() {
    let context = context();
    let module = context.load_module(Ptx::from_src(STORE)).unwrap();
    assert_eq!(code(module.load_function("nowhere")), 500);
    let function = module.load_function("store").unwrap();
    let threads = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    assert_eq!(function.get_attribute(threads), Ok(1024));
    let (image, mut value) = (CString::new(STORE).unwrap(), [0u32]);
    // SAFETY: the image ends with a NUL, and the variable has four bytes.
    unsafe {
        let handle = result::module::load_data(image.as_ptr().cast()).unwrap();
        let (address, bytes) = result::module::get_global(handle, c"answer".to_owned()).unwrap();
        assert_eq!(bytes, 4);
        result::memcpy_dtoh_sync(&mut value, address).unwrap();
    }
    assert_eq!(value, [42]);
}

#[test]
fn functions_of_an_unloaded_module_are_invalid() {
    let context = context();
    let image = CString::new(STORE).unwrap();
    // SAFETY: the image ends with a NUL; that a stale handle is refused is what is tested.
    unsafe {
        let module = result::module::load_data(image.as_ptr().cast()).unwrap();
        let function = result::module::get_function(module, c"store".to_owned()).unwrap();
        result::module::unload(module).unwrap();
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        assert_eq!(code(result::function::get_function_attribute(function, attribute)), 400);
        assert_eq!(code(result::module::unload(module)), 400);
    }
    context.synchronize().unwrap();
}
