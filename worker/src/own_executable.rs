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

/// What children see of the environment: what loaders, drivers and the emulator are configured by. Whatever else there is may be a secret,
/// such as the broker's address and password or a cloud's keys.
const PASSED_ON: [&str; 6] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ", "RUST_BACKTRACE"];
const PASSED_ON_PREFIXES: [&str; 5] = ["LD_", "LC_", "CUDA_", "NVIDIA_", "GPUFLEET_EMULATOR"];

/// This program in another role.
pub fn command(chosen: Option<&Path>, role: &str) -> Command {
    let mut command = Command::new(or_running(chosen));
    command.arg0("gpufleet-worker").arg(role);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy())));
    command
}

fn is_passed_on(name: &str) -> bool {
    PASSED_ON.contains(&name) || PASSED_ON_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_see_what_configures_the_device_and_no_secret() {
        assert!(
            ["PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "GPUFLEET_EMULATOR_THREADS"]
                .iter()
                .all(|name| is_passed_on(name))
        );
        assert!(!["GPUFLEET_AMQP_URL", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"].iter().any(|name| is_passed_on(name)));
    }
}
