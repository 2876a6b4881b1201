//! Fat binaries: which of their programs is loaded, and their errors.

mod writer;

use std::{
    ffi::{CString, c_void},
    ptr,
};

use cudarc::driver::{result, sys};
use proptest::prelude::{any, prop, proptest};

use crate::{
    platform::{assert_passed, context, in_child, is_child},
    programs::UNKNOWN_OPCODE,
};
use writer::{Compression, Program, container};

const INVALID_IMAGE: i32 = 200;
const NO_BINARY_FOR_GPU: i32 = 209;
const INVALID_PTX: i32 = 218;
const WRAPPER_MAGIC: u32 = 0x4662_43B1;

/// Returns a kernel whose name contains its target.
fn text(target: &str) -> String {
    // Repeated text, which compression finds.
    let comment = "// a line that is there more than once\n".repeat(40);
    format!(
        "{comment}.version 8.0\n.target sm_{target}\n.address_size 64\n.visible .entry for_{target}() {{\nret;\n}}\n"
    )
}

fn ptx(architecture: u32, compression: Compression) -> Program {
    Program::ptx(architecture, &text(&architecture.to_string()), compression)
}

/// Loads a container with a log buffer; returns the code, the error log and the module.
fn load(image: *const c_void) -> (i32, String, sys::CUmodule) {
    let mut log = vec![0u8; 4096];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let mut module = ptr::null_mut();
    // SAFETY: the callers' images are whole; options, values and the log outlive the call.
    let status =
        unsafe { sys::cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr()) as i32 };
    log.truncate(if status == 0 { 0 } else { values[1].addr() });
    (status, String::from_utf8(log).unwrap().trim_end_matches('\0').to_owned(), module)
}

/// Returns the target of the program that is loaded.
fn loaded(programs: &[Program]) -> String {
    let image = container(programs);
    let (status, log, module) = load(image.as_ptr().cast());
    assert_eq!(status, 0, "{log}");
    target(module)
}

fn target(module: sys::CUmodule) -> String {
    let has = |target: &&str| {
        let name = CString::new(format!("for_{target}")).unwrap();
        // SAFETY: the module is loaded.
        unsafe { result::module::get_function(module, name) }.is_ok()
    };
    ["50", "75", "80", "90", "90a"].iter().find(|target| has(target)).unwrap().to_string()
}

fn refused(programs: &[Program]) -> (i32, String) {
    let image = container(programs);
    let (status, log, _) = load(image.as_ptr().cast());
    (status, log)
}

#[test]
fn the_newest_text_for_the_device_is_loaded() {
    context();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let [old, middle, own, later] = [50, 75, 80, 90].map(|architecture| ptx(architecture, compression));
        let code = Program::machine_code(80);
        assert_eq!(loaded(&[code.clone(), old.clone(), own, later.clone(), middle.clone()]), "80", "{compression:?}");
        assert_eq!(loaded(&[old, middle, later, code]), "75", "{compression:?}");
    }
}

#[test]
fn a_text_for_exactly_another_device_is_passed_over() {
    if !is_child() {
        let device = [("GPUFLEET_EMULATOR_COMPUTE_CAPABILITY", "10.0")];
        return assert_passed(&in_child("fat_binaries::a_text_for_exactly_another_device_is_passed_over", &device));
    }
    context();
    let exact = Program::ptx(90, &text("90a"), Compression::Lz4);
    assert_eq!(loaded(&[exact.clone(), ptx(75, Compression::Lz4)]), "75");
    assert_eq!(refused(&[exact]).0, NO_BINARY_FOR_GPU);
}

#[test]
fn a_container_without_a_text_for_the_device_is_refused_with_what_it_has() {
    context();
    let code = [Program::machine_code(80), Program::machine_code(90)];
    let (status, log) = refused(&code);
    assert_eq!(status, NO_BINARY_FOR_GPU);
    assert!(log.contains("no PTX for sm_80; it has machine code for sm_80, machine code for sm_90"), "{log}");
    let (status, log) = refused(&[ptx(90, Compression::Zstd)]);
    assert_eq!(status, NO_BINARY_FOR_GPU);
    assert!(log.contains("no PTX for sm_80; it has PTX for sm_90"), "{log}");
    assert_eq!(refused(&[]).0, NO_BINARY_FOR_GPU);
}

#[test]
fn what_is_wrong_with_the_newest_text_is_told() {
    context();
    let bad = Program::ptx(80, UNKNOWN_OPCODE, Compression::Lz4);
    let (status, log) = refused(&[ptx(75, Compression::Lz4), bad]);
    assert_eq!(status, INVALID_PTX);
    assert!(log.contains("line 9") && log.contains("frobnicate"), "{log}");
}

#[test]
fn a_text_may_be_without_its_version() {
    context();
    let moved = |text: &str| Program::ptx(80, &text.replacen(".version 8.0", "", 1), Compression::Zstd);
    assert_eq!(loaded(&[moved(&text("80"))]), "80");
    let (_, log) = refused(&[moved(UNKNOWN_OPCODE)]);
    assert!(log.contains("line 9") && log.contains("frobnicate"), "{log}");
}

#[test]
fn headers_may_be_longer() {
    context();
    let mut program = ptx(80, Compression::Lz4);
    program.more_header = b"a name and options\0\0\0\0\0\0".to_vec();
    assert_eq!(loaded(&[program, ptx(75, Compression::None)]), "80");
}

#[test]
fn compilers_wrap_containers() {
    #[repr(C)]
    struct Wrapper(u32, u32, *const u8, *const u8);
    context();
    let image = container(&[ptx(80, Compression::Lz4)]);
    let load = |magic, version, image| {
        let wrapper = Wrapper(magic, version, image, ptr::null());
        let (status, _, module) = load(ptr::from_ref(&wrapper).cast());
        (status, module)
    };
    let (status, module) = load(WRAPPER_MAGIC, 1, image.as_ptr());
    assert_eq!((status, target(module).as_str()), (0, "80"));
    assert_eq!(load(WRAPPER_MAGIC, 7, image.as_ptr()).0, INVALID_IMAGE);
    assert_eq!(load(WRAPPER_MAGIC, 1, ptr::null()).0, INVALID_IMAGE);
    assert_eq!(load(WRAPPER_MAGIC, 1, c"no container".as_ptr().cast()).0, INVALID_IMAGE);
}

#[test]
fn every_call_that_loads_takes_a_container() {
    context();
    let image = container(&[ptx(80, Compression::Zstd)]);
    let address = image.as_ptr().cast::<c_void>();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.fatbin");
    std::fs::write(&path, &image).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let (none, no_values) = (ptr::null_mut(), ptr::null_mut());
    let (mut module, mut library, mut kernel) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: images and results outlive the calls; there are no options.
    unsafe {
        assert_eq!(sys::cuModuleLoadFatBinary(&mut module, address) as i32, 0);
        assert_eq!(target(module), "80");
        assert_eq!(sys::cuModuleLoadData(&mut module, address) as i32, 0);
        assert_eq!(target(module), "80");
        assert_eq!(sys::cuModuleLoad(&mut module, path.as_ptr()) as i32, 0);
        assert_eq!(target(module), "80");
        assert_eq!(
            sys::cuLibraryLoadData(&mut library, address, none, no_values, 0, ptr::null_mut(), no_values, 0) as i32,
            0
        );
        assert_eq!(sys::cuLibraryGetKernel(&mut kernel, library, c"for_80".as_ptr()) as i32, 0);
        assert_eq!(sys::cuLibraryGetModule(&mut module, library) as i32, 0);
        assert_eq!(target(module), "80");
        assert_eq!(sys::cuLibraryUnload(library) as i32, 0);
    }
    let (status, module) = link(&image);
    assert_eq!((status, target(module).as_str()), (0, "80"));
    assert_eq!(link(&container(&[Program::machine_code(80)])).0, NO_BINARY_FOR_GPU);
}

/// Links a container of this size and loads the result.
fn link(image: &[u8]) -> (i32, sys::CUmodule) {
    let (none, no_values) = (ptr::null_mut(), ptr::null_mut());
    let (mut state, mut linked, mut module) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let kind = sys::CUjitInputType::CU_JIT_INPUT_FATBINARY;
    // SAFETY: the image is not written to, and has the size that is passed; results have places.
    unsafe {
        assert_eq!(sys::cuLinkCreate_v2(0, none, no_values, &mut state) as i32, 0);
        let (data, bytes) = (image.as_ptr().cast_mut().cast(), image.len());
        let added = sys::cuLinkAddData_v2(state, kind, data, bytes, ptr::null(), 0, none, no_values) as i32;
        if added == 0 {
            assert_eq!(sys::cuLinkComplete(state, &mut linked, ptr::null_mut()) as i32, 0);
            assert_eq!(sys::cuModuleLoadData(&mut module, linked) as i32, 0);
        }
        assert_eq!(sys::cuLinkDestroy(state) as i32, 0);
        (added, module)
    }
}

#[test]
fn damaged_containers_are_refused() {
    context();
    let whole = container(&[ptx(80, Compression::Lz4)]);
    for bytes in [0, 4, 15, 16, 40, 79, 80, whole.len() - 1] {
        assert_eq!(link(&whole[..bytes]).0, INVALID_IMAGE, "{bytes} bytes");
    }
    assert_eq!(link(text("80").as_bytes()).0, INVALID_IMAGE, "no container");
    let mut huge = ptx(80, Compression::Zstd);
    huge.text_bytes = 1 << 40;
    let (status, log) = refused(&[huge]);
    assert_eq!(status, INVALID_IMAGE);
    assert!(log.contains("1099511627776 bytes when uncompressed"), "{log}");
    let mut longer = ptx(80, Compression::Lz4);
    longer.text_bytes += 1;
    assert_eq!(refused(&[longer]).0, INVALID_IMAGE);
    let mut unknown = ptx(80, Compression::Lz4);
    unknown.flags &= 0xff;
    let (status, log) = refused(&[unknown]);
    assert_eq!(status, INVALID_IMAGE);
    assert!(log.contains("unknown compression"), "{log}");
}

proptest! {
    #[test]
    fn mutated_containers_never_panic(
        is_lz4 in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        context();
        let compression = if is_lz4 { Compression::Lz4 } else { Compression::Zstd };
        let mut image = container(&[ptx(80, compression), Program::machine_code(80)]);
        for (at, byte) in changes {
            *at.get_mut(&mut image) = byte;
        }
        // Some mutations only affect a comment, so the image can be loaded. A panic would return the unknown error.
        assert_ne!(link(&image).0, 999);
    }
}
