//! Opens the selected driver library before cudarc asks the loader for a bare name.
//!
//! glibc answers a later `dlopen("libcuda.so")` with a library that is already loaded under that name. Afterwards this module compares the
//! two: if cudarc still got another library, the executor refuses to start with the wrong driver.

use std::{
    ffi::{OsStr, c_char, c_int, c_uint, c_void},
    fs::File,
    io::Write as _,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use cudarc::driver::sys::{self, CUdeviceptr, CUresult, CUstream};
use libloading::Library;

use crate::{
    executor::spec::{self, CudaSpec, EMULATOR_FILE, EMULATOR_LIBRARY_VARIABLE, SYSTEM_NAMES},
    ipc::message::Refusal,
    privileges::PrivilegeError,
};

/// The driver library that this process uses as long as it lives.
#[derive(Debug, Clone)]
pub(crate) struct DriverLibrary {
    library: &'static Library,
    pub name: String,
    report: Option<FaultText>,
    kernel: Option<FaultText>,
    refusal: Option<FaultText>,
    printed: Option<TakePrinted>,
    protect: Option<Protect>,
    confine: Option<Confine>,
    interrupt: Option<Interrupt>,
}

/// A library's file, opened with the process's initial privileges, because it may be in root's home folder.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

/// Writes a text about a fault or a refusal into a buffer and returns its length. Only the emulator has such functions.
type FaultText = unsafe extern "C" fn(*mut c_char, usize) -> usize;
/// Moves printed output of kernels into a buffer and returns its length. Only the emulator has this function; a GPU's driver prints by
/// itself.
type TakePrinted = unsafe extern "C" fn(*mut c_char, usize) -> usize;
/// Makes an allocation read-only for kernels until the host writes to it. Only the emulator has this function.
pub(super) type Protect = unsafe extern "C" fn(CUdeviceptr) -> CUresult;
/// Restricts the kernels of a stream to the given allocations, or lifts the restriction. Only the emulator has this function.
pub(super) type Confine = unsafe extern "C" fn(CUstream, *const CUdeviceptr, usize) -> CUresult;
/// Ends the kernel that is running in a stream. Only the emulator has this function.
pub(super) type Interrupt = unsafe extern "C" fn(CUstream) -> CUresult;

/// Maximum size of the emulator's report of a fault, in bytes. A report has a few lines; a longer one is cut.
const REPORT_BYTES_MAX: usize = 32 << 10;
/// Maximum amount of output that is moved at once, in bytes: more than the emulator keeps. It prevents a kernel that prints endlessly from
/// blocking other jobs.
const PRINTED_BYTES_MAX: usize = 2 << 20;

impl DriverLibrary {
    /// Loads the library, then drops privileges with `leave_root`, then makes the first driver call.
    pub(crate) fn open(
        spec: &CudaSpec,
        leave_root: impl FnOnce() -> Result<(), PrivilegeError>,
    ) -> Result<Self, Refusal> {
        let (library, name) = match spec {
            CudaSpec::System => leaving_root(system()?, leave_root)?,
            CudaSpec::Emulated => leaving_root(emulator()?.load()?, leave_root)?,
            CudaSpec::Auto => {
                // Opened with the initial privileges, but loaded only if needed.
                let emulator = emulator();
                match leaving_root(system().ok(), leave_root)? {
                    Some((library, name)) if has_device(&library) => (library, name),
                    // This closes a driver without a device, so that its name is free for the emulator.
                    Some(_) | None => emulator?.load()?,
                }
            }
            CudaSpec::Path(path) => leaving_root(Opened::find(path)?.load()?, leave_root)?,
        };
        let library: &'static Library = Box::leak(Box::new(library));
        check_identity(library, &name)?;
        // SAFETY: the emulator is a part of this project, and its symbols have these types.
        let (report, kernel, refusal, printed, protect) = unsafe {
            (
                library.get::<FaultText>(b"gpufleet_emulator_fault_report\0").ok().map(|symbol| *symbol),
                library.get::<FaultText>(b"gpufleet_emulator_fault_kernel\0").ok().map(|symbol| *symbol),
                library.get::<FaultText>(b"gpufleet_emulator_refusal\0").ok().map(|symbol| *symbol),
                library.get::<TakePrinted>(b"gpufleet_emulator_printf\0").ok().map(|symbol| *symbol),
                library.get::<Protect>(b"gpufleet_emulator_protect\0").ok().map(|symbol| *symbol),
            )
        };
        // SAFETY: as above.
        let (confine, interrupt) = unsafe {
            (
                library.get::<Confine>(b"gpufleet_emulator_confine\0").ok().map(|symbol| *symbol),
                library.get::<Interrupt>(b"gpufleet_emulator_interrupt\0").ok().map(|symbol| *symbol),
            )
        };
        if let Some(take) = printed {
            // From this first call on, the emulator keeps the text for us instead of writing it itself.
            // SAFETY: without room nothing is written.
            unsafe { take(std::ptr::null_mut(), 0) };
        }
        Ok(Self { library, name, report, kernel, refusal, printed, protect, confine, interrupt })
    }

    /// Returns whether this is the emulator, the only driver with fault reports.
    pub(crate) fn is_emulator(&self) -> bool {
        self.report.is_some()
    }

    /// Returns whether the driver has a function. cudarc panics at the first call of a missing one.
    pub(crate) fn has(&self, symbol: &str) -> bool {
        // SAFETY: the symbol is only looked up, not used.
        unsafe { self.library.get::<*const c_void>(symbol.as_bytes()) }.is_ok()
    }

    /// Writes the output of kernels, which a GPU's driver does by itself, and flushes the C library's buffer.
    pub(crate) fn print_what_kernels_printed(&self) {
        if let Some(take) = self.printed {
            print_from(take);
        }
        // The C library buffers an incomplete line.
        // SAFETY: null stands for all of its streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }

    /// Returns the function that makes memory read-only, if the emulator has it and is not set to behave like a GPU. The driver must be
    /// initialised.
    pub(super) fn protection(&self) -> Option<Protect> {
        // SAFETY: nothing is allocated at this address, so the call changes nothing.
        self.protect.filter(|protect| unsafe { protect(0) } != CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    pub(super) fn confine(&self) -> Option<Confine> {
        self.confine
    }

    pub(super) fn interrupt(&self) -> Option<Interrupt> {
        self.interrupt
    }

    /// Returns the emulator's human-readable report of the fault, which may include text from a kernel.
    pub(crate) fn fault_report(&self) -> Option<String> {
        self.report.and_then(text)
    }

    /// Returns why the emulator refused the calling thread's last launch, if it can't run the kernel.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.and_then(text)
    }

    /// Returns the kernel that caused the fault, if the emulator knows it.
    pub(crate) fn fault_kernel(&self) -> Option<String> {
        self.kernel.and_then(text)
    }
}

fn print_from(take: TakePrinted) {
    // Take the lock before the text, so that threads write their texts in order.
    let mut stdout = std::io::stdout().lock();
    let mut buffer = vec![0_u8; REPORT_BYTES_MAX];
    for _ in 0..PRINTED_BYTES_MAX / REPORT_BYTES_MAX {
        // SAFETY: the buffer is live and has the length that is passed.
        let length = unsafe { take(buffer.as_mut_ptr().cast(), buffer.len()) }.min(buffer.len());
        if length == 0 {
            break;
        }
        // An error means that standard output is closed, so there is no reader.
        drop(stdout.write_all(&buffer[..length]));
    }
    drop(stdout.flush());
}

fn text(tell: FaultText) -> Option<String> {
    let mut buffer = vec![0_u8; REPORT_BYTES_MAX];
    // SAFETY: the buffer is live and has the length that is passed.
    let length = unsafe { tell(buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.truncate(length);
    let text = String::from_utf8_lossy(&buffer).trim_end_matches('\0').trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// Drops privileges after the load and returns the loaded library.
fn leaving_root<T>(loaded: T, leave_root: impl FnOnce() -> Result<(), PrivilegeError>) -> Result<T, Refusal> {
    leave_root()?;
    Ok(loaded)
}

fn no_driver(hint: impl Into<String>) -> Refusal {
    Refusal::NoDriver { hint: hint.into() }
}

fn load(name: &OsStr) -> Result<Library, libloading::Error> {
    // SAFETY: the initialisers of a CUDA driver only set up its own state. If the path names another library, the operator vouches for it.
    unsafe { Library::new(name) }
}

/// Loads NVIDIA's driver.
pub(crate) fn system() -> Result<(Library, String), Refusal> {
    let found = SYSTEM_NAMES.iter().find_map(|name| Some((load(OsStr::new(name)).ok()?, (*name).to_owned())));
    found.ok_or_else(|| {
        no_driver(format!(
            "no NVIDIA driver found ({}); use --cuda emulated to run on the CPU, or --cuda PATH",
            SYSTEM_NAMES[0]
        ))
    })
}

/// Opens the emulator that is installed with the worker.
pub(crate) fn emulator() -> Result<Opened, Refusal> {
    let path = spec::emulator_library().ok_or_else(|| {
        no_driver(format!(
            "the emulator library {EMULATOR_FILE} is not beside the worker; build it with `cargo build -p gpufleet-emulator`, or set \
             {EMULATOR_LIBRARY_VARIABLE} to its path"
        ))
    })?;
    Opened::find(&path)
}

impl Opened {
    pub(crate) fn find(path: &Path) -> Result<Self, Refusal> {
        let refused = |error| no_driver(format!("failed to open {}: {error}", path.display()));
        let path = path.canonicalize().map_err(refused)?;
        Ok(Self { file: File::open(&path).map_err(refused)?, path })
    }

    /// Loads the file by a path that is readable without privileges.
    pub(crate) fn load(&self) -> Result<(Library, String), Refusal> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let reachable = if self.path.exists() { self.path.as_os_str() } else { OsStr::new(&own) };
        let library = load(reachable)
            .map_err(|error| no_driver(format!("failed to open {} as a CUDA driver: {error}", self.path.display())))?;
        Ok((library, self.path.display().to_string()))
    }
}

/// Returns whether the driver has a device. Calls the library directly, because cudarc would keep the first library that it sees.
pub(crate) fn has_device(library: &Library) -> bool {
    // SAFETY: the types are those of cuda.h, and cuInit takes no flags but zero.
    unsafe {
        let init = library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0");
        let count = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDeviceGetCount\0");
        let (Ok(init), Ok(count)) = (init, count) else { return false };
        let mut devices = 0;
        init(0) == 0 && count(&raw mut devices) == 0 && devices > 0
    }
}

/// Checks that cudarc uses the same library. cudarc would panic if it found none, but one of its names is loaded.
fn check_identity(ours: &'static Library, name: &str) -> Result<(), Refusal> {
    // SAFETY: the symbols are only looked up and compared. cudarc's library is opened in the same way as by its first call.
    let same = unsafe {
        if !sys::is_culib_present() {
            return Err(no_driver(format!("{name} is not a CUDA driver: its library name is not libcuda.so")));
        }
        let address = |library: &Library| {
            library.get::<*const c_void>(b"cuInit\0").ok().and_then(|symbol| symbol.try_as_raw_ptr())
        };
        let (ours, theirs) = (address(ours), address(sys::culib()));
        ours.is_some() && ours == theirs
    };
    if same {
        return Ok(());
    }
    Err(no_driver(format!(
        "{name} was opened, but the dynamic loader finds another libcuda.so; remove that one from the library path, or select it with --cuda PATH"
    )))
}
