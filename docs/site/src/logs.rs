//! Log messages that pages quote: each is one of a program's.
//!
//! A block of the language `log` has a line for each message: its level, its target and the message, as a program writes them without
//! fields. Levels and targets are not checked.

use std::{fs, path::Path};

use anyhow::Context as _;

use crate::page::Page;

/// Where the programs' messages are.
const SOURCES: [&str; 3] = ["worker/src", "ledger/src", "transport/src"];
const FENCE: &str = "```log";

/// The text of the programs that log.
pub struct Sources(String);

impl Sources {
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut text = String::new();
        for folder in SOURCES {
            gather(&root.join(folder), &mut text)?;
        }
        Ok(Self(joined(&text)))
    }

    fn has(&self, message: &str) -> bool {
        self.0.contains(message)
    }
}

pub fn faults(pages: &[Page], sources: &Sources) -> Vec<String> {
    pages.iter().flat_map(|page| page_faults(page, sources)).collect()
}

fn page_faults(page: &Page, sources: &Sources) -> Vec<String> {
    let path = page.path.display();
    let unknown = quoted(&page.text).filter(|(_, message)| !sources.has(message));
    unknown.map(|(number, message)| format!("{path}:{number}: no program logs {message:?}")).collect()
}

/// The quoted messages with the numbers of their lines.
fn quoted(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_log = false;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter_map(move |(number, line)| {
        if line.starts_with("```") {
            in_log = line == FENCE;
            return None;
        }
        in_log.then(|| (number, message(line)))
    })
}

/// What follows the level and the target; of a line without them, all.
fn message(line: &str) -> &str {
    line.split_once(": ").map_or(line, |(_, message)| message)
}

/// String literals that go on in the next line are one line.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| joined + part.trim_start())
}

fn gather(folder: &Path, text: &mut String) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("failed to read {}", folder.display()))?.path();
        if path.is_dir() {
            gather(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_message_that_no_program_logs_is_a_fault() {
        let sources = Sources(joined("warn!(%error, \"recording is \\\n    tried again\");"));
        let page = |text: &str| Page::parse("runbooks.md".into(), text.to_owned());
        let known =
            page("1. Look:\n\n   ```log\n   WARN gpufleet_ledger::recorder: recording is tried again\n   ```\n");
        assert_eq!(faults(&[known], &sources), [] as [&str; 0]);
        let unknown = page("```log\nWARN gpufleet_ledger::recorder: recording sleeps\n```\n\n```text\nanything\n```\n");
        assert_eq!(faults(&[unknown], &sources), ["runbooks.md:2: no program logs \"recording sleeps\""]);
    }
}
