//! Starts child processes of this program in another role.

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

/// Path of the running program. It stays valid when an upgrade replaces the file, because a child must be of the same build as its parent.
const RUNNING: &str = "/proc/self/exe";

/// The environment variables that children inherit, together with those of [`PASSED_ON_PREFIXES`]: they configure programs, loaders,
/// drivers and the emulator. Other variables may contain a secret, such as the broker's password or cloud credentials.
const PASSED_ON: [&str; 6] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ", "RUST_BACKTRACE"];
const PASSED_ON_PREFIXES: [&str; 5] = ["LD_", "LC_", "CUDA_", "NVIDIA_", "GPUFLEET_EMULATOR"];

/// Returns a command that starts this program in another role.
pub fn command(chosen: Option<&Path>, role: &str) -> Command {
    let mut command = Command::new(or_running(chosen));
    command.arg0("gpufleet-worker").arg(role);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy())));
    command
}

fn is_passed_on(name: &str) -> bool {
    PASSED_ON.contains(&name) || PASSED_ON_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Takes the socket to the supervisor, which is the standard input of a child.
pub fn supervisor_socket() -> io::Result<UnixStream> {
    let descriptor: OwnedFd = stdin().as_fd().try_clone_to_owned()?;
    let socket = UnixStream::from(descriptor);
    socket.peer_addr()?;
    Ok(socket)
}

/// Returns `chosen`, or else the running program.
pub fn or_running(chosen: Option<&Path>) -> PathBuf {
    chosen.unwrap_or(Path::new(RUNNING)).to_owned()
}

/// Sets the name that `ps` and `top` show. A child that was started through [`RUNNING`] would otherwise be called `exe`, which does not
/// identify it. The kernel keeps 15 bytes.
pub fn show_as(name: &str) {
    // An error is harmless, because the command line still identifies the process.
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
