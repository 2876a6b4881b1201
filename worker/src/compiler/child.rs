//! The compiler child: limits itself, closes everything but its pipes and CUDA's headers, compiles once, answers, exits.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use libloading::Library;
use serde::{Deserialize, Serialize};

use super::{
    check::{self, Checked},
    diagnostics::FILE_NAME,
    library::{Nvrtc, SYSTEM_NAMES, builtins},
    options,
    sandbox::{self, Closed},
};
use crate::privileges;

/// For one compilation. Ordinary kernels take tens of milliseconds, heavy templates seconds.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
/// PTX and log together: many times what any real program makes.
pub(super) const ANSWER_BYTES_MAX: usize = 48 << 20;
/// The code has its own bound in a task; this is that and its options.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// NVRTC maps some hundred megabytes and takes little more; a template bomb takes all it gets.
pub(super) const ADDRESS_SPACE_BYTES_MAX: u64 = 4 << 30;
/// The libraries, a few headers at a time, and the pipes.
const OPEN_FILES_MAX: u64 = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Compile(Job),
    /// Close everything, then try what must not be possible.
    Check,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub code: String,
    pub options: Vec<String>,
    pub arch: (u32, u32),
    pub nvrtc: Nvrtc,
    /// Compile only where everything is closed.
    pub strict: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Compiled {
        ptx: String,
        log: String,
        version: String,
    },
    /// NVRTC did not like the code.
    Rejected {
        problem: String,
        log: String,
    },
    /// We did not like the code.
    Refused {
        message: String,
        line: u32,
    },
    NoLibrary(String),
    /// The kernel lacks this, and the job is strict.
    Open(String),
    Checked(Checked),
    Failed(String),
}

pub(super) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compile-child: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    limit_resources()?;
    privileges::refuse_new().map_err(io::Error::other)?;
    let answer = match read_request()? {
        Request::Compile(job) => compile(&job),
        Request::Check => close(&[]).map_or_else(failed, |closed| Answer::Checked(check::try_everything(closed))),
    };
    let answer = rmp_serde::to_vec(&answer).map_err(io::Error::other)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&(answer.len() as u32).to_le_bytes())?;
    stdout.write_all(&answer)?;
    stdout.flush()
}

fn limit_resources() -> io::Result<()> {
    // When memory runs out, the kernel takes the compiler and not its neighbours. Some containers forbid to say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let cpu_seconds = TIME_LIMIT.as_secs();
    let limits = [
        (libc::RLIMIT_CPU, cpu_seconds),
        (libc::RLIMIT_AS, ADDRESS_SPACE_BYTES_MAX),
        (libc::RLIMIT_NOFILE, OPEN_FILES_MAX),
        (libc::RLIMIT_FSIZE, 0),
    ];
    for (resource, value) in limits {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: the limit is a live structure that the kernel only reads.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn read_request() -> io::Result<Request> {
    let mut stdin = io::stdin().lock();
    let mut length = [0; 4];
    stdin.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > REQUEST_BYTES_MAX {
        return Err(io::Error::other(format!("a request of {length} bytes is too long")));
    }
    let mut body = vec![0; length];
    stdin.read_exact(&mut body)?;
    rmp_serde::from_slice(&body).map_err(io::Error::other)
}

/// The supervisor keeps our standard input open as long as it wants the answer. When this returns the thread is up, and has no more
/// use for the calls by which threads start.
fn exit_with_parent() -> io::Result<()> {
    let (up, started) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("parent-watch".into()).spawn(move || {
        drop(up);
        let mut byte = [0];
        drop(io::stdin().lock().read(&mut byte));
        // SAFETY: _exit ends the process without running anything of it.
        unsafe { libc::_exit(1) }
    })?;
    // An error is what it says: its end is gone.
    let _up: Result<(), _> = started.recv();
    Ok(())
}

/// The library comes first, for it lies where nothing can be read afterwards; the code is looked at last.
fn compile(job: &Job) -> Answer {
    let nvrtc = match Api::open(&job.nvrtc.library) {
        Ok(nvrtc) => nvrtc,
        Err(why) => return Answer::NoLibrary(why),
    };
    let readable: Vec<_> = nvrtc.load_builtins().into_iter().chain(job.nvrtc.includes.iter().cloned()).collect();
    let closed = match close(&readable) {
        Ok(closed) => closed,
        Err(error) => return failed(error),
    };
    if let Some(missing) = closed.missing().filter(|_| job.strict) {
        return Answer::Open(missing.to_owned());
    }
    if let Err((line, message)) = options::check_includes(&job.code, closed.files) {
        return Answer::Refused { message, line };
    }
    nvrtc.compile(job)
}

fn close(readable: &[PathBuf]) -> io::Result<Closed> {
    let closed = sandbox::close_files_and_network(readable)?;
    exit_with_parent()?;
    sandbox::close_calls(closed)
}

fn failed(error: io::Error) -> Answer {
    Answer::Failed(format!("close the sandbox: {error}"))
}

/// The newest architecture that NVRTC knows and the device runs.
fn choose_arch(supported: &[c_int], device: (u32, u32)) -> Option<c_int> {
    let wanted = c_int::try_from(device.0 * 10 + device.1).ok()?;
    supported.iter().copied().filter(|arch| *arch <= wanted).max()
}

type Program = *mut c_void;
const SUCCESS: c_int = 0;
const ERROR_INVALID_OPTION: c_int = 5;
const ERROR_COMPILATION: c_int = 6;

macro_rules! api {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        /// The functions of NVRTC that we call. Opened by path and not through cudarc, which would ask the loader for a bare name
        /// and might get another copy.
        struct Api {
            $($field: unsafe extern "C" fn($($arg),*) -> $result,)*
            _library: Library,
        }

        impl Api {
            fn resolve(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of nvrtc.h, and the library outlives the pointers: it lies beside them.
                unsafe { Ok(Self { $($field: *library.get($symbol)?,)* _library: library }) }
            }
        }
    };
}

api! {
    version = b"nvrtcVersion\0": fn(*mut c_int, *mut c_int) -> c_int;
    error_string = b"nvrtcGetErrorString\0": fn(c_int) -> *const c_char;
    supported_count = b"nvrtcGetNumSupportedArchs\0": fn(*mut c_int) -> c_int;
    supported = b"nvrtcGetSupportedArchs\0": fn(*mut c_int) -> c_int;
    create = b"nvrtcCreateProgram\0": fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
    compile_program = b"nvrtcCompileProgram\0": fn(Program, c_int, *const *const c_char) -> c_int;
    ptx_size = b"nvrtcGetPTXSize\0": fn(Program, *mut usize) -> c_int;
    ptx = b"nvrtcGetPTX\0": fn(Program, *mut c_char) -> c_int;
    log_size = b"nvrtcGetProgramLogSize\0": fn(Program, *mut usize) -> c_int;
    log = b"nvrtcGetProgramLog\0": fn(Program, *mut c_char) -> c_int;
}

impl Api {
    fn open(path: &Path) -> Result<Self, String> {
        let bare = path.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        let candidates: Vec<&Path> = if bare { SYSTEM_NAMES.iter().map(Path::new).collect() } else { vec![path] };
        let mut problem = String::new();
        for candidate in candidates {
            // SAFETY: NVRTC's initialisers only set up its own tables.
            let library = unsafe { Library::new(candidate) };
            match library.and_then(Self::resolve) {
                Ok(api) => return Ok(api),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(problem)
    }

    /// NVRTC opens its builtins by name while it compiles; loaded before, they are found without a look at any folder.
    fn load_builtins(&self) -> Vec<PathBuf> {
        let files = self.version().map(|version| builtins(self.create as *const c_void, &version)).unwrap_or_default();
        for file in &files {
            // SAFETY: the builtins are NVRTC's own, and their initialisers only set up tables. They stay for as long as the process.
            if let Ok(library) = unsafe { Library::new(file) } {
                std::mem::forget(library);
            }
        }
        files
    }

    fn compile(&self, request: &Job) -> Answer {
        match self.try_compile(request) {
            Ok(answer) => answer,
            Err(code) => Answer::Failed(format!("NVRTC answered {}", self.text(code))),
        }
    }

    fn try_compile(&self, request: &Job) -> Result<Answer, c_int> {
        let Some(arch) = choose_arch(&self.architectures()?, request.arch) else {
            let (major, minor) = request.arch;
            return Ok(Answer::Failed(format!("NVRTC knows no architecture for compute capability {major}.{minor}")));
        };
        let mut arguments = vec![format!("--gpu-architecture=compute_{arch}")];
        arguments.extend(request.nvrtc.includes.iter().map(|folder| format!("--include-path={}", folder.display())));
        arguments.extend(request.options.iter().cloned());
        arguments.extend(options::line_information(&request.options).map(str::to_owned));
        let strings: Result<Vec<CString>, _> = arguments.into_iter().map(CString::new).collect();
        let (Ok(strings), Ok(code)) = (strings, CString::new(request.code.as_str())) else {
            return Ok(Answer::Refused {
                message: "the code or an option contains a NUL character".to_owned(),
                line: 1,
            });
        };
        let options: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        let name = CString::new(FILE_NAME).expect("it has no NUL");
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all pointers are to live C strings, and no headers are passed. The program is not destroyed: the process ends.
        let compiled = unsafe {
            check((self.create)(
                &raw mut program,
                code.as_ptr(),
                name.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            ))?;
            (self.compile_program)(program, options.len() as c_int, options.as_ptr())
        };
        let log = self.text_of(program, self.log_size, self.log)?;
        match compiled {
            SUCCESS => {
                let ptx = self.text_of(program, self.ptx_size, self.ptx)?;
                Ok(Answer::Compiled { ptx, log, version: self.version()? })
            }
            ERROR_COMPILATION | ERROR_INVALID_OPTION => Ok(Answer::Rejected { problem: self.text(compiled), log }),
            other => Err(other),
        }
    }

    fn architectures(&self) -> Result<Vec<c_int>, c_int> {
        let mut count = 0;
        // SAFETY: the first call says how many integers the second writes.
        unsafe {
            check((self.supported_count)(&raw mut count))?;
            let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
            check((self.supported)(architectures.as_mut_ptr()))?;
            Ok(architectures)
        }
    }

    fn version(&self) -> Result<String, c_int> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both integers are ours to write.
        check(unsafe { (self.version)(&raw mut major, &raw mut minor) })?;
        Ok(format!("{major}.{minor}"))
    }

    fn text_of(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        text: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<String, c_int> {
        let mut bytes = 0;
        // SAFETY: the program is live, and the first call says how many bytes the second writes.
        let mut buffer = unsafe {
            check(size(program, &raw mut bytes))?;
            let mut buffer = vec![0_u8; bytes];
            check(text(program, buffer.as_mut_ptr().cast()))?;
            buffer
        };
        while buffer.last() == Some(&0) {
            buffer.pop();
        }
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: NVRTC answers a static string for every code, also for those that it does not know.
        let text = unsafe { std::ffi::CStr::from_ptr((self.error_string)(code)) };
        text.to_string_lossy().into_owned()
    }
}

fn check(code: c_int) -> Result<(), c_int> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_architecture_that_the_device_runs_is_chosen() {
        let supported = [50, 60, 70, 75, 80, 86, 89, 90, 100];
        assert_eq!(choose_arch(&supported, (8, 0)), Some(80));
        assert_eq!(choose_arch(&supported, (8, 8)), Some(86));
        assert_eq!(choose_arch(&supported, (12, 0)), Some(100));
        assert_eq!(choose_arch(&supported, (3, 5)), None);
    }
}
