//! An error for a person: what failed, why, and what to do next.

pub use gpufleet_service::chain;

use super::{exit::Exit, output::visible};

/// An error for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub exit: Exit,
    /// What failed and why, on one line unless a cause has several.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// A longer text below the message, such as a compile log or a source line.
    pub detail: Option<String>,
    /// Whether the same request may succeed later, because a service is away for a while.
    pub may_pass: bool,
}

impl Complaint {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, detail: None, may_pass: false }
    }

    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::new(Exit::BadInput, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The text for stderr.
    pub fn render(&self, colour: bool) -> String {
        let paint =
            |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() };
        let mut text = format!("{} {}\n", paint("1;31", "error:"), visible(&self.message));
        for line in self.detail.iter().flat_map(|detail| detail.lines()) {
            text.push_str(format!("  {}", visible(line)).trim_end());
            text.push('\n');
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{} {}\n", paint("1;36", "hint:"), visible(hint).replace('\n', "\n      ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_message_a_detail_and_a_hint() {
        let complaint = Complaint::bad_input("failed to read x.npy: No such file or directory")
            .detail("first\nsecond")
            .hint("look here\nor there");
        insta::assert_snapshot!(complaint.render(false), @r"
        error: failed to read x.npy: No such file or directory
          first
          second
        hint: look here
              or there
        ");
        assert!(complaint.render(true).starts_with("\x1b[1;31merror:\x1b[0m failed"));
    }
}
