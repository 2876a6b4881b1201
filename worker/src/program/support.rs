//! Tells whether this machine can isolate programs, by running one.

use std::{
    collections::BTreeMap,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::geteuid;

use super::message::{FromGuard, HostEvent, ProgramSpec, ToGuard};
use crate::{
    ipc::frame::{self, FrameReader},
    own_executable,
};

/// Time limit for a message of the guard.
const DEADLINE: Duration = Duration::from_secs(30);

/// How this machine isolates programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// Whether the namespaces belong to a user namespace, because the worker is not root.
    pub user_namespace: bool,
}

/// A child that is killed when dropped.
struct Guard(Child);

/// Returns whether this machine can isolate programs; otherwise a sentence says what is missing and what to do. It takes some milliseconds.
pub fn support() -> Result<Support, String> {
    support_of(None)
}

/// Does the same with a guard of this executable; by default the running one.
pub fn support_of(executable: Option<&Path>) -> Result<Support, String> {
    let failed = |error: io::Error| format!("failed to check whether this machine can isolate programs: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let (socket, theirs) = UnixStream::pair().map_err(failed)?;
    socket.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    let mut command = own_executable::command(executable, "program");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let guard = Guard(command.spawn().map_err(failed)?);
    drop(command);
    let outcome = run_true(&socket, folder.path()).map_err(failed)?;
    // It is killed before its folder is removed.
    drop(guard);
    match outcome {
        HostEvent::Ended { exit_code: Some(0), .. } => Ok(Support { user_namespace: !geteuid().is_root() }),
        HostEvent::Refused(reason) | HostEvent::Died(reason) => Err(reason),
        other => Err(format!(
            "a program that does nothing failed in isolation: {other:?}; start the worker on another machine"
        )),
    }
}

/// Runs `true`. Returns the last event.
fn run_true(socket: &UnixStream, folder: &Path) -> io::Result<HostEvent> {
    let spec = ProgramSpec {
        command: vec!["true".to_owned()],
        variables: BTreeMap::new(),
        download: vec!["**".to_owned()],
        folder: folder.to_owned(),
        environment: "/usr".into(),
        device_uuid: String::new(),
        // With a folder of its own for the driver, the check needs no GPU.
        driver_folder: Some("/usr/lib".into()),
        network: false,
        user: None,
        file_bytes_max: 1 << 20,
    };
    let write = |message: &ToGuard| frame::write(socket, message).map_err(io::Error::other);
    frame::write(socket, &spec).map_err(io::Error::other)?;
    let mut reader = FrameReader::over(socket.try_clone()?);
    loop {
        let message = reader.read().map_err(io::Error::other)?.map(|(message, _)| message);
        match message.ok_or_else(|| io::Error::other("the guard died"))? {
            FromGuard::Ready { .. } => write(&ToGuard::Go)?,
            FromGuard::Failed(reason) => return Ok(HostEvent::Died(reason)),
            FromGuard::Event(event) if event.is_last() => return Ok(event),
            FromGuard::Event(_) => {}
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it has ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
