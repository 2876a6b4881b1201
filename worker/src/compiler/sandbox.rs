//! Closes the world to the compiler child, before it reads a stranger's code.
//!
//! | layer | closes | by | where the kernel can't |
//! | --- | --- | --- | --- |
//! | [`files`] | every file but CUDA's headers and NVRTC's builtins | Landlock | `strict` refuses; else includes are checked as text |
//! | [`calls`] | every system call that compiling does not need: sockets, processes, threads, signals to others | seccomp | `strict` refuses |
//! | [`network`] | all that has an address | a network namespace | no loss: `calls` allows no socket |
//!
//! Beneath them the child has no capabilities, can get no new ones, has no environment, and has limits on its memory, time and
//! files ([`super::child`]).

use std::{io, path::PathBuf, str::FromStr};

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
            _ => Err("it is strict or best-effort".to_owned()),
        }
    }
}

impl Closed {
    /// What `strict` insists on and is missing. A network without sockets is closed.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("Landlock, which closes the file system"),
            (true, false) => Some("seccomp, which closes system calls"),
            (false, false) => Some("Landlock and seccomp, which close the file system and system calls"),
        }
    }
}

/// The layers that need a process of one thread; only `readable` can be read afterwards. An error is a layer that should have closed
/// and did not.
pub(super) fn close_files_and_network(readable: &[PathBuf]) -> io::Result<Closed> {
    let network = network::close();
    privileges::drop_capabilities().map_err(io::Error::other)?;
    Ok(Closed { files: files::close(readable)?, calls: false, network })
}

/// The last layer: afterwards this process starts no thread. It holds for the threads that there are.
pub(super) fn close_calls(closed: Closed) -> io::Result<Closed> {
    Ok(Closed { calls: calls::close()?, ..closed })
}
