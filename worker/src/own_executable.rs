//! This very program, for starting children of it.

use std::{
    env, fs,
    io::{self, stdin},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
};

/// Names the running program also after its file was replaced by an upgrade: a child must be of the same build as its parent.
const RUNNING: &str = "/proc/self/exe";

/// Variables that children must not see, such as the broker's address and password: everything of ours but what configures the
/// emulator.
const OUR_VARIABLES: &str = "GPUFLEET_";
const EMULATOR_VARIABLES: &str = "GPUFLEET_EMULATOR";

/// This program in another role.
pub fn command(chosen: Option<&Path>, role: &str) -> Command {
    let mut command = Command::new(or_running(chosen));
    command.arg0("gpufleet-worker").arg(role);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with(OUR_VARIABLES) && !text.starts_with(EMULATOR_VARIABLES) {
            command.env_remove(&name);
        }
    }
    command
}

/// The socket to the supervisor, for a child: its standard input.
pub fn supervisor_socket() -> io::Result<UnixStream> {
    let descriptor: OwnedFd = stdin().as_fd().try_clone_to_owned()?;
    let socket = UnixStream::from(descriptor);
    socket.peer_addr()?;
    Ok(socket)
}

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
