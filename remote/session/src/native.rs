//! The driver of this process: its functions by name, and those that a session itself calls.

use std::{
    ffi::{CString, c_char, c_void},
    path::Path,
    sync::{Mutex, PoisonError},
};

use gpufleet_remote::{argument::Fault, scope::Scope};
use gpufleet_surface::status::Status;
use libloading::Library;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;
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
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode" (*mut u32);
    is_capturing: "cuStreamIsCapturing" (u64, *mut u32);
    synchronize: "cuStreamSynchronize" (u64);
    create_event: "cuEventCreate" (*mut u64, u32);
    record_event: "cuEventRecord" (u64, u64);
    synchronize_event: "cuEventSynchronize" (u64);
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
        Self::start(library)
    }

    /// Starts a driver that was loaded.
    pub fn start(library: Library) -> Result<Self, NativeError> {
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

    /// Reports whether the driver is the emulator.
    pub fn is_emulated(&self) -> bool {
        self.printf.is_some()
    }

    /// Returns the address of a function, if the driver has it.
    pub(crate) fn address(&self, symbol: &str) -> Option<usize> {
        let symbol = CString::new(symbol).ok()?;
        // SAFETY: the address is called with the type that the table of calls has for the symbol.
        let function = unsafe { self.library.get::<*const c_void>(symbol.as_bytes_with_nul()) };
        function.ok().map(|function| function.expose_provenance())
    }

    /// Refuses copies from and to the program's memory in a captured graph, which would use it whenever it runs.
    pub(crate) fn before(&self, scope: &mut Scope<'_>) -> Result<(), Fault> {
        match scope.stream {
            Some(stream) if (scope.reads_memory || scope.returns_memory) && self.is_capturing(stream) => {
                Err(Status::NotSupported.into())
            }
            _ => Ok(()),
        }
    }

    /// Waits for the memory that the answer contains.
    pub(crate) fn after(&self, scope: &mut Scope<'_>, code: Code) -> Code {
        let Some(stream) = scope.stream.filter(|_| code == 0) else { return code };
        if scope.host_call.is_some() && !self.is_capturing(stream) {
            scope.calls_back_once();
        }
        if scope.returns_memory { self.relaxed(|| (self.calls.synchronize)(stream)) } else { code }
    }

    /// Reports whether a stream is captured, or cannot say.
    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        let mut status = 0;
        (self.calls.is_capturing)(stream, &raw mut status) != 0 || status != 0
    }

    /// Makes a call that captures of other streams do not forbid, as the program's own call was allowed.
    pub(crate) fn relaxed<T>(&self, call: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        (self.calls.exchange_capture_mode)(&raw mut mode);
        let result = call();
        (self.calls.exchange_capture_mode)(&raw mut mode);
        result
    }

    /// Lets the calling thread, which never captures, make calls that captures of other threads forbid.
    pub(crate) fn relax_captures(&self) {
        let mut mode = RELAXED;
        (self.calls.exchange_capture_mode)(&raw mut mode);
    }

    /// Creates an event in the current context.
    pub(crate) fn new_event(&self) -> Option<u64> {
        let mut event = 0;
        ((self.calls.create_event)(&raw mut event, WITHOUT_TIMING) == 0).then_some(event)
    }

    /// Reports whether the work before an event is not done.
    pub(crate) fn is_pending(&self, event: u64) -> bool {
        (self.calls.query_event)(event) == NOT_READY
    }

    /// Keeps memory until the driver has read it; for good if that cannot be known.
    pub(crate) fn keep(&self, stream: u64, buffers: Vec<Vec<u8>>) {
        self.relaxed(|| {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|Kept { event, .. }| {
                let is_pending = self.is_pending(*event);
                if !is_pending {
                    (self.calls.destroy_event)(*event);
                }
                is_pending
            });
            let record = |event: &u64| !self.is_capturing(stream) && (self.calls.record_event)(*event, stream) == 0;
            match self.new_event().filter(record) {
                Some(event) => kept.push(Kept { event, _buffers: buffers }),
                None => std::mem::forget(buffers),
            }
        });
    }

    /// Waits for all memory that the driver reads, because a context and its events are about to end.
    pub(crate) fn settle(&self) {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        self.relaxed(|| {
            for Kept { event, .. } in &kept {
                (self.calls.synchronize_event)(*event);
                (self.calls.destroy_event)(*event);
            }
        });
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
