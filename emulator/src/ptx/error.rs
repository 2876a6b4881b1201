//! Errors of loading PTX.

use std::fmt;

/// The reason why a program could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LoadError {
    /// Line of the PTX text, from 1; 0 if the error has no line.
    pub line: u32,
    pub kind: LoadErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadErrorKind {
    Syntax,
    UnsupportedOpcode,
    UnsupportedDirective,
    Unresolved,
    /// No linked text defines a name; the message has a line for each such name.
    Undefined,
    /// Two linked texts define one name.
    DefinedTwice,
    Target,
    OutOfMemory,
}

impl LoadError {
    pub(crate) fn new(line: u32, kind: LoadErrorKind, message: impl Into<String>) -> LoadError {
        LoadError { line, kind, message: message.into() }
    }

    pub(crate) fn syntax(line: u32, message: impl Into<String>) -> LoadError {
        LoadError::new(line, LoadErrorKind::Syntax, message)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}
