//! Options that must not be printed.

use std::fmt;

use serde::Deserialize;

/// A text with a password or token. Neither errors nor debug output show it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret(pub String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
