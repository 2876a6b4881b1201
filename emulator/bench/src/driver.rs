//! The few driver functions that a launch needs, from the library as programs load it.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::path::Path;
use std::ptr;

use anyhow::{Context as _, ensure};

type Pointer = *mut c_void;

/// The opened library with one kernel, ready to launch.
pub struct Driver {
    launch: LaunchKernel,
    synchronize: unsafe extern "C" fn() -> i32,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> i32,
    function: Pointer,
    /// Keeps the library loaded, and so the functions above valid.
    _library: libloading::Library,
}

type LaunchKernel = unsafe extern "C" fn(
    Pointer,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Pointer,
    *mut Pointer,
    *mut Pointer,
) -> i32;

fn check(what: &str, code: i32) -> anyhow::Result<()> {
    ensure!(code == 0, "{what} answered {code}");
    Ok(())
}

impl Driver {
    /// Opens the library, makes the first device's context current, and loads `kernel` of `ptx`.
    pub fn open(path: &Path, ptx: &str, kernel: &CStr) -> anyhow::Result<Driver> {
        let image = CString::new(ptx).context("a PTX text has no NUL inside")?;
        // SAFETY: the library is the workspace's own; the functions have the types of CUDA's headers, and every pointer
        // points to a live place of the type that the function writes or reads.
        unsafe {
            let library = libloading::Library::new(path)
                .with_context(|| format!("failed to load the emulator {}", path.display()))?;
            let init: unsafe extern "C" fn(c_uint) -> i32 = *library.get(b"cuInit")?;
            let retain: unsafe extern "C" fn(*mut Pointer, i32) -> i32 = *library.get(b"cuDevicePrimaryCtxRetain")?;
            let set: unsafe extern "C" fn(Pointer) -> i32 = *library.get(b"cuCtxSetCurrent")?;
            let load: unsafe extern "C" fn(*mut Pointer, *const c_char) -> i32 = *library.get(b"cuModuleLoadData")?;
            let find: unsafe extern "C" fn(*mut Pointer, Pointer, *const c_char) -> i32 =
                *library.get(b"cuModuleGetFunction")?;
            let (mut context, mut module, mut function) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            check("cuInit", init(0))?;
            check("cuDevicePrimaryCtxRetain", retain(&raw mut context, 0))?;
            check("cuCtxSetCurrent", set(context))?;
            check("cuModuleLoadData", load(&raw mut module, image.as_ptr()))?;
            check("cuModuleGetFunction", find(&raw mut function, module, kernel.as_ptr()))?;
            let launch = *library.get(b"cuLaunchKernel")?;
            let synchronize = *library.get(b"cuCtxSynchronize")?;
            let alloc = *library.get(b"cuMemAlloc_v2")?;
            Ok(Driver { launch, synchronize, alloc, function, _library: library })
        }
    }

    /// Allocates device memory, which is never freed.
    pub fn alloc(&self, bytes: usize) -> anyhow::Result<u64> {
        let mut address = 0;
        // SAFETY: the function fills a place of this type.
        check("cuMemAlloc_v2", unsafe { (self.alloc)(&raw mut address, bytes) })?;
        Ok(address)
    }

    /// Launches the kernel with one warp, and waits for its end.
    ///
    /// # Safety
    /// There is a pointer for each of the kernel's parameters, to a value of its type.
    pub unsafe fn launch_warp(&self, arguments: &mut [Pointer]) -> anyhow::Result<()> {
        // SAFETY: the caller vouches for the arguments; the default stream is null.
        unsafe {
            let none = ptr::null_mut();
            let code =
                (self.launch)(self.function, 1, 1, 1, 32, 1, 1, 0, none, arguments.as_mut_ptr(), ptr::null_mut());
            check("cuLaunchKernel", code)?;
            check("cuCtxSynchronize", (self.synchronize)())
        }
    }
}
