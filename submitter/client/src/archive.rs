//! Files of a host program as a tar archive: packs what a program needs, and unpacks what it brings back.
//!
//! An archive has folders, plain files and links. Its names are relative and stay within the folder, and so do its links. Packing the same
//! files gives the same bytes, so that a blob store has them once.

mod pack;
mod unpack;

use std::{
    io,
    path::{Path, PathBuf},
};

use gpufleet_schema::{Size, bounds::BLOBS_BYTES_MAX, host_program::stays_inside};

pub use pack::{Selection, name_of};
pub use unpack::{Unpacked, in_the_way, unpack};

/// The file that names what is not packed, in the form of a `.gitignore`.
pub const IGNORE_FILE: &str = ".gpufleetignore";
/// Maximum size of the files in an archive that is sent.
pub const BYTES_MAX: u64 = BLOBS_BYTES_MAX;

/// Why files can't be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("failed to read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} changed while it was read", .path.display())]
    Changed { path: PathBuf },
    #[error("{} and {} would both be {} for the program", .first.display(), .second.display(), .name.display())]
    SameName { name: PathBuf, first: PathBuf, second: PathBuf },
    #[error("{} is a link to {}, which is not among the files", .path.display(), .target.display())]
    LinkOutside { path: PathBuf, target: PathBuf },
    #[error("{} is neither a file, a folder nor a link", .path.display())]
    Special { path: PathBuf },
    #[error("the files have {} in all, but at most {} can be sent; the largest are {}", Size(*.bytes), Size(BYTES_MAX), listed(.largest))]
    TooLarge { bytes: u64, largest: Vec<(PathBuf, u64)> },
    #[error("{problem}")]
    IgnoreFile { problem: String },
    #[error("failed to write the archive")]
    Archive { source: io::Error },
    #[error("the archive is damaged")]
    Damaged { source: io::Error },
    #[error("the archive has {name:?}, which {problem}")]
    Refused { name: String, problem: &'static str },
    #[error("{} already in {}", exist(.paths), .folder.display())]
    Exists { folder: PathBuf, paths: Vec<PathBuf> },
    #[error("failed to write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn listed(files: &[(PathBuf, u64)]) -> String {
    let file = |(path, bytes): &(PathBuf, u64)| format!("{} ({})", path.display(), Size(*bytes));
    files.iter().map(file).collect::<Vec<_>>().join(", ")
}

fn exist(paths: &[PathBuf]) -> String {
    match paths {
        [only] => format!("{} is", only.display()),
        [first, rest @ ..] => format!("{} and {} more are", first.display(), rest.len()),
        [] => "nothing is".to_owned(),
    }
}

/// Returns whether a link at this relative path, with this target, stays within the folder.
fn link_stays_inside(link: &Path, target: &Path) -> bool {
    stays_inside(link.parent().unwrap_or(Path::new("")), target)
}

#[cfg(test)]
mod tests;
