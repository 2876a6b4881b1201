//! Closes the world to the compiler child, before it reads a stranger's code.
//!
//! | layer | closes | by | where the kernel can't |
//! | --- | --- | --- | --- |
//! | [`files`] | every file but CUDA's headers and NVRTC's builtins | Landlock | `strict` refuses; else includes are checked as text |
//! | [`calls`] | every system call that compiling does not need: sockets, processes, threads, signals to others | seccomp | `strict` refuses |
//! | [`network`] | all that has an address | a network namespace | no loss: `calls` allows no socket |
//!
//! Beneath them the child is not root, has no capabilities, can get no new ones, has no environment, and has limits on its memory, time and
//! files ([`super::child`]).

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::privileges;

mod calls;
mod files;
mod network;

/// What to do where the kernel can't close everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Compile all the same, and say so in the log.
    #[default]
    BestEffort,
    /// Compile nothing.
    Strict,
}

/// What is closed to a compiler child.
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
    /// What `strict` insists on and is missing. A network without sockets is closed.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("Landlock (file system)"),
            (true, false) => Some("seccomp (system calls)"),
            (false, false) => Some("Landlock (file system) and seccomp (system calls)"),
        }
    }
}

/// A file or folder of CUDA's, opened by whom this process was at its start: it may lie in the home of root.
pub(super) struct Opened {
    path: PathBuf,
    file: File,
}

impl Opened {
    /// None where there is nothing to read.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Some(Self { path: path.to_owned(), file: File::open(path).ok()? })
    }

    /// Where whom this process is now finds it.
    pub(super) fn path(&self) -> PathBuf {
        if self.path.exists() {
            return self.path.clone();
        }
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// The layers that need a process of one thread; only `readable` can be read afterwards, by `user` where this process is root. An error is a
/// layer that should have closed and did not.
pub(super) fn close_files_and_network(readable: &[Opened], user: Option<&str>) -> io::Result<Closed> {
    let network = network::close_as_root();
    privileges::become_user(user).map_err(io::Error::other)?;
    let network = network || network::close_as_anybody();
    // Who makes a user namespace has all capabilities in it.
    privileges::drop_capabilities().map_err(io::Error::other)?;
    let readable: Vec<PathBuf> = readable.iter().map(Opened::path).collect();
    Ok(Closed { files: files::close(&readable)?, calls: false, network })
}

/// The last layer: afterwards this process starts no thread. It holds for the threads that there are.
pub(super) fn close_calls(closed: Closed) -> io::Result<Closed> {
    Ok(Closed { calls: calls::close()?, ..closed })
}
