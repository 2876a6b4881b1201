//! Parses and checks a user's NVRTC options in all their spellings, by the table in [`table`].
//!
//! An option with a value may be written as `--name=value`, as `--name value`, or as two options; `-D`, `-U` and `-I` may also have the
//! value attached. All spellings are converted to NVRTC's long name with `=`, so that equal requests share a cache entry. NVRTC itself
//! accepts some of these spellings only for some options.

use gpufleet_kernels::spelling;
use gpufleet_schema::Size;

mod table;

pub use table::{CompileOption, OPTIONS, OptionVerdict, Value};

/// Maximum length of a macro's value, in bytes. NVRTC accepts any length, but longer data belongs in a buffer.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// The canonical names of options that add the code's line numbers to the PTX.
const LINES: [&str; 2] = ["--generate-line-info", "--device-debug"];

/// Converts options to the canonical form. The error is the reason for the first option that is not allowed.
pub(super) fn canonical(options: &[String]) -> Result<Vec<String>, String> {
    let mut given = options.iter();
    let mut canonical = Vec::with_capacity(options.len());
    while let Some(text) = given.next() {
        if text.contains(char::is_control) {
            return Err(format!("option {text:?} contains a control character"));
        }
        let (option, attached) = find(text).ok_or_else(|| unknown(text))?;
        if let OptionVerdict::Refused(why) = option.verdict {
            return Err(format!("option {text:?} is not allowed: {why}"));
        }
        let value = match (option.value, attached) {
            (Value::None, None) => None,
            (Value::None, Some(_)) => return Err(format!("option {text:?} takes no value; write {}", option.names[0])),
            (_, Some(value)) => Some(value),
            (_, None) => Some(given.next().map(String::as_str).ok_or_else(|| missing(option))?),
        };
        if let Some(value) = value {
            check_value(option, value)?;
        }
        if matches!(option.verdict, OptionVerdict::Allowed) {
            canonical.push(value.map_or_else(|| option.names[0].to_owned(), |value| option.with(value)));
        }
    }
    Ok(canonical)
}

/// Returns the option that adds the code's line numbers to the PTX, unless the user's canonical options already do that. It changes no
/// instruction, and a fault report can then name the line.
pub(super) fn line_information(options: &[String]) -> Option<&'static str> {
    let told = options.iter().any(|option| LINES.contains(&option.as_str()));
    (!told).then_some(LINES[0])
}

/// Returns the table's entry for an option, and the value if the text contains one.
fn find(text: &str) -> Option<(&'static CompileOption, Option<&str>)> {
    let named = |name: &str| OPTIONS.iter().find(|option| option.names.contains(&name));
    if let Some(option) = named(text) {
        return Some((option, None));
    }
    let split = text.split_once(['=', ' ']).and_then(|(name, value)| Some((named(name)?, Some(value.trim_start()))));
    split.or_else(|| {
        OPTIONS.iter().find_map(|option| {
            let value = text.strip_prefix(option.attached?)?;
            Some((option, Some(value)))
        })
    })
}

fn check_value(option: &CompileOption, value: &str) -> Result<(), String> {
    let name = option.names[0];
    if value.len() > VALUE_BYTES_MAX {
        let (given, max) = (Size(value.len() as u64), Size(VALUE_BYTES_MAX as u64));
        return Err(format!("option {name}: the value takes {given}; the maximum is {max}"));
    }
    if value.contains(char::is_control) {
        return Err(format!("option {name}: the value {value:?} contains a control character"));
    }
    if option.value.accepts(value) {
        return Ok(());
    }
    let why = if option.note.is_empty() { String::new() } else { format!("; {}", option.note) };
    Err(format!("option {name} does not accept {value:?}; use {}{why}", option.value))
}

fn missing(option: &CompileOption) -> String {
    format!("option {} needs a value: {}", option.names[0], option.value)
}

fn unknown(text: &str) -> String {
    let plain = |name: &str| name.trim_start_matches('-').replace('-', "_").to_ascii_lowercase();
    let typed = plain(text.split(['=', ' ']).next().unwrap_or_default());
    let known = OPTIONS.iter().filter(|option| !matches!(option.verdict, OptionVerdict::Refused(_)));
    // One-letter names are left out, because they are similar to everything.
    let names: Vec<(String, &str)> = known
        .flat_map(|option| option.names)
        .map(|name| (plain(name), *name))
        .filter(|(plain, _)| plain.len() > 1)
        .collect();
    let nearest = spelling::closest(&typed, names.iter().map(|(plain, _)| plain.as_str()));
    match names.iter().find(|(plain, _)| Some(plain.as_str()) == nearest) {
        Some((_, meant)) => format!("NVRTC has no option {text:?}; did you mean {meant}?"),
        None => format!(
            "this worker does not accept option {text:?}; remove it. It accepts macros (-D, -U), --std, and options for arithmetic, \
             registers, debugging and diagnostics"
        ),
    }
}

#[cfg(test)]
mod tests;
