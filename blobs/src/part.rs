//! A file that is being written. It gets the name of a blob when it is complete.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use gpufleet_schema::MessageId;
use tempfile::{Builder, NamedTempFile};

use super::file::PART_PREFIX;

/// Creates a file with a unique name, which is removed unless it gets another. If it can't be removed, it is pruned or evicted later.
pub(super) fn create(folder: &Path) -> io::Result<NamedTempFile> {
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    Builder::new().prefix(PART_PREFIX).make_in(folder, create)
}

pub(super) fn publish(part: NamedTempFile, name: &Path) -> io::Result<()> {
    part.persist(name).map(drop).map_err(|problem| problem.error)
}

/// A unique name for a file that is no blob.
pub(super) fn name(folder: &Path) -> PathBuf {
    folder.join(format!("{PART_PREFIX}{}", MessageId::new()))
}
