//! Tells whether this machine can isolate programs, by running one.

use std::{
    collections::BTreeMap,
    env, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::geteuid;

use super::{
    message::{ContainerSpec, FromGuard, HostEvent, Place, ProgramSpec, ToGuard},
    podman,
};
use crate::{
    ipc::frame::{self, FrameReader},
    own_executable,
};

/// Time limit for a message of the guard. A container of a large image may take some time if podman copies it.
const DEADLINE: Duration = Duration::from_secs(120);
/// A command that is in no image.
const NO_COMMAND: &str = "/gpufleet/no-such-command";

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
    match trial(executable, "true", Place::Environment("/usr".into()), &env::temp_dir())? {
        HostEvent::Ended { exit_code: Some(0), .. } => Ok(Support { user_namespace: !geteuid().is_root() }),
        HostEvent::Refused(reason) | HostEvent::Died(reason) => Err(reason),
        other => Err(format!(
            "a program that does nothing failed in isolation: {other:?}; start the worker on another machine"
        )),
    }
}

/// Checks that programs can run in this container, with their folders in `parent`. It takes about a second. The command of the check is in no
/// image: that podman does not find it shows that all the rest works.
pub fn container_support(executable: Option<&Path>, container: ContainerSpec, parent: &Path) -> Result<(), String> {
    let found = podman::not_found(NO_COMMAND, &container.image);
    match trial(executable, NO_COMMAND, Place::Container(Box::new(container)), parent)? {
        HostEvent::Refused(reason) if reason == found => Ok(()),
        HostEvent::Refused(reason) | HostEvent::Died(reason) => Err(reason),
        other => Err(format!("podman did not refuse a command that does not exist: {other:?}; use another image")),
    }
}

/// Runs a command in a folder that is made for it. Returns the last event.
fn trial(executable: Option<&Path>, command: &str, place: Place, parent: &Path) -> Result<HostEvent, String> {
    let failed = |error: io::Error| format!("failed to check whether this machine can isolate programs: {error}");
    let folder = tempfile::tempdir_in(parent).map_err(failed)?;
    let (socket, theirs) = UnixStream::pair().map_err(failed)?;
    socket.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    let mut guard = own_executable::command(executable, "program");
    guard.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Guard(guard.spawn().map_err(failed)?);
    drop(guard);
    let outcome = run(&socket, command, place, folder.path()).map_err(failed)?;
    // It is killed before its folder is removed.
    drop(child);
    Ok(outcome)
}

fn run(socket: &UnixStream, command: &str, place: Place, folder: &Path) -> io::Result<HostEvent> {
    let spec = ProgramSpec {
        command: vec![command.to_owned()],
        variables: BTreeMap::new(),
        download: vec!["**".to_owned()],
        folder: folder.to_owned(),
        place,
        cgroup: Vec::new(),
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
