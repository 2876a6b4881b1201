//! The three ports of a node, and the file that keeps them, so that clients find the restarted broker at the same
//! address.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{FileContext as _, LocalError},
    ports, secret,
};

/// The ports on which the node listens, on loopback only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) amqp: u16,
    pub(super) distribution: u16,
    pub(super) epmd: u16,
}

impl Ports {
    /// `epmd` is the port of a port mapper that runs already.
    pub(super) fn choose(epmd: Option<u16>) -> Result<Self, LocalError> {
        Ok(Self { amqp: ports::free()?, distribution: ports::free()?, epmd: epmd.map_or_else(ports::free, Ok)? })
    }

    pub(super) fn all(self) -> [u16; 3] {
        [self.amqp, self.distribution, self.epmd]
    }

    pub(super) fn are_free(self) -> bool {
        self.all().into_iter().all(ports::is_free)
    }

    /// The ports of the earlier run, if there was one. An unreadable file is an error, because clients that know the
    /// old ports would not find the broker at new ones.
    pub(super) fn recorded(directory: &Path) -> Result<Option<Self>, LocalError> {
        let record = Self::record(directory);
        match fs::read_to_string(&record) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(io::Error::from).at("read", &record),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &record),
        }
    }

    pub(super) fn keep_in(self, directory: &Path) -> Result<(), LocalError> {
        let text = serde_json::to_string(&self).expect("three numbers have a JSON form");
        secret::write_private(&Self::record(directory), &text)
    }

    pub(super) fn record(directory: &Path) -> PathBuf {
        directory.join("ports")
    }
}
