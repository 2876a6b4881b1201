//! The messages between the supervisor, the guard of a host program, and its init. They are frames ([`crate::ipc::frame`]).

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::podman::Podman;
use crate::ipc::frame::{self, Frame, FrameError};

/// What the guard must run. It is the first message to the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    pub command: Vec<String>,
    /// Variables of the user's task.
    pub variables: BTreeMap<String, String>,
    /// Globs of the files that come back, relative to the folder of files.
    pub download: Vec<String>,
    /// The work folder of this run. The supervisor made it with mode 0700. It has `upload.tar` if the task has files. The guard makes
    /// `files/` in it, and writes `log` and `files.tar`.
    pub folder: PathBuf,
    pub place: Place,
    /// The files by which the program enters its cgroup, if it has one and nothing else moves it there.
    pub cgroup: Vec<PathBuf>,
    /// The device's UUID as in `nvidia-smi -L`.
    pub device_uuid: String,
    /// The folder of the CUDA driver library if it is not the system's, as with the emulated device.
    pub driver_folder: Option<PathBuf>,
    /// Whether the program may use the network.
    pub network: bool,
    /// The user that the program runs as if the worker is root. The default is `nobody`.
    pub user: Option<String>,
    /// Maximum size of the files that are unpacked, and of `files.tar`, in bytes.
    pub file_bytes_max: u64,
}

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the folder of a virtual environment.
    Environment(PathBuf),
    Container(Box<ContainerSpec>),
}

/// The container that a program runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub podman: Podman,
    pub image: String,
    /// A name that no other container of this machine has.
    pub name: String,
    /// The cgroup that its cgroups are made in. The limits are those of that one.
    pub cgroup_parent: Option<String>,
    /// The memory limit, to be shown in the container's own group.
    pub memory_bytes: Option<u64>,
    /// The size of `/dev/shm`.
    pub shm_bytes: Option<u64>,
    pub pids: Option<u64>,
}

/// What happened to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostEvent {
    /// The command runs.
    Started,
    /// At most 64 KiB of the program's output.
    Output(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The last event of a command that could not be started, or whose files could not be unpacked: why, and what the user can do.
    Refused(String),
    /// The last event of a command that ran. Nothing of it is left, and its files are packed.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        /// The size of `files.tar` in bytes, none if the task wants no files back, or why there is no archive.
        packed: Result<Option<u64>, String>,
        /// The size of `log`.
        log_bytes: u64,
        /// Output that is not in `log`, because that is full.
        log_dropped_bytes: u64,
    },
    /// The last event of a program whose guard or init died: why, for people. Nothing of the program is left.
    Died(String),
}

impl HostEvent {
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Started | Self::Output(_) => false,
            Self::Refused(_) | Self::Ended { .. } | Self::Died(_) => true,
        }
    }
}

/// A message of the supervisor, after the [`ProgramSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToGuard {
    /// The supervisor watches the init. Run the program.
    Go,
    /// Send SIGTERM to the program's processes, and SIGKILL after the grace period.
    Stop { grace_ms: u64 },
}

/// A message of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromGuard {
    /// The first message: the init waits in its namespaces. This is its process id outside.
    Ready {
        init: u32,
    },
    /// The first message of a guard that can't isolate the program, with the reason.
    Failed(String),
    Event(HostEvent),
}

/// What the init must run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InitSpec {
    pub(super) command: Vec<String>,
    /// The program's whole environment, or in a container what it has beside that of the image.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) download: Vec<String>,
    /// The folder of the program's files.
    pub(super) files: PathBuf,
    /// The folder of a container's storage.
    pub(super) storage: PathBuf,
    pub(super) place: Place,
    /// What the program can read beside the system's programs.
    pub(super) readable: Vec<PathBuf>,
    /// The device nodes of the leased GPU.
    pub(super) devices: Vec<PathBuf>,
    /// The leased GPU of a container as CDI names it, unless it has a driver of its own.
    pub(super) gpu: Option<String>,
    pub(super) driver_folder: Option<PathBuf>,
    pub(super) network: bool,
    pub(super) user: Option<String>,
    pub(super) file_bytes_max: u64,
}

/// A message of the guard to the init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToInit {
    /// The first message.
    Prepare(Box<InitSpec>),
    /// With the descriptor of the archive to unpack.
    Upload,
    /// With the descriptor of the file for the packed files.
    Archive,
    Go,
    Stop {
        grace_ms: u64,
    },
    /// The launcher has started the command in a container.
    ContainerStarted,
    /// The command in the container has ended.
    ContainerEnded {
        exit_code: i32,
    },
}

impl ToInit {
    /// Sends the message, with a descriptor if it goes with one.
    pub(super) fn send(&self, socket: &UnixStream, file: Option<OwnedFd>) -> Result<(), FrameError> {
        let Frame { bytes, descriptor } = Frame::encode(self, file)?;
        let Some(descriptor) = descriptor else { return frame::write(socket, self) };
        match frame::send(socket, &bytes, Some(descriptor.as_fd()))? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(FrameError::Io(io::ErrorKind::WriteZero.into())),
        }
    }
}

/// A message of the init, or of the launcher in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromInit {
    /// The first message: the init has given up what the program may not have.
    Prepared,
    /// The first message of an init that can't, with the reason, or the last one of a launcher whose podman fails.
    Failed(String),
    /// The files of a program in a container are unpacked. The launcher may start it.
    Unpacked,
    Started,
    /// The last message of a launcher whose container did not start. The program's output says why.
    NotStarted,
    /// The last message of an init whose command could not be started.
    Refused(String),
    /// The last message. The init is the only process left.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        packed: Result<Option<u64>, String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::frame;

    #[test]
    fn output_is_encoded_as_bytes_and_decoded_as_it_was() {
        let bytes: Vec<u8> = (0..=255).collect();
        let ended = HostEvent::Ended {
            exit_code: None,
            signal: Some(9),
            packed: Err("no space left".to_owned()),
            log_bytes: 3,
            log_dropped_bytes: u64::MAX,
        };
        for event in [HostEvent::Started, HostEvent::Output(bytes), ended, HostEvent::Died("x".to_owned())] {
            let message = FromGuard::Event(event);
            let encoded = rmp_serde::to_vec(&message).unwrap();
            assert!(encoded.len() < 300, "{}", encoded.len());
            assert_eq!(frame::decode::<FromGuard>(&encoded).unwrap(), message);
        }
    }
}
