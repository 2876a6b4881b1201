//! How many jobs or letters an action may name.

use gpufleet_service::problem::{Problem, ProblemKind};

/// As many as a list on a page; more are selected by a label with the command.
const TARGETS_MAX: usize = 1000;

pub(super) fn check_count(what: &str, count: usize) -> Result<(), Problem> {
    if (1..=TARGETS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::BadRequest,
        "The request has an invalid value",
        format!("{what}: expected 1 to {TARGETS_MAX} of them, found {count}"),
        "select fewer, or use the command `gpufleet`",
    ))
}
