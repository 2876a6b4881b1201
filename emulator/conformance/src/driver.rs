//! Runs cases on a CUDA driver: any `libcuda`, through cudarc.
//!
//! After a kernel failed, its context returns that failure from every later call until the process ends;
//! [`crate::children`] handles that.

mod image;

use std::{
    ffi::{CString, c_void},
    path::Path,
    ptr::null_mut,
};

use cudarc::driver::{
    result::{self, DriverError},
    sys::{self, CUdevice_attribute, CUjit_option},
};
use libloading::Library;
use thiserror::Error;

use self::image::Bound;
use crate::case::Case;

/// Library to load if no path is given; glibc searches its usual places.
const SYSTEM: &str = "libcuda.so.1";

/// Maximum bytes of a compilation log.
const LOG_BYTES: usize = 4096;

/// Byte that fills the outputs before the kernel runs, so that missing writes are found.
pub const UNWRITTEN: u8 = 0xa5;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("failed to open {library}: {source}")]
    Library { library: String, source: libloading::Error },
    #[error("failed to start the driver: {0}")]
    Driver(#[from] DriverError),
}

/// The reason why a case has no results.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RunError {
    /// The driver refused the text; the context is still valid.
    #[error("failed to load: {0}")]
    Load(String),
    /// The driver failed otherwise; the context may be lost.
    #[error("failed to run: status {0}")]
    Run(u32),
}

/// The first device's primary context, current on this thread.
#[derive(Debug)]
pub struct Driver {
    name: String,
    capability: u32,
}

impl Driver {
    /// Opens a driver, once per process. `library` is its path; without it the system's driver is opened.
    pub fn open(library: Option<&Path>) -> Result<Driver, OpenError> {
        let path = library.unwrap_or(Path::new(SYSTEM));
        // SAFETY: the user names a CUDA driver; loading one runs its initialisers, as in any CUDA program.
        let opened = unsafe { Library::new(path) };
        let opened = opened.map_err(|source| OpenError::Library { library: path.display().to_string(), source })?;
        // Kept loaded before cudarc's first call, so that the loader resolves cudarc's own bare name with this library.
        std::mem::forget(opened);
        result::init()?;
        let device = result::device::get(0)?;
        // SAFETY: the device is the driver's own, and the context is kept until the process ends.
        let (context, major, minor) = unsafe {
            (
                result::primary_ctx::retain(device)?,
                result::device::get_attribute(
                    device,
                    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                )?,
                result::device::get_attribute(
                    device,
                    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                )?,
            )
        };
        // SAFETY: the context was made above.
        unsafe { result::ctx::set_current(context)? };
        Ok(Driver { name: result::device::get_name(device)?, capability: (major * 10 + minor) as u32 })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the compute capability, such as 90 for 9.0.
    pub fn capability(&self) -> u32 {
        self.capability
    }

    /// Loads a text and unloads it. A driver may load what it can't run and refuse the launch, so the kernel is
    /// launched too, without threads.
    pub fn loads(&self, ptx: &str) -> Result<(), RunError> {
        let module = load(ptx)?;
        let name = CString::new("test").expect("the name holds no zero");
        // SAFETY: a block without threads is refused, so that the kernel is not run and needs no arguments.
        let launched = unsafe {
            let function = result::module::get_function(module, name).map_err(failed)?;
            result::launch_kernel(function, (1, 1, 1), (0, 1, 1), 0, null_mut(), &mut [])
        };
        if launched.is_err_and(|error| error.0 == sys::CUresult::CUDA_ERROR_NOT_SUPPORTED) {
            return Err(RunError::Load("the driver loads it and refuses to launch it".to_owned()));
        }
        // SAFETY: the module was loaded just now and nothing uses it.
        unsafe { result::module::unload(module) }.map_err(failed)
    }

    /// Runs a case; returns the words of `out`, row by row.
    pub fn run(&self, case: &Case) -> Result<Vec<u64>, RunError> {
        let module = load(&case.ptx)?;
        let input = case.input_words();
        let mut output = vec![0u64; case.output_bytes() / 8 * case.rows.len()];
        // SAFETY: both buffers are as large as the case says its kernel needs, and live until it has ended.
        unsafe {
            let name = CString::new("test").expect("the name holds no zero");
            let function = result::module::get_function(module, name).map_err(failed)?;
            let mut on_device = result::malloc_sync(size_of_val(input.as_slice())).map_err(failed)?;
            let mut results = result::malloc_sync(size_of_val(output.as_slice())).map_err(failed)?;
            result::memcpy_htod_sync(on_device, &input).map_err(failed)?;
            result::memset_d8_sync(results, UNWRITTEN, size_of_val(output.as_slice())).map_err(failed)?;
            let bound = case.texture.as_ref().map(Bound::new).transpose().map_err(failed)?;
            let mut handle = bound.as_ref().map_or(0, Bound::handle);
            let mut arguments =
                [(&raw mut on_device).cast(), (&raw mut results).cast::<c_void>(), (&raw mut handle).cast()];
            let arguments = &mut arguments[..if bound.is_some() { 3 } else { 2 }];
            let threads = (case.rows.len() as u32, 1, 1);
            result::launch_kernel(function, (1, 1, 1), threads, 0, null_mut(), arguments).map_err(failed)?;
            result::ctx::synchronize().map_err(failed)?;
            result::memcpy_dtoh_sync(&mut output, results).map_err(failed)?;
            result::free_sync(on_device).map_err(failed)?;
            result::free_sync(results).map_err(failed)?;
            result::module::unload(module).map_err(failed)?;
        }
        Ok(output)
    }
}

fn failed(error: DriverError) -> RunError {
    RunError::Run(error.0 as u32)
}

fn load(ptx: &str) -> Result<sys::CUmodule, RunError> {
    let text = CString::new(ptx).map_err(|_| RunError::Load("the text holds a zero".to_owned()))?;
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = null_mut();
    // SAFETY: the text ends in a zero, and the log has the size that is passed.
    let loaded = unsafe {
        sys::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    };
    loaded.result().map_err(|error| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
        let message = String::from_utf8_lossy(&log[..end]).split_whitespace().collect::<Vec<_>>().join(" ");
        RunError::Load(if message.is_empty() { format!("status {}", error.0 as u32) } else { message })
    })?;
    Ok(module)
}
