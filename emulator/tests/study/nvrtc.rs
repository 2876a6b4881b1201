//! NVRTC, opened by path where `cargo xtask setup` installs it. The worker has its own wrapper, which runs NVRTC in a
//! child process; the sources here are trusted.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

/// Variable with the path of the library or its folder, as for the worker.
const LIBRARY_VARIABLE: &str = "GPUFLEET_NVRTC";
const FILE: &str = "libnvrtc.so.12";

type Program = *mut c_void;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Length = unsafe extern "C" fn(Program, *mut usize) -> c_int;

struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    ptx_bytes: Length,
    ptx: Text,
    log_bytes: Length,
    log: Text,
    includes: Vec<PathBuf>,
    _library: Library,
}

/// Compiles CUDA C; returns the PTX, or the compiler's log.
pub fn compile(source: &str, file: &str, options: &[&str]) -> Result<String, String> {
    static NVRTC: OnceLock<Nvrtc> = OnceLock::new();
    NVRTC.get_or_init(Nvrtc::open).compile(source, file, options)
}

impl Nvrtc {
    fn open() -> Nvrtc {
        let path = locate();
        // SAFETY: NVRTC's initialisers only set up its own tables.
        let library = unsafe { Library::new(&path) };
        let library = library.unwrap_or_else(|error| panic!("NVRTC is needed; run `cargo xtask setup` first: {error}"));
        let includes = include_folders(&path);
        // SAFETY: the types are those of nvrtc.h, and the library is kept beside the pointers, so it outlives them.
        unsafe {
            Nvrtc {
                create: *library.get(b"nvrtcCreateProgram\0").unwrap(),
                compile: *library.get(b"nvrtcCompileProgram\0").unwrap(),
                destroy: *library.get(b"nvrtcDestroyProgram\0").unwrap(),
                ptx_bytes: *library.get(b"nvrtcGetPTXSize\0").unwrap(),
                ptx: *library.get(b"nvrtcGetPTX\0").unwrap(),
                log_bytes: *library.get(b"nvrtcGetProgramLogSize\0").unwrap(),
                log: *library.get(b"nvrtcGetProgramLog\0").unwrap(),
                includes,
                _library: library,
            }
        }
    }

    fn compile(&self, source: &str, file: &str, options: &[&str]) -> Result<String, String> {
        let (source, file) = (CString::new(source).unwrap(), CString::new(file).unwrap());
        let includes = self.includes.iter().map(|folder| format!("--include-path={}", folder.display()));
        let options: Vec<CString> = options
            .iter()
            .map(|option| (*option).to_owned())
            .chain(includes)
            .map(|o| CString::new(o).unwrap())
            .collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        // SAFETY: every pointer is to a live C string or a variable of ours, and no headers are passed.
        unsafe {
            let (none, one) = (ptr::null(), &raw mut program);
            assert_eq!((self.create)(one, source.as_ptr(), file.as_ptr(), 0, none, none), 0);
            let compiled = (self.compile)(program, pointers.len() as c_int, pointers.as_ptr()) == 0;
            let result = match compiled {
                true => Ok(text(program, self.ptx_bytes, self.ptx)),
                false => Err(text(program, self.log_bytes, self.log)),
            };
            assert_eq!((self.destroy)(one), 0);
            result
        }
    }
}

/// # Safety
/// `program` is live, and the functions are the pair for one text of it.
unsafe fn text(program: Program, length: Length, text: Text) -> String {
    let mut bytes = 0;
    // SAFETY: the first call says how many bytes the second writes.
    let mut buffer = unsafe {
        assert_eq!(length(program, &raw mut bytes), 0);
        let mut buffer = vec![0u8; bytes];
        assert_eq!(text(program, buffer.as_mut_ptr().cast()), 0);
        buffer
    };
    assert_eq!(buffer.pop(), Some(0));
    String::from_utf8(buffer).unwrap()
}

fn locate() -> PathBuf {
    let told = env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = told.unwrap_or_else(|| {
        gpufleet_local::setup::compiler_folder().expect("the user has a cache folder").join("nvidia/cuda_nvrtc/lib")
    });
    if path.is_dir() { path.join(FILE) } else { path }
}

/// Returns the include folders of the packages beside the library's.
fn include_folders(library: &Path) -> Vec<PathBuf> {
    let packages = library.ancestors().nth(3).expect("the library lies in `lib` of a package");
    ["cuda_runtime", "cuda_cccl", "cuda_nvcc", "cuda_nvrtc"]
        .iter()
        .map(|package| packages.join(package).join("include"))
        .filter(|folder| folder.is_dir())
        .collect()
}
