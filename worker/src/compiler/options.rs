//! Which options of NVRTC a user may give.
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
    // A macro's text is no place for more lines.
    if option.contains(char::is_control) {
        return false;
    }
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
            "-DX=1\n#include \"/etc/passwd\"",
            "-DX=1\r#include \"/etc/passwd\"",
        ] {
            assert!(!allowed(option), "{option}");
        }
    }
}
