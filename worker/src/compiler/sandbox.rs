//! The sandbox of the compiler child, entered before it reads untrusted code.
//!
//! | layer | blocks | by | without kernel support |
//! | --- | --- | --- | --- |
//! | [`landlock`] | every file but CUDA's headers and NVRTC's builtins | Landlock | `strict` refuses; else includes are checked as text |
//! | [`calls`] | every system call that compiling does not need: sockets, processes, threads, signals to others | seccomp | `strict` refuses |
//! | [`crate::network`] | all that has an address | a network namespace | no loss: `calls` allows no socket |
//!
//! In addition the child is not root, has no capabilities and can't gain any, has no environment, and has limits on its memory, time and
//! files ([`super::child`]).

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{landlock, network, privileges};

mod calls;

/// What to do if the kernel does not support every layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Compile anyway, and log a warning.
    #[default]
    BestEffort,
    /// Compile nothing.
    Strict,
}

/// The layers that are active in a compiler child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    pub files: bool,
    pub calls: bool,
    pub network: bool,
}

impl FromStr for Sandbox {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best-effort" => Ok(Self::BestEffort),
            "strict" => Ok(Self::Strict),
            _ => Err("use strict or best-effort".to_owned()),
        }
    }
}

impl Closed {
    /// Returns the missing layers that `strict` requires. The network needs no layer of its own if there are no sockets.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("Landlock (file system)"),
            (true, false) => Some("seccomp (system calls)"),
            (false, false) => Some("Landlock (file system) and seccomp (system calls)"),
        }
    }
}

/// A file or folder of CUDA, opened with the process's initial privileges, because it may be in root's home folder.
pub(super) struct Opened {
    path: PathBuf,
    file: File,
}

impl Opened {
    /// Opens the path. Returns `None` if it does not exist.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Some(Self { path: path.to_owned(), file: File::open(path).ok()? })
    }

    /// Returns a path that is readable without the initial privileges.
    pub(super) fn path(&self) -> PathBuf {
        if self.path.exists() {
            return self.path.clone();
        }
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// Enters the layers that require a process with one thread. Afterwards only `readable` can be read, as `user` if this process is root.
/// Fails if a supported layer can't be entered.
pub(super) fn close_files_and_network(readable: &[Opened], user: Option<&str>) -> io::Result<Closed> {
    let network = network::close_as_root();
    privileges::become_user(user).map_err(io::Error::other)?;
    let network = network || network::close_in_a_user_namespace();
    // The creator of a user namespace gets all capabilities in it.
    privileges::drop_capabilities().map_err(io::Error::other)?;
    let readable: Vec<PathBuf> = readable.iter().map(Opened::path).collect();
    Ok(Closed { files: landlock::allow_reading(&readable)?, calls: false, network })
}

/// Enters the last layer, for all existing threads. Afterwards this process can't start threads.
pub(super) fn close_calls(closed: Closed) -> io::Result<Closed> {
    Ok(Closed { calls: calls::close()?, ..closed })
}
