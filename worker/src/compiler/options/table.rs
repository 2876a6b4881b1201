//! Every option of NVRTC 12.9, and whether it is allowed.
//!
//! Options that only change the generated code or its diagnostics are allowed. Options are refused if they read or write files, if they
//! make something other than a module that the driver can load, or if they choose the target, which the device determines.

use std::fmt;

/// One option of NVRTC.
#[derive(Debug)]
pub struct CompileOption {
    /// All names of the option; NVRTC gets the first.
    pub names: &'static [&'static str],
    /// The name that the value may follow directly, as in `-DNAME`.
    pub attached: Option<&'static str>,
    pub value: Value,
    pub verdict: OptionVerdict,
    /// The advice for a value that is not accepted.
    pub note: &'static str,
}

/// What happens to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionVerdict {
    Allowed,
    /// Checked, but not passed on, because it has no effect here.
    Ignored,
    /// Refused, with the reason and an alternative.
    Refused(&'static str),
}

/// The kind of value that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    None,
    Bool,
    OneOf(&'static [&'static str]),
    Number {
        min: u32,
        max: u32,
    },
    /// Numbers of diagnostics, separated by commas.
    Diagnostics,
    /// `NAME` or `NAME=TEXT`.
    Macro,
    Identifier,
    /// Letters and digits.
    Word,
    /// Any value; for an option that is always refused.
    Any,
}

const DEVICE_CHOOSES: &str =
    "the worker compiles for the device that runs the job; state device requirements in `requires`";
const READS_FILES: &str =
    "it reads files on the worker; CUDA's own headers need no path, and all other text belongs in the code";
const WRITES_FILES: &str = "it writes a file on the worker, which the job does not return";
const PCH: &str = "precompiled headers are files on the worker; remove it, because the worker caches whole programs";
const NOT_LOADABLE: &str =
    "its output must be linked before a driver can load it, and the worker does not link; remove it";
const NO_CODE: &str = "it produces no code that a driver can load; remove it";
const OF_NVCC: &str = "it is an option of nvcc, not of NVRTC; remove it";
const OPTIMISES: &str = "it is an option of nvcc; NVRTC optimises by default, and --device-debug disables that";

const fn flag(names: &'static [&'static str]) -> CompileOption {
    CompileOption { names, attached: None, value: Value::None, verdict: OptionVerdict::Allowed, note: "" }
}

const fn with(names: &'static [&'static str], value: Value) -> CompileOption {
    CompileOption { value, ..flag(names) }
}

const fn noted(names: &'static [&'static str], value: Value, note: &'static str) -> CompileOption {
    CompileOption { note, ..with(names, value) }
}

const fn attached(names: &'static [&'static str], short: &'static str, value: Value) -> CompileOption {
    CompileOption { attached: Some(short), ..with(names, value) }
}

const fn refused(names: &'static [&'static str], why: &'static str) -> CompileOption {
    CompileOption { verdict: OptionVerdict::Refused(why), ..with(names, Value::Any) }
}

/// All options.
pub static OPTIONS: &[CompileOption] = &[
    // Macros and the language.
    attached(&["--define-macro", "-define-macro", "-D"], "-D", Value::Macro),
    attached(&["--undefine-macro", "-undefine-macro", "-U"], "-U", Value::Identifier),
    with(&["--std", "-std"], Value::OneOf(&["c++17", "c++03", "c++11", "c++14", "c++20"])),
    with(&["--builtin-move-forward", "-builtin-move-forward"], Value::Bool),
    with(&["--builtin-initializer-list", "-builtin-initializer-list"], Value::Bool),
    flag(&["--device-as-default-execution-space", "-default-device"]),
    flag(&["--device-int128", "-device-int128"]),
    flag(&["--device-float128", "-device-float128"]),
    flag(&["--minimal", "-minimal"]),
    flag(&["--no-source-include", "-no-source-include"]),
    // Arithmetic.
    flag(&["--use_fast_math", "-use_fast_math"]),
    with(&["--ftz", "-ftz"], Value::Bool),
    with(&["--prec-div", "-prec-div"], Value::Bool),
    with(&["--prec-sqrt", "-prec-sqrt"], Value::Bool),
    with(&["--fmad", "-fmad"], Value::Bool),
    // Optimisation.
    flag(&["--extra-device-vectorization", "-extra-device-vectorization"]),
    flag(&["--restrict", "-restrict"]),
    noted(&["--dopt", "-dopt"], Value::OneOf(&["on"]), "--device-debug disables optimisation"),
    with(&["--Ofast-compile", "-Ofc"], Value::OneOf(&["0", "min", "mid", "max"])),
    // A thread has 255 registers at most.
    with(&["--maxrregcount", "-maxrregcount"], Value::Number { min: 1, max: 255 }),
    with(&["--jump-table-density", "-jtd"], Value::Number { min: 0, max: 101 }),
    with(&["--frandom-seed", "-frandom-seed"], Value::Word),
    with(&["--device-stack-protector", "-device-stack-protector"], Value::Bool),
    noted(
        &["--ptxas-options", "-ptxas-options", "-Xptxas"],
        Value::OneOf(&[
            "-v",
            "-O0",
            "-O1",
            "-O2",
            "-O3",
            "-dlcm=ca",
            "-dlcm=cg",
            "-dlcm=cs",
            "-dlcm=cv",
            "--verbose",
            "--warn-on-spills",
            "--warn-on-local-memory-usage",
            "--warn-on-double-precision-use",
        ]),
        "other ptxas options can read and write files",
    ),
    // Not passed on, because the sandboxed compiler can't start threads, and the generated code does not depend on it.
    CompileOption {
        verdict: OptionVerdict::Ignored,
        ..with(&["--split-compile", "-split-compile"], Value::Number { min: 0, max: 1024 })
    },
    // Not passed on, because the compiler has no access to a cache of its own and can't change its stack limit.
    CompileOption { verdict: OptionVerdict::Ignored, ..flag(&["--no-cache", "-no-cache"]) },
    CompileOption {
        verdict: OptionVerdict::Ignored,
        ..with(&["--modify-stack-limit", "-modify-stack-limit"], Value::Bool)
    },
    // Debugging and diagnostics.
    flag(&["--device-debug", "-device-debug", "-G"]),
    flag(&["--generate-line-info", "-generate-line-info", "-lineinfo"]),
    flag(&["--disable-warnings", "-disable-warnings", "-w"]),
    flag(&["--display-error-number", "-display-error-number", "-err-no"]),
    flag(&["--no-display-error-number", "-no-display-error-number", "-no-err-no"]),
    with(&["--diag-error", "-diag-error"], Value::Diagnostics),
    with(&["--diag-suppress", "-diag-suppress"], Value::Diagnostics),
    with(&["--diag-warn", "-diag-warn"], Value::Diagnostics),
    with(&["--brief-diagnostics", "-brief-diag"], Value::Bool),
    with(&["--optimization-info", "-opt-info"], Value::OneOf(&["inline"])),
    noted(
        &["--version-ident", "-version-ident", "-dQ"],
        Value::OneOf(&["false"]),
        "NVRTC's own assembler rejects the PTX that true produces",
    ),
    // The kind of code: only code that a driver loads unchanged is allowed.
    noted(
        &["--relocatable-device-code", "-relocatable-device-code", "--rdc", "-rdc"],
        Value::OneOf(&["false"]),
        NOT_LOADABLE,
    ),
    flag(&["--device-w", "-dw"]),
    refused(&["--device-c", "-dc"], NOT_LOADABLE),
    refused(&["--extensible-whole-program", "-ewp"], NOT_LOADABLE),
    refused(&["--dlink-time-opt", "-dlink-time-opt", "-dlto"], NO_CODE),
    refused(&["--gen-opt-lto", "-gen-opt-lto"], NO_CODE),
    refused(&["--optix-ir", "-optix-ir"], NO_CODE),
    refused(&["--fdevice-syntax-only", "-fdevice-syntax-only"], NO_CODE),
    refused(&["--gpu-architecture", "-gpu-architecture", "-arch", "--arch"], DEVICE_CHOOSES),
    refused(&["--gpu-code", "-gpu-code", "-code", "--generate-code", "-gencode"], DEVICE_CHOOSES),
    // Files.
    CompileOption { attached: Some("-I"), ..refused(&["--include-path", "-include-path", "-I"], READS_FILES) },
    refused(&["--pre-include", "-pre-include", "--include", "-include"], READS_FILES),
    refused(&["--system-include", "-isystem"], READS_FILES),
    refused(&["--options-file", "-optf"], READS_FILES),
    refused(&["--time", "-time"], WRITES_FILES),
    refused(
        &["--device-time-trace", "-device-time-trace", "--fdevice-time-trace", "-fdevice-time-trace"],
        WRITES_FILES,
    ),
    refused(&["--pch", "-pch"], PCH),
    refused(&["--create-pch", "-create-pch"], PCH),
    refused(&["--use-pch", "-use-pch"], PCH),
    refused(&["--pch-dir", "-pch-dir"], PCH),
    refused(&["--pch-verbose", "-pch-verbose"], PCH),
    refused(&["--pch-messages", "-pch-messages"], PCH),
    refused(&["--instantiate-templates-in-pch", "-instantiate-templates-in-pch"], PCH),
    // Options that users know from nvcc.
    CompileOption { attached: Some("-O"), ..refused(&["--optimize", "-O"], OPTIMISES) },
    refused(&["--compiler-options", "-Xcompiler"], OF_NVCC),
    refused(&["--expt-relaxed-constexpr", "-expt-relaxed-constexpr"], OF_NVCC),
    refused(&["--extended-lambda", "-extended-lambda", "--expt-extended-lambda", "-expt-extended-lambda"], OF_NVCC),
];

impl CompileOption {
    /// Returns the option with this value, as NVRTC gets it.
    pub fn with(&self, value: &str) -> String {
        format!("{}={value}", self.names[0])
    }

    /// Returns every spelling of the option with this value, each as a list of options.
    pub fn spellings(&self, value: Option<&str>) -> Vec<Vec<String>> {
        let Some(value) = value else { return self.names.iter().map(|name| vec![(*name).to_owned()]).collect() };
        let mut spellings = Vec::new();
        for name in self.names {
            spellings.push(vec![format!("{name}={value}")]);
            spellings.push(vec![format!("{name} {value}")]);
            spellings.push(vec![(*name).to_owned(), value.to_owned()]);
        }
        spellings.extend(self.attached.map(|short| vec![format!("{short}{value}")]));
        spellings
    }
}

impl Value {
    pub fn accepts(self, value: &str) -> bool {
        let is_number = |text: &str, min, max| {
            text.bytes().all(|byte| byte.is_ascii_digit())
                && text.parse::<u32>().is_ok_and(|number| (min..=max).contains(&number))
        };
        match self {
            Self::None => false,
            Self::Bool => matches!(value, "true" | "false"),
            Self::OneOf(values) => values.contains(&value),
            Self::Number { min, max } => is_number(value, min, max),
            Self::Diagnostics => value.split(',').all(|number| is_number(number, 1, u32::MAX)),
            Self::Macro => is_identifier(value.split_once('=').map_or(value, |(name, _)| macro_name(name))),
            Self::Identifier => is_identifier(value),
            Self::Word => !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            Self::Any => true,
        }
    }

    /// Returns accepted values, for tests with NVRTC.
    pub fn samples(self) -> Vec<Option<String>> {
        let texts: Vec<String> = match self {
            Self::None => return vec![None],
            Self::Bool => vec!["true".into(), "false".into()],
            Self::OneOf(values) => values.iter().map(|value| (*value).to_owned()).collect(),
            Self::Number { min, max } => vec![min.to_string(), max.to_string()],
            Self::Diagnostics => vec!["177".into(), "177,550".into()],
            Self::Macro => vec!["N".into(), "N=2".into(), "F(x)=x + 1".into()],
            Self::Identifier => vec!["N".into()],
            Self::Word => vec!["seed1".into()],
            Self::Any => vec!["x".into()],
        };
        texts.into_iter().map(Some).collect()
    }
}

/// Returns the name of a macro, which may have parameters.
fn macro_name(definition: &str) -> &str {
    match definition.split_once('(') {
        Some((name, parameters)) if parameters.ends_with(')') => name,
        _ => definition,
    }
}

fn is_identifier(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_letter) && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no value"),
            Self::Bool => f.write_str("true or false"),
            Self::OneOf([only]) => f.write_str(only),
            Self::OneOf(values) => write!(f, "one of {}", values.join(", ")),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Diagnostics => f.write_str("diagnostic numbers, separated by commas"),
            Self::Macro => f.write_str("NAME or NAME=TEXT"),
            Self::Identifier => f.write_str("the name of a macro"),
            Self::Word => f.write_str("letters and digits"),
            Self::Any => f.write_str("any value"),
        }
    }
}
