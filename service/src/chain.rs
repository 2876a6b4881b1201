//! Errors in words.

use std::error::Error;

/// An error and its causes on one line. A cause that its parent already contains appears once.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_appears_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("failed to open: {source}")]
        struct Outer {
            source: std::io::Error,
        }
        let error = Outer { source: std::io::Error::other("it is locked") };
        assert_eq!(chain(&error), "failed to open: it is locked");
    }
}
