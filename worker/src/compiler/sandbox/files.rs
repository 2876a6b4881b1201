//! Restricts this process's access to files, with Landlock.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    path_beneath_rules,
};

/// Version of Landlock that is used. Every kernel with Landlock has it, and it covers reading, writing and executing.
const VERSION: ABI = ABI::V1;

/// Restricts the process: from now on only these files and folders can be read, and nothing can be written. A missing path needs no rule.
/// Returns whether the kernel supports it.
pub(super) fn close(readable: &[PathBuf]) -> io::Result<bool> {
    let status = restrict(readable).map_err(io::Error::other)?;
    Ok(status == RulesetStatus::FullyEnforced)
}

fn restrict(readable: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(VERSION)))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}
