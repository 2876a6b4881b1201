//! Opens the requested driver library before cudarc asks the loader for a bare name.
//!
//! glibc answers a later `dlopen("libcuda.so")` with a library that is already loaded under that name. Afterwards this module compares the two:
//! if cudarc still got another library, the executor refuses to start instead of using the wrong driver.

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

/// The driver that this process uses, for as long as it lives.
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

/// A library's file, opened with the process's initial privileges, because it may be in root's home.
struct Opened {
    path: PathBuf,
    file: File,
}

/// Writes a report about the fault into a buffer and returns its length. Only the emulator has this function.
type FaultText = unsafe extern "C" fn(*mut c_char, usize) -> usize;
/// Takes the output of kernels and returns its length. A GPU's driver prints it by itself.
type TakePrinted = unsafe extern "C" fn(*mut c_char, usize) -> usize;
/// Makes an allocation read-only for kernels until the host writes to it. Only the emulator has this function.
pub(super) type Protect = unsafe extern "C" fn(CUdeviceptr) -> CUresult;
/// Bounds the kernels of a stream to allocations, or lifts the bounds. Only the emulator has this function.
pub(super) type Confine = unsafe extern "C" fn(CUstream, *const CUdeviceptr, usize) -> CUresult;
/// Ends the kernel that runs in a stream. Only the emulator has this function.
pub(super) type Interrupt = unsafe extern "C" fn(CUstream) -> CUresult;

/// The emulator's report of a fault has a few lines; a longer one is cut.
const REPORT_BYTES_MAX: usize = 32 << 10;
/// More output than the emulator keeps. The bound prevents a kernel that prints endlessly from blocking other jobs.
const PRINTED_BYTES_MAX: usize = 2 << 20;

impl DriverLibrary {
    /// Loads the library, then drops privileges, then makes the first driver call.
    pub(crate) fn open(
        spec: &CudaSpec,
        leave_root: impl FnOnce() -> Result<(), PrivilegeError>,
    ) -> Result<Self, Refusal> {
        let (library, name) = match spec {
            CudaSpec::System => leaving_root(system()?, leave_root)?,
            CudaSpec::Emulated => leaving_root(emulator()?.load()?, leave_root)?,
            CudaSpec::Auto => {
                // Opened with the initial privileges, and loaded only if needed.
                let emulator = emulator();
                match leaving_root(system().ok(), leave_root)? {
                    Some((library, name)) if has_device(&library) => (library, name),
                    // Closes a driver without a device, so that its name is free for the emulator.
                    Some(_) | None => emulator?.load()?,
                }
            }
            CudaSpec::Path(path) => leaving_root(Opened::find(path)?.load()?, leave_root)?,
        };
        let library: &'static Library = Box::leak(Box::new(library));
        check_identity(library, &name)?;
        // SAFETY: the symbols, where they are there, have these types: they are ours.
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
            // From the first call on, the emulator keeps the text for us instead of writing it itself.
            // SAFETY: without room nothing is written.
            unsafe { take(std::ptr::null_mut(), 0) };
        }
        Ok(Self { library, name, report, kernel, refusal, printed, protect, confine, interrupt })
    }

    /// Whether this is the emulator, which alone has fault reports.
    pub(crate) fn is_emulator(&self) -> bool {
        self.report.is_some()
    }

    /// Whether the driver has a function. cudarc panics at the first call of a missing one.
    pub(crate) fn has(&self, symbol: &str) -> bool {
        // SAFETY: the symbol is looked up and not used.
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

    /// The function that makes memory read-only, unless the emulator is set to lack it like a GPU. The driver must have been initialised.
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

    /// The emulator's human-readable report of the fault, which may include text from a kernel.
    pub(crate) fn fault_report(&self) -> Option<String> {
        self.report.and_then(text)
    }

    /// Why the emulator refused the calling thread's last launch of a kernel that it can't run.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.and_then(text)
    }

    /// The kernel that caused the fault, if the emulator knows it.
    pub(crate) fn fault_kernel(&self) -> Option<String> {
        self.kernel.and_then(text)
    }
}

fn print_from(take: TakePrinted) {
    // Locked before the text is taken, so that threads write their texts in order.
    let mut stdout = std::io::stdout().lock();
    let mut buffer = vec![0_u8; REPORT_BYTES_MAX];
    for _ in 0..PRINTED_BYTES_MAX / REPORT_BYTES_MAX {
        // SAFETY: the buffer is live and has the length that is passed.
        let length = unsafe { take(buffer.as_mut_ptr().cast(), buffer.len()) }.min(buffer.len());
        if length == 0 {
            break;
        }
        // A closed standard output has no reader to report to.
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
    // SAFETY: a CUDA driver's initialisers only set up its own state. A path that names another kind of library is the operator's word,
    // and running its initialisers is what loading it means.
    unsafe { Library::new(name) }
}

fn system() -> Result<(Library, String), Refusal> {
    let found = SYSTEM_NAMES.iter().find_map(|name| Some((load(OsStr::new(name)).ok()?, (*name).to_owned())));
    found.ok_or_else(|| {
        no_driver(format!(
            "no NVIDIA driver found ({}); use --cuda emulated to run on the CPU, or --cuda PATH",
            SYSTEM_NAMES[0]
        ))
    })
}

fn emulator() -> Result<Opened, Refusal> {
    let path = spec::emulator_library().ok_or_else(|| {
        no_driver(format!(
            "the emulator library {EMULATOR_FILE} is not beside the worker; build it with `cargo build -p gpufleet-emulator`, or set \
             {EMULATOR_LIBRARY_VARIABLE} to its path"
        ))
    })?;
    Opened::find(&path)
}

impl Opened {
    fn find(path: &Path) -> Result<Self, Refusal> {
        let refused = |error| no_driver(format!("open {}: {error}", path.display()));
        let path = path.canonicalize().map_err(refused)?;
        Ok(Self { file: File::open(&path).map_err(refused)?, path })
    }

    /// Loads the file by a path that works without privileges.
    fn load(&self) -> Result<(Library, String), Refusal> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let reachable = if self.path.exists() { self.path.as_os_str() } else { OsStr::new(&own) };
        let library = load(reachable)
            .map_err(|error| no_driver(format!("open {} as a CUDA driver: {error}", self.path.display())))?;
        Ok((library, self.path.display().to_string()))
    }
}

/// Calls the library directly, because cudarc would keep the first one that it sees.
fn has_device(library: &Library) -> bool {
    // SAFETY: the types are those of cuda.h; cuInit takes no flags but zero.
    unsafe {
        let init = library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0");
        let count = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDeviceGetCount\0");
        let (Ok(init), Ok(count)) = (init, count) else { return false };
        let mut devices = 0;
        init(0) == 0 && count(&raw mut devices) == 0 && devices > 0
    }
}

/// Checks that cudarc uses the same library. cudarc panics if it finds none, which can't happen because one of its names is loaded.
fn check_identity(ours: &'static Library, name: &str) -> Result<(), Refusal> {
    // SAFETY: the symbols are looked up and compared, not used; cudarc's library is opened as it would be by its first call.
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
