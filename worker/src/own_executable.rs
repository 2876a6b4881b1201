//! This very program, for starting children of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names the running program also after its file was replaced by an upgrade: a child must be of the same build as its parent.
const RUNNING: &str = "/proc/self/exe";

/// `chosen`, or the program that runs.
pub fn or_running(chosen: Option<&Path>) -> PathBuf {
    chosen.unwrap_or(Path::new(RUNNING)).to_owned()
}

/// What `ps` and `top` show of this process. A child that was started through [`RUNNING`] is `exe` to them, which tells nobody
/// whose it is. The kernel keeps 15 bytes.
pub fn show_as(name: &str) {
    // Only a label: where it can't be set, the command line still tells.
    let _ = fs::write("/proc/self/comm", name);
}
