//! Restricts this process's access to files, with Landlock. Processes that it starts have the same restrictions.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

/// Version of Landlock that every kernel with Landlock has. It covers reading, writing and executing.
const FIRST: ABI = ABI::V1;
/// The newest version that is used. It also covers renaming to other folders, truncation, device control, signals and abstract sockets.
const NEWEST: ABI = ABI::V6;

/// Restricts the process: from now on only these files and folders can be read, and nothing can be written. A missing path needs no rule.
/// Returns whether the kernel supports it.
pub(crate) fn allow_reading(readable: &[PathBuf]) -> io::Result<bool> {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(FIRST)).map_err(io::Error::other)?;
    let status = restrict(ruleset, FIRST, readable, &[]).map_err(io::Error::other)?;
    Ok(status == RulesetStatus::FullyEnforced)
}

/// Restricts the process to reading and executing the first files and folders, and using the second in every way, with the kernel's newest
/// version of Landlock. With `closes_processes` it also closes processes outside to signals, and their abstract sockets. A missing path needs
/// no rule. Returns whether the kernel has Landlock.
pub(crate) fn allow(readable: &[PathBuf], writable: &[PathBuf], closes_processes: bool) -> io::Result<bool> {
    let status = restrict_as_far_as_possible(readable, writable, closes_processes).map_err(io::Error::other)?;
    Ok(status != RulesetStatus::NotEnforced)
}

fn restrict_as_far_as_possible(
    readable: &[PathBuf],
    writable: &[PathBuf],
    closes_processes: bool,
) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    if closes_processes {
        ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
    }
    restrict(ruleset, NEWEST, readable, writable)
}

fn restrict(
    ruleset: Ruleset,
    version: ABI,
    readable: &[PathBuf],
    writable: &[PathBuf],
) -> Result<RulesetStatus, RulesetError> {
    let restricted = ruleset
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(version)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(version)))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}
