//! This very program, for starting children of it.

use std::path::{Path, PathBuf};

/// Names the running program also after its file was replaced by an upgrade: a child must be of the same build as its parent.
const RUNNING: &str = "/proc/self/exe";

/// `chosen`, or the program that runs.
pub fn or_running(chosen: Option<&Path>) -> PathBuf {
    chosen.unwrap_or(Path::new(RUNNING)).to_owned()
}
