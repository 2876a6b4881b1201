//! Modules on the device and their kernels. If loading fails, the error includes the JIT's log.

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use cudarc::driver::{
    result,
    sys::{self, CUfunction_attribute_enum as FunctionAttribute, CUjit_option as JitOption, CUresult},
};
use gpufleet_schema::{Failure, FailureCode, Verdict};

use super::{
    error::{CudaError, called},
    geometry::KernelLimits,
    library::DriverLibrary,
};
use crate::{
    executor::{
        cubin,
        ptx::{self, Entry},
    },
    ipc::message::Image,
};

/// Size of the buffer for the JIT's log, in bytes. The log's first lines contain the error.
const LOG_BYTES: usize = 64 << 10;
/// Maximum static and dynamic shared memory of a block together, on every device, without opting in to more; in bytes.
const SHARED_BYTES_WITHOUT_OPTING_IN: u32 = 48 << 10;

/// A module on the device. Dropping it unloads it, so it must not be dropped while its kernels run.
#[derive(Debug)]
pub(crate) struct Module {
    handle: Handle<sys::CUmodule>,
    entries: Arc<[Entry]>,
    functions: Mutex<HashMap<String, Arc<Function>>>,
    loaded: Loaded,
}

/// Counts the bytes of a loaded module in a total as long as it lives.
#[derive(Debug)]
pub(crate) struct Loaded {
    bytes: u64,
    all: Arc<AtomicU64>,
}

/// A kernel, ready to launch.
#[derive(Debug)]
pub(crate) struct Function {
    handle: Handle<sys::CUfunction>,
    pub limits: KernelLimits,
    /// The local memory of one thread, in bytes.
    pub local_bytes: u32,
    /// The parameters, if the driver or the PTX declares them.
    pub params: Option<Vec<Param>>,
    /// The dynamic shared memory that was opted in to, in bytes. It only grows, so that launches of other streams keep enough.
    shared_bytes: Mutex<u32>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Param {
    pub bytes: usize,
    /// The parameter's offset in bytes, if the driver reports it.
    pub offset: Option<usize>,
}

/// A handle from the driver.
#[derive(Debug, Clone, Copy)]
struct Handle<T>(T);

// SAFETY: the driver's handles may be used from every thread on which the context is current.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: the handle is never written to.
unsafe impl<T> Sync for Handle<T> {}

/// Why a program or one of its kernels can't be used.
#[derive(Debug)]
pub(crate) enum LoadError {
    Failed(Failure),
    Cuda(CudaError),
}

impl From<CudaError> for LoadError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl Loaded {
    pub(crate) fn new(bytes: u64, all: &Arc<AtomicU64>) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, all: Arc::clone(all) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Module {
    /// Loads an image. `entries` are the kernels that its text declares. `loaded` is called once the module is loaded, to count its bytes.
    pub(crate) fn load(
        image: &Image,
        entries: Arc<[Entry]>,
        loaded: impl FnOnce() -> Loaded,
    ) -> Result<Self, LoadError> {
        let handle = match image {
            Image::Ptx(text) => load_ptx(text)?,
            Image::Cubin(bytes) => load_cubin(bytes)?,
            Image::Both { cubin, ptx } => match load_cubin(cubin).and_then(|handle| try_first(handle, &entries)) {
                Err(LoadError::Failed(failure)) => {
                    eprintln!("the driver rejects the cubin, loading the PTX instead: {}", failure.message);
                    load_ptx(ptx)?
                }
                loaded => loaded?,
            },
        };
        Ok(Self { handle: Handle(handle), entries, functions: Mutex::default(), loaded: loaded() })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.loaded.bytes
    }

    /// Returns a kernel that was looked up before.
    pub(crate) fn known(&self, entry: &str) -> Option<Arc<Function>> {
        self.functions.try_lock().ok()?.get(entry).cloned()
    }

    pub(crate) fn function(&self, library: &DriverLibrary, entry: &str) -> Result<Arc<Function>, LoadError> {
        let mut functions = self.functions();
        if let Some(function) = functions.get(entry) {
            return Ok(Arc::clone(function));
        }
        let function = Arc::new(self.resolve(library, entry)?);
        functions.insert(entry.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    fn functions(&self) -> MutexGuard<'_, HashMap<String, Arc<Function>>> {
        self.functions.lock().expect("no thread panics while holding the functions")
    }

    fn resolve(&self, library: &DriverLibrary, entry: &str) -> Result<Function, LoadError> {
        let name = CString::new(entry).map_err(|_| self.no_entry(entry))?;
        // SAFETY: the module stays loaded while `self` lives.
        let found = called("cuModuleGetFunction", unsafe { result::module::get_function(self.handle.0, name) });
        let handle = match found {
            Ok(handle) => handle,
            Err(error) if error.result == CUresult::CUDA_ERROR_NOT_FOUND => return Err(self.no_entry(entry)),
            // With lazy loading the driver loads a kernel's code only now.
            Err(error) => return Err(not_loaded(error, &[])),
        };
        let attribute = |attribute| {
            // SAFETY: the function was just found.
            let value = unsafe { result::function::get_function_attribute(handle, attribute) };
            called("cuFuncGetAttribute", value).map(|value| u32::try_from(value).unwrap_or(0))
        };
        let limits = KernelLimits {
            threads_per_block: attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared_bytes: attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        };
        let local_bytes = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        // The driver's own list takes precedence, because the driver reads as many arguments as it lists.
        let declared = || {
            let sizes = ptx::params_of(&self.entries, entry)?;
            Some(sizes.iter().map(|bytes| Param { bytes: *bytes, offset: None }).collect())
        };
        let params = driver_params(library, handle).or_else(declared);
        Ok(Function { handle: Handle(handle), limits, local_bytes, params, shared_bytes: Mutex::default() })
    }

    fn no_entry(&self, entry: &str) -> LoadError {
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        let has = match names.len() {
            0 => String::new(),
            _ => format!("; its entries are {}", names.join(", ")),
        };
        let hint = if names.iter().any(|name| name.starts_with("_Z")) {
            " (a name that begins with _Z is mangled: declare the kernel extern \"C\", or in CUDA C++ launch the entry ::NAME)"
        } else {
            ""
        };
        LoadError::Failed(Failure::new(
            Verdict::User,
            FailureCode::LaunchError,
            format!("the module has no entry {entry:?}{has}{hint}"),
        ))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module is loaded, and none of its kernels run, because jobs hold it while they run.
        if let Err(error) = called("cuModuleUnload", unsafe { result::module::unload(self.handle.0) }) {
            eprintln!("could not unload a module: {error}");
        }
    }
}

impl Function {
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.handle.0
    }

    /// Returns the block size with the highest occupancy.
    pub(crate) fn occupancy(&self, shared_bytes: u32) -> Result<u32, CudaError> {
        // SAFETY: the function is loaded. Without a callback, the shared memory is the same for every block size; zero means no limit.
        let suggested =
            unsafe { result::occupancy::max_potential_block_size(self.handle.0, None, shared_bytes as usize, 0) };
        called("cuOccupancyMaxPotentialBlockSize", suggested).map(|(_, block)| u32::try_from(block).unwrap_or(1))
    }

    /// Opts in to dynamic shared memory that exceeds the default maximum of a block.
    pub(crate) fn opt_in(&self, shared_bytes: u32) -> Result<(), CudaError> {
        let mut granted = self.shared_bytes.lock().expect("no thread panics while holding it");
        let without = SHARED_BYTES_WITHOUT_OPTING_IN.saturating_sub(self.limits.static_shared_bytes);
        if shared_bytes <= without.max(*granted) {
            return Ok(());
        }
        let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let set = unsafe { result::function::set_function_attribute(self.handle.0, attribute, shared_bytes as i32) };
        called("cuFuncSetAttribute", set)?;
        *granted = shared_bytes;
        Ok(())
    }
}

/// Returns the parameters of a kernel as reported by the driver, which is possible since CUDA 12.4. With an older driver, only the PTX
/// declares them. If that is missing or ambiguous, [`super::checked_launch`] refuses the kernel, because a launch with too few arguments
/// would read past the end of the list.
fn driver_params(library: &DriverLibrary, function: sys::CUfunction) -> Option<Vec<Param>> {
    if !library.has("cuFuncGetParamInfo") {
        return None;
    }
    let mut params = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both numbers are valid places for the results.
        let answer = unsafe { sys::cuFuncGetParamInfo(function, params.len(), &raw mut offset, &raw mut size) };
        match answer {
            CUresult::CUDA_SUCCESS => params.push(Param { bytes: size, offset: Some(offset) }),
            // The index is past the last parameter.
            CUresult::CUDA_ERROR_INVALID_VALUE => return Some(params),
            _ => return None,
        }
    }
}

fn load_error(message: &str, log: Option<String>) -> LoadError {
    let line = log.as_deref().and_then(ptx::blamed_line);
    let failure = Failure::new(Verdict::User, FailureCode::LoadError, message).at_line(line);
    LoadError::Failed(match log {
        Some(log) => failure.with_detail(log),
        None => failure,
    })
}

fn load_ptx(text: &str) -> Result<sys::CUmodule, LoadError> {
    let text = CString::new(text).map_err(|_| load_error("the PTX contains a NUL character", None))?;
    jit(text.as_ptr().cast())
}

fn load_cubin(bytes: &[u8]) -> Result<sys::CUmodule, LoadError> {
    cubin::check(bytes).map_err(|problem| load_error(&format!("the cubin is invalid: {problem}"), None))?;
    jit(bytes.as_ptr().cast())
}

/// Loads an image, with a buffer for the JIT's log. The image must have a defined end: a text with NUL, or a cubin with a checked header.
fn jit(image: *const c_void) -> Result<sys::CUmodule, LoadError> {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver takes the second value as a number, in place of a pointer.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
    let mut module = std::ptr::null_mut();
    // SAFETY: the image ends as its kind requires, there are as many options and values as stated, and the buffer is live.
    let loaded = unsafe {
        sys::cuModuleLoadDataEx(&raw mut module, image, options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr())
    };
    match called("cuModuleLoadDataEx", loaded.result()) {
        Ok(()) => Ok(module),
        Err(error) => Err(not_loaded(error, &log)),
    }
}

/// Looks up the first kernel, because with lazy loading the driver reports an invalid image only at its first use.
fn try_first(handle: sys::CUmodule, entries: &[Entry]) -> Result<sys::CUmodule, LoadError> {
    let Some(name) = entries.first().and_then(|entry| CString::new(entry.name.as_str()).ok()) else {
        return Ok(handle);
    };
    // SAFETY: the module was just loaded.
    match called("cuModuleGetFunction", unsafe { result::module::get_function(handle, name) }) {
        Ok(_) => Ok(handle),
        Err(error) => {
            // SAFETY: nothing else uses the module yet.
            called("cuModuleUnload", unsafe { result::module::unload(handle) })?;
            Err(not_loaded(error, &[]))
        }
    }
}

fn not_loaded(error: CudaError, log: &[u8]) -> LoadError {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
    match error.result {
        CUresult::CUDA_ERROR_INVALID_VALUE
        | CUresult::CUDA_ERROR_INVALID_IMAGE
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_INVALID_PTX
        | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | CUresult::CUDA_ERROR_INVALID_SOURCE
        | CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
        | CUresult::CUDA_ERROR_NOT_FOUND
        | CUresult::CUDA_ERROR_NOT_SUPPORTED => {
            let first = log.lines().find(|line| !line.trim().is_empty()).unwrap_or(&error.text);
            load_error(&format!("{}: {}", error.name, first.trim()), Some(log.clone()).filter(|log| !log.is_empty()))
        }
        _ => LoadError::Cuda(error),
    }
}
