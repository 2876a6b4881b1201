//! The messages between the supervisor, the guard of a host program, and its init. They are frames ([`crate::ipc::frame`]).

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

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
    /// The folder of the virtual environment.
    pub environment: PathBuf,
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
    /// The program's whole environment.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) download: Vec<String>,
    /// The folder of the program's files.
    pub(super) files: PathBuf,
    /// The folder of the virtual environment.
    pub(super) environment: PathBuf,
    /// What the program can read beside the system's programs.
    pub(super) readable: Vec<PathBuf>,
    /// The device nodes of the leased GPU.
    pub(super) devices: Vec<PathBuf>,
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
}

/// A message of the init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromInit {
    /// The first message: the init has given up what the program may not have.
    Prepared,
    /// The first message of an init that can't, with the reason.
    Failed(String),
    Started,
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
