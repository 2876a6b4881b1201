//! Finds the first error in a compiler's log.

/// The file name that NVRTC reports for the user's code.
pub(crate) const FILE_NAME: &str = "kernel.cu";
/// Maximum length of a log that is kept, in bytes; the rest would be of no use to a person.
pub(super) const LOG_BYTES_MAX: usize = 64 << 10;

/// Start of the file name that NVRTC reports for name expressions, each of which is on a line of its own.
const EXPRESSIONS_FILE: &str = "__nv_name_map(";
const EXPRESSION_LINE: &str = "#pragma nv_mangled_name ";

/// Returns the first error of an NVRTC log as one line, and its line in the user's code.
///
/// ```text
/// kernel.cu(3): error: identifier "y" is undefined
/// ```
///
/// If the error is in a name expression, the text names that expression, which is the entry of a launch, instead of NVRTC's position.
pub(super) fn first_error(log: &str) -> Option<(String, Option<u32>)> {
    let mut lines = log.lines();
    let line = lines.find(|line| line.contains("error"))?.trim();
    if let Some((_, error)) = line.strip_prefix(EXPRESSIONS_FILE).and_then(|rest| rest.split_once("): "))
        && let Some(expression) = lines.next().and_then(|next| next.trim().strip_prefix(EXPRESSION_LINE))
    {
        return Some((format!("entry {expression}: {error}"), None));
    }
    Some((line.to_owned(), line_number(line)))
}

fn line_number(message: &str) -> Option<u32> {
    let rest = message.strip_prefix(FILE_NAME)?.strip_prefix('(')?;
    rest[..rest.find(')')?].parse().ok()
}

/// Cuts a log to its maximum length, at the end of a character.
pub(super) fn cut(mut log: String) -> String {
    if log.len() > LOG_BYTES_MAX {
        log.truncate(log.floor_char_boundary(LOG_BYTES_MAX));
        log.push_str("\n… (cut)");
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_and_its_line_are_found() {
        let log = "kernel.cu(2): warning #177-D: variable declared but never referenced\n\n\
                   kernel.cu(7): error: identifier \"y\" is undefined\n\n1 error detected\n";
        assert_eq!(first_error(log), Some(("kernel.cu(7): error: identifier \"y\" is undefined".to_owned(), Some(7))));
    }

    #[test]
    fn an_error_in_a_name_expression_is_told_with_the_expression() {
        let log = "__nv_name_map(2): error: identifier \"foo\" is undefined\n  #pragma nv_mangled_name a::k<foo,3>\n      ^\n\n\
                   2 errors detected in the compilation of \"kernel.cu\".\n";
        let (told, line) = first_error(log).unwrap();
        assert_eq!((told.as_str(), line), ("entry a::k<foo,3>: error: identifier \"foo\" is undefined", None));
    }

    #[test]
    fn an_error_without_a_place_has_no_line() {
        assert_eq!(first_error("nvrtc: error: invalid value for --std").unwrap().1, None);
        assert_eq!(first_error("cuda_fp16.h(12): error: x").unwrap().1, None);
        assert_eq!(first_error("all is well"), None);
    }
}
