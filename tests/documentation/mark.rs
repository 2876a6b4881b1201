//! Marks of code blocks: HTML comments directly before them.

/// A mark, which readers of the rendered page don't see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// `<!-- not executed: REASON -->`
    NotExecuted(String),
    /// `<!-- file: NAME -->`: the block is written to this file, which a later command of the page uses.
    File(String),
    /// `<!-- type: NAME -->`: the JSON is read as this type of the wire contract.
    Type(String),
    /// `<!-- exits with: CODE -->`: the command, or the last one of several, fails as the page says.
    ExitsWith(i32),
    /// `<!-- runs until stopped: TEXT -->`: once it has printed the text, the command stays in the background until the
    /// page ends.
    RunsUntilStopped(String),
    /// `<!-- waits at most: COUNT -->`: the session of `gpufleet run` waits at most this often for an answer of the worker.
    WaitsAtMost(u64),
    /// `<!-- copy of: PATH -->`: the block has the text of this file of the repository, which the tests build or run.
    CopyOf(String),
}

impl Mark {
    /// Parses a comment; `None` if it is no mark.
    pub fn parse(comment: &str) -> Option<Self> {
        let inner = comment.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
        let (name, value) = inner.split_once(':')?;
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        match name.trim() {
            "not executed" if !value.is_empty() => Some(Self::NotExecuted(value)),
            "file" => Some(Self::File(value)),
            "type" => Some(Self::Type(value)),
            "exits with" => value.parse().ok().map(Self::ExitsWith),
            "runs until stopped" if !value.is_empty() => Some(Self::RunsUntilStopped(value)),
            "waits at most" => value.parse().ok().map(Self::WaitsAtMost),
            "copy of" => Some(Self::CopyOf(value)),
            _ => None,
        }
    }
}

/// The beginning of a generated page. `cargo xtask docs` compares such a page with the code.
const GENERATED: &str = "Generated from the code by";

/// Returns the reason in `<!-- page not executed: REASON -->`, which applies to all blocks of the page.
pub fn page_reason(comment: &str) -> Option<String> {
    let inner = comment.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    if inner.trim().starts_with(GENERATED) {
        return Some("part of a generated page".to_owned());
    }
    let reason = inner.trim().strip_prefix("page not executed:")?.trim();
    (!reason.is_empty()).then(|| reason.to_owned())
}
