//! Bindings to NVRTC. Only the compiler child calls them.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::{Path, PathBuf},
};

use libloading::Library;

use super::{
    child::{Answer, Compilation},
    diagnostics::FILE_NAME,
    headers::HEADERS,
    library::{SYSTEM_NAMES, builtins, file_of},
    options,
    toolkit::Loaded,
};

/// Returns the newest architecture that NVRTC knows and the device runs.
fn choose_arch(supported: &[c_int], device: (u32, u32)) -> Option<c_int> {
    let wanted = c_int::try_from(device.0 * 10 + device.1).ok()?;
    supported.iter().copied().filter(|arch| *arch <= wanted).max()
}

/// Returns the architecture option for NVRTC, and whether NVRTC makes a cubin. A device runs cubins for its major version, up to its minor
/// version.
fn architecture(arch: c_int, device: (u32, u32), wants_cubin: bool) -> (String, bool) {
    let has_cubin = wants_cubin && c_int::try_from(device.0) == Ok(arch / 10);
    (format!("--gpu-architecture={}_{arch}", if has_cubin { "sm" } else { "compute" }), has_cubin)
}

type Program = *mut c_void;
const SUCCESS: c_int = 0;
const ERROR_INVALID_OPTION: c_int = 5;
const ERROR_COMPILATION: c_int = 6;

macro_rules! api {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        /// NVRTC's functions. The library is opened by path and not through cudarc, which would ask the loader for a bare name and might
        /// get another copy.
        pub(super) struct Api {
            $($field: unsafe extern "C" fn($($arg),*) -> $result,)*
            _library: Library,
        }

        impl Api {
            fn resolve(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of nvrtc.h, and the library, which is in the same value, outlives the pointers.
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
    add_name_expression = b"nvrtcAddNameExpression\0": fn(Program, *const c_char) -> c_int;
    lowered_name = b"nvrtcGetLoweredName\0": fn(Program, *const c_char, *mut *const c_char) -> c_int;
    compile_program = b"nvrtcCompileProgram\0": fn(Program, c_int, *const *const c_char) -> c_int;
    ptx_size = b"nvrtcGetPTXSize\0": fn(Program, *mut usize) -> c_int;
    ptx = b"nvrtcGetPTX\0": fn(Program, *mut c_char) -> c_int;
    cubin_size = b"nvrtcGetCUBINSize\0": fn(Program, *mut usize) -> c_int;
    cubin = b"nvrtcGetCUBIN\0": fn(Program, *mut c_char) -> c_int;
    log_size = b"nvrtcGetProgramLogSize\0": fn(Program, *mut usize) -> c_int;
    log = b"nvrtcGetProgramLog\0": fn(Program, *mut c_char) -> c_int;
}

/// The worker's own headers in the form that NVRTC takes: pointers to strings, which live as long as this.
struct Headers {
    texts: Vec<*const c_char>,
    names: Vec<*const c_char>,
    _strings: [Vec<CString>; 2],
}

impl Headers {
    fn new() -> Self {
        let string = |text: &str| CString::new(text).expect("a header of this program has no NUL");
        // NVRTC reads a header again for each include, so `#pragma once` is added.
        let texts: Vec<CString> = HEADERS.iter().map(|(_, text)| string(&format!("#pragma once\n{text}"))).collect();
        let names: Vec<CString> = HEADERS.iter().map(|(name, _)| string(name)).collect();
        let pointers = |strings: &[CString]| strings.iter().map(|text| text.as_ptr()).collect();
        Self { texts: pointers(&texts), names: pointers(&names), _strings: [texts, names] }
    }
}

impl Api {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
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

    /// Returns the library's files and version.
    pub(super) fn identify(&self) -> Option<Loaded> {
        let function = self.create as *const c_void;
        let version = self.version().ok()?;
        let mut files = builtins(function, &version);
        files.push(file_of(function)?);
        files.sort();
        Some(Loaded { files, version })
    }

    /// Loads NVRTC's builtins, which NVRTC opens by name while it compiles. Once they are loaded, it finds them without access to any
    /// folder.
    pub(super) fn load_builtins(&self) -> Vec<PathBuf> {
        let files = self.version().map(|version| builtins(self.create as *const c_void, &version)).unwrap_or_default();
        for file in &files {
            // SAFETY: the builtins belong to NVRTC, and their initialisers only set up tables. They stay loaded as long as the process
            // lives.
            if let Ok(library) = unsafe { Library::new(file) } {
                std::mem::forget(library);
            }
        }
        files
    }

    pub(super) fn compile(&self, request: &Compilation) -> Answer {
        match self.try_compile(request) {
            Ok(answer) => answer,
            Err(code) => Answer::Failed(format!("NVRTC failed with {}", self.text(code))),
        }
    }

    fn try_compile(&self, request: &Compilation) -> Result<Answer, c_int> {
        let Some(arch) = choose_arch(&self.architectures()?, request.arch) else {
            let (major, minor) = request.arch;
            return Ok(Answer::Failed(format!("this NVRTC does not support compute capability {major}.{minor}")));
        };
        let (architecture, has_cubin) = architecture(arch, request.arch, request.cubin);
        let mut arguments = vec![architecture];
        arguments.extend(request.nvrtc.includes.iter().map(|folder| format!("--include-path={}", folder.display())));
        arguments.extend(request.options.iter().cloned());
        arguments.extend(options::line_information(&request.options).map(str::to_owned));
        let strings: Result<Vec<CString>, _> = arguments.into_iter().map(CString::new).collect();
        let expressions: Result<Vec<CString>, _> =
            request.expressions.iter().map(|expression| CString::new(expression.as_str())).collect();
        let (Ok(strings), Ok(expressions), Ok(code)) = (strings, expressions, CString::new(request.code.as_str()))
        else {
            return Ok(Answer::Refused {
                message: "the code, an option or an entry contains a NUL character".to_owned(),
                line: 1,
            });
        };
        let options: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        let name = CString::new(FILE_NAME).expect("it has no NUL");
        let headers = Headers::new();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all pointers are to live C strings, and both lists of headers have this length. The program is never destroyed, because
        // the process ends.
        let compiled = unsafe {
            check((self.create)(
                &raw mut program,
                code.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as c_int,
                headers.texts.as_ptr(),
                headers.names.as_ptr(),
            ))?;
            for expression in &expressions {
                check((self.add_name_expression)(program, expression.as_ptr()))?;
            }
            (self.compile_program)(program, options.len() as c_int, options.as_ptr())
        };
        let log = self.text_of(program, self.log_size, self.log)?;
        match compiled {
            SUCCESS => {
                let ptx = self.text_of(program, self.ptx_size, self.ptx)?;
                let cubin =
                    if has_cubin { Some(self.bytes_of(program, self.cubin_size, self.cubin)?.into()) } else { None };
                let symbols =
                    expressions.iter().map(|expression| self.symbol(program, expression)).collect::<Result<_, _>>()?;
                Ok(Answer::Compiled { ptx, cubin, log, version: self.version()?, symbols })
            }
            ERROR_COMPILATION | ERROR_INVALID_OPTION => Ok(Answer::Rejected { problem: self.text(compiled), log }),
            other => Err(other),
        }
    }

    /// Returns a name expression of the program, and its symbol.
    fn symbol(&self, program: Program, expression: &CStr) -> Result<(String, String), c_int> {
        let mut symbol = std::ptr::null();
        // SAFETY: the program is live and compiled, and the expression was added to it. NVRTC keeps the symbol as long as the program.
        let symbol = unsafe {
            check((self.lowered_name)(program, expression.as_ptr(), &raw mut symbol))?;
            CStr::from_ptr(symbol)
        };
        Ok((expression.to_string_lossy().into_owned(), symbol.to_string_lossy().into_owned()))
    }

    fn architectures(&self) -> Result<Vec<c_int>, c_int> {
        let mut count = 0;
        // SAFETY: the first call returns how many integers the second writes.
        unsafe {
            check((self.supported_count)(&raw mut count))?;
            let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
            check((self.supported)(architectures.as_mut_ptr()))?;
            Ok(architectures)
        }
    }

    fn version(&self) -> Result<String, c_int> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both integers are valid places for the results.
        check(unsafe { (self.version)(&raw mut major, &raw mut minor) })?;
        Ok(format!("{major}.{minor}"))
    }

    fn text_of(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        text: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<String, c_int> {
        let mut buffer = self.bytes_of(program, size, text)?;
        while buffer.last() == Some(&0) {
            buffer.pop();
        }
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    fn bytes_of(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        bytes: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, c_int> {
        let mut count = 0;
        // SAFETY: the program is live, and the first call returns how many bytes the second writes.
        unsafe {
            check(size(program, &raw mut count))?;
            let mut buffer = vec![0_u8; count];
            check(bytes(program, buffer.as_mut_ptr().cast()))?;
            Ok(buffer)
        }
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: NVRTC returns a static string for every code, even an unknown one.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
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

    #[test]
    fn a_cubin_is_made_only_where_the_device_runs_it() {
        let told = |arch, device, wanted| architecture(arch, device, wanted);
        assert_eq!(told(90, (9, 0), true), ("--gpu-architecture=sm_90".to_owned(), true));
        assert_eq!(told(86, (8, 9), true), ("--gpu-architecture=sm_86".to_owned(), true));
        assert_eq!(told(90, (10, 0), true), ("--gpu-architecture=compute_90".to_owned(), false));
        assert_eq!(told(90, (9, 0), false), ("--gpu-architecture=compute_90".to_owned(), false));
    }
}
