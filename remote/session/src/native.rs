//! The driver of this process: its functions by name, and those that a session itself calls.

use std::{
    ffi::{CString, c_char, c_void},
    path::Path,
    sync::Mutex,
};

use gpufleet_remote::{argument::Fault, scope::Scope};
use gpufleet_surface::status::Status;
use libloading::Library;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMING: u32 = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: i32 = 600;
/// Bytes of printed text that are taken at a time.
const PRINTED_BYTES: usize = 64 << 10;

/// Why there is no driver.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    #[error("the driver can't be loaded from {path}: {source}")]
    Load { path: String, source: libloading::Error },
    #[error("the driver has no {0}")]
    Missing(&'static str),
    #[error("{function} failed with the code {code}")]
    Failed { function: &'static str, code: i32 },
}

type Code = i32;

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)+) => {
        /// The functions that a session itself calls.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Calls {
            $(pub(crate) $name: extern "C" fn($($argument),*) -> Code,)+
        }

        impl Calls {
            fn find(library: &Library) -> Result<Self, NativeError> {
                Ok(Self {
                    // SAFETY: these are the functions' types in the C headers.
                    $($name: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| NativeError::Missing($symbol))?,)+
                })
            }
        }
    };
}

functions! {
    init: "cuInit" (u32);
    version: "cuDriverGetVersion" (*mut i32);
    device_name: "cuDeviceGetName" (*mut c_char, i32, i32);
    device_uuid: "cuDeviceGetUuid" (*mut [u8; 16], i32);
    device_bus_id: "cuDeviceGetPCIBusId" (*mut c_char, i32, i32);
    device_memory: "cuDeviceTotalMem_v2" (*mut usize, i32);
    device_attribute: "cuDeviceGetAttribute" (*mut i32, i32, i32);
    set_context: "cuCtxSetCurrent" (u64);
    pop_context: "cuCtxPopCurrent_v2" (*mut u64);
    primary_state: "cuDevicePrimaryCtxGetState" (i32, *mut u32, *mut i32);
    is_capturing: "cuStreamIsCapturing" (u64, *mut u32);
    synchronize: "cuStreamSynchronize" (u64);
    create_event: "cuEventCreate" (*mut u64, u32);
    record_event: "cuEventRecord" (u64, u64);
    query_event: "cuEventQuery" (u64);
    destroy_event: "cuEventDestroy_v2" (u64);
    function_parameter: "cuFuncGetParamInfo" (u64, usize, *mut usize, *mut usize);
    function_attribute: "cuFuncGetAttribute" (*mut i32, u32, u64);
    kernel_attribute: "cuKernelGetAttribute" (*mut i32, u32, u64, i32);
    kernel_parameter: "cuKernelGetParamInfo" (u64, usize, *mut usize, *mut usize);
}

/// A driver.
#[derive(Debug)]
pub struct Native {
    library: Library,
    pub(crate) calls: Calls,
    /// `gpufleet_emulator_printf`, if the driver is the emulator.
    printf: Option<extern "C" fn(*mut c_char, usize) -> usize>,
    /// Memory that the driver reads until an event.
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    event: u64,
    _buffers: Vec<Vec<u8>>,
}

impl Native {
    /// Loads a driver and starts it.
    pub fn load(path: &Path) -> Result<Self, NativeError> {
        // SAFETY: drivers may run code when they are loaded; that is what they are for.
        let library = unsafe { Library::new(path) }
            .map_err(|source| NativeError::Load { path: path.display().to_string(), source })?;
        let calls = Calls::find(&library)?;
        // SAFETY: the type of the function in the emulator.
        let printf = unsafe { library.get(b"gpufleet_emulator_printf\0") }.ok().map(|printf| *printf);
        let native = Self { library, calls, printf, kept: Mutex::default() };
        match (native.calls.init)(0) {
            0 => {}
            code => return Err(NativeError::Failed { function: "cuInit", code }),
        }
        // From now on what kernels print is kept for the program.
        native.printed();
        Ok(native)
    }

    pub(crate) fn is_emulated(&self) -> bool {
        self.printf.is_some()
    }

    /// Returns the address of a function, if the driver has it.
    pub(crate) fn address(&self, symbol: &str) -> Option<usize> {
        let symbol = CString::new(symbol).ok()?;
        // SAFETY: the address is called with the type that the table of calls has for the symbol.
        let function = unsafe { self.library.get::<*const c_void>(symbol.as_bytes_with_nul()) };
        function.ok().map(|function| function.expose_provenance())
    }

    /// Refuses copies from and to the program's memory in a captured graph.
    pub(crate) fn before(&self, scope: &mut Scope<'_>) -> Result<(), Fault> {
        let Some(stream) = scope.stream else { return Ok(()) };
        if !scope.reads_memory && !scope.returns_memory && scope.host_call.is_none() {
            return Ok(());
        }
        let mut status = 0;
        (self.calls.is_capturing)(stream, &raw mut status);
        if status == 0 {
            scope.calls_back_once();
            return Ok(());
        }
        // A graph would use the memory of this call whenever it runs.
        if scope.reads_memory || scope.returns_memory { Err(Status::NotSupported.into()) } else { Ok(()) }
    }

    /// Waits for the memory that the answer contains.
    pub(crate) fn after(&self, scope: &Scope<'_>, code: Code) -> Code {
        match scope.stream {
            Some(stream) if code == 0 && scope.returns_memory => (self.calls.synchronize)(stream),
            _ => code,
        }
    }

    /// Keeps memory until the driver has read it.
    pub(crate) fn keep(&self, stream: u64, buffers: Vec<Vec<u8>>) {
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.retain(|Kept { event, .. }| {
            let is_pending = (self.calls.query_event)(*event) == NOT_READY;
            if !is_pending {
                (self.calls.destroy_event)(*event);
            }
            is_pending
        });
        let mut event = 0;
        let made = (self.calls.create_event)(&raw mut event, WITHOUT_TIMING);
        if made == 0 && (self.calls.record_event)(event, stream) == 0 {
            kept.push(Kept { event, _buffers: buffers });
        } else {
            (self.calls.synchronize)(stream);
        }
    }

    /// Takes what kernels printed.
    pub(crate) fn printed(&self) -> Vec<u8> {
        let Some(printf) = self.printf else { return Vec::new() };
        let mut text = Vec::new();
        loop {
            let start = text.len();
            text.resize(start + PRINTED_BYTES, 0);
            let taken = printf(text[start..].as_mut_ptr().cast(), PRINTED_BYTES);
            text.truncate(start + taken);
            if taken == 0 {
                return text;
            }
        }
    }
}
