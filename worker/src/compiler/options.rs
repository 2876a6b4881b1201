//! Which options of NVRTC a user may give, and which includes.
//!
//! | option | |
//! | --- | --- |
//! | `-DNAME`, `-DNAME=VALUE`, `--define-macro=…` | macros |
//! | `-UNAME`, `--undefine-macro=…` | |
//! | `-std=c++NN`, `--std=c++NN` | the dialect |
//! | `--use_fast_math`, `-use_fast_math` | |
//! | `--fmad=BOOL`, `--ftz=BOOL`, `--prec-div=BOOL`, `--prec-sqrt=BOOL` | |
//! | `-lineinfo`, `--generate-line-info`, `-G`, `--device-debug` | |
//! | `--maxrregcount=N`, `-maxrregcount=N` | |
//! | `-w`, `--disable-warnings`, `--restrict`, `--extra-device-vectorization` | |
//!
//! Everything else is refused: include paths and preincluded files reach into the worker's file system, and architectures are the
//! worker's to choose. Line information is always asked for.

const PLAIN: [&str; 12] = [
    "--use_fast_math",
    "-use_fast_math",
    "-lineinfo",
    "--generate-line-info",
    "-G",
    "--device-debug",
    "-w",
    "--disable-warnings",
    "--restrict",
    "-restrict",
    "--extra-device-vectorization",
    "-extra-device-vectorization",
];
/// Those of them that put line numbers into the PTX.
const LINES: [&str; 4] = ["-lineinfo", "--generate-line-info", "-G", "--device-debug"];
const FLOAT: [&str; 4] = ["fmad", "ftz", "prec-div", "prec-sqrt"];
/// Registers of one thread that any device has at most.
const REGISTERS_MAX: u32 = 255;

/// The options as NVRTC takes them, if all are allowed.
pub(super) fn check(options: &[String]) -> Result<(), String> {
    match options.iter().find(|option| !is_allowed(option)) {
        None => Ok(()),
        Some(option) => Err(format!(
            "option {option:?} is not allowed; -D, -U, -std=, --use_fast_math, --fmad=, --ftz=, --prec-div=, --prec-sqrt=, -lineinfo, -G, \
             --maxrregcount=, -w and --restrict are"
        )),
    }
}

/// The option by which the code's lines come into the PTX, where the user's options do not do so already. It changes no instruction,
/// and a fault's report can name the line.
pub(super) fn line_information(options: &[String]) -> Option<&'static str> {
    let told = options.iter().any(|option| LINES.contains(&option.as_str()));
    (!told).then_some(LINES[0])
}

fn is_allowed(option: &str) -> bool {
    if PLAIN.contains(&option) {
        return true;
    }
    if let Some(dialect) = option.strip_prefix("--std=").or_else(|| option.strip_prefix("-std=")) {
        return dialect
            .strip_prefix("c++")
            .is_some_and(|year| year.len() == 2 && year.bytes().all(|b| b.is_ascii_digit()));
    }
    let defined =
        ["--define-macro=", "--undefine-macro=", "-D", "-U"].iter().find_map(|prefix| option.strip_prefix(prefix));
    if let Some(defined) = defined {
        return defined.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    }
    let Some((name, value)) = option.trim_start_matches('-').split_once('=').filter(|_| option.starts_with('-')) else {
        return false;
    };
    match name {
        "maxrregcount" => value.parse::<u32>().is_ok_and(|count| (1..=REGISTERS_MAX).contains(&count)),
        _ => FLOAT.contains(&name) && matches!(value, "true" | "false"),
    }
}

/// Refuses what plainly reaches for files of the worker. This reads text, not C++: an include whose name comes from a macro passes
/// where the sandbox closes the file system anyway, and is refused where it can't.
pub(super) fn check_includes(code: &str, sandboxed: bool) -> Result<(), (u32, String)> {
    for (line, text) in (1..).zip(code.lines()) {
        let Some(directive) = text.trim_start().strip_prefix('#').map(str::trim_start) else { continue };
        let Some(operand) = directive.strip_prefix("include").map(str::trim_start) else { continue };
        let name = operand.strip_prefix(['<', '"']);
        let refused = match name {
            Some(name) => name.starts_with('/') || name.contains(".."),
            None => !sandboxed,
        };
        if refused {
            return Err((line, format!("line {line}: only CUDA's own headers can be included, by their plain names")));
        }
    }
    // Without a sandbox the text is all there is to go by: spellings that the loop above does not see are not let through.
    if !sandboxed
        && ["%:", "\\\n", "\\\r\n", "__has_include", "??=", "include_next"].iter().any(|odd| code.contains(odd))
    {
        return Err((1, "this worker can't close its file system to the compiler, so line continuations, digraphs and __has_include are \
                        not accepted"
            .to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(option: &str) -> bool {
        check(&[option.to_owned()]).is_ok()
    }

    #[test]
    fn options_that_change_the_code_are_allowed() {
        for option in [
            "-DN=4",
            "-DDEBUG",
            "--define-macro=X=1",
            "-UN",
            "-std=c++17",
            "--std=c++20",
            "--use_fast_math",
            "--fmad=false",
            "-G",
        ] {
            assert!(allowed(option), "{option}");
        }
        assert!(allowed("--maxrregcount=64"));
    }

    #[test]
    fn lines_are_asked_for_once() {
        assert_eq!(line_information(&["-DN=1".to_owned()]), Some("-lineinfo"));
        for option in LINES {
            assert!(allowed(option));
            assert_eq!(line_information(&[option.to_owned()]), None);
        }
    }

    #[test]
    fn options_that_reach_for_files_or_architectures_are_refused() {
        for option in [
            "-I/etc",
            "-I",
            "--include-path=/",
            "-include=/etc/passwd",
            "--pre-include=x",
            "-arch=sm_90",
            "--gpu-architecture=sm_90",
            "-D",
            "-D=1",
            "-std=/etc",
            "--maxrregcount=100000",
            "--fmad=maybe",
            "--time=/tmp/x",
            "--pch-dir=/tmp",
            "",
            "x",
        ] {
            assert!(!allowed(option), "{option}");
        }
    }

    #[test]
    fn includes_of_host_files_are_refused_with_their_line() {
        for code in ["#include \"/etc/passwd\"", "#  include <../../secret>", " #include </etc/shadow>"] {
            assert_eq!(check_includes(&format!("int x;\n{code}\n"), true).unwrap_err().0, 2, "{code}");
        }
        assert!(check_includes("#include <cuda_fp16.h>\n#include \"cuda/std/limits\"", false).is_ok());
        assert!(check_includes("#include NAME", true).is_ok());
        assert!(check_includes("#include NAME", false).is_err());
    }
}
