//! What a compiler's log says first.

/// The file name under which NVRTC knows the user's code.
pub(super) const FILE_NAME: &str = "kernel.cu";
/// A log longer than this says nothing more to a person.
pub(super) const LOG_BYTES_MAX: usize = 64 << 10;

/// The first error of an NVRTC log, as one line, and its line in the user's code.
///
/// ```text
/// kernel.cu(3): error: identifier "y" is undefined
/// ```
pub(super) fn first_error(log: &str) -> Option<(String, Option<u32>)> {
    let line = log.lines().find(|line| line.contains("error"))?.trim();
    Some((line.to_owned(), line_number(line)))
}

fn line_number(message: &str) -> Option<u32> {
    let rest = message.strip_prefix(FILE_NAME)?.strip_prefix('(')?;
    rest[..rest.find(')')?].parse().ok()
}

/// Cuts a log at a character's end.
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
    fn an_error_without_a_place_has_no_line() {
        assert_eq!(first_error("nvrtc: error: invalid value for --std").unwrap().1, None);
        assert_eq!(first_error("cuda_fp16.h(12): error: x").unwrap().1, None);
        assert_eq!(first_error("all is well"), None);
    }
}
