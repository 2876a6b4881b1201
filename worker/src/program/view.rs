//! The files that a program sees: a mount namespace in which everything is read-only, folders with other people's files are covered, and
//! the program's own folders are mounted on top. Landlock closes what is left open here.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
    fs, io, mem,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree},
};

use super::{environment::python_prefix, message::ProgramSpec};

/// Folders that a program writes for itself alone, in memory. Their size is a share of the machine's memory.
const SCRATCH: [(&str, &CStr); 3] = [
    ("/tmp", c"mode=1777,size=25%"),
    ("/var/tmp", c"mode=1777,size=25%"),
    // Frameworks pass batches between their processes here.
    ("/dev/shm", c"mode=1777,size=50%"),
];
/// Folders that are covered, because they have the sockets of the machine's services and the worker's settings.
const CLOSED: [&str; 2] = ["/run", "/etc/gpufleet"];
/// Options of a covered folder, which has only folders for the mounts in it.
const CLOSED_OPTIONS: &CStr = c"mode=0755,size=1m";
/// Where a launcher and its init have the files of a program.
pub(super) const FILES_OF_LAUNCHER: &str = "/run/gpufleet/files";
/// Options of a folder for root alone.
const ROOT_OPTIONS: &CStr = c"mode=0700,size=10%";
/// How programs look up host names. It may be a link into a closed folder.
const RESOLVER: &str = "/etc/resolv.conf";

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;

/// Why the view could not be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to {what} {}: {source}; programs need Linux 5.13 or later, and a worker that may mount in its own namespace",
    path.display()
)]
pub(super) struct ViewError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

#[derive(Debug)]
pub(super) struct View {
    /// The folder of the program's files.
    files: PathBuf,
    /// The folders that the program needs beside the system's. Each is here by its own path and by the one that it was given by.
    readable: BTreeSet<PathBuf>,
    /// The folders that are covered, with the options of what covers them. A folder comes before those in it.
    covered: BTreeMap<PathBuf, &'static CStr>,
}

impl View {
    /// Finds out what a program must see, while all of it is visible. `changes_user` tells whether it runs as another user than this
    /// process.
    pub(super) fn of(spec: &ProgramSpec, environment: &Path, files: &Path, changes_user: bool) -> Self {
        let prefix = python_prefix(environment);
        let resolver = spec.network.then(|| fs::canonicalize(RESOLVER).ok()?.parent().map(Path::to_owned)).flatten();
        let needed = [Some(environment.to_owned()), prefix, spec.driver_folder.clone(), resolver];
        let needed = needed.into_iter().flatten();
        let readable: BTreeSet<PathBuf> =
            needed.flat_map(|given| [fs::canonicalize(&given).ok(), Some(given)]).flatten().collect();
        let scratch = SCRATCH.iter().map(|(path, options)| (PathBuf::from(path), *options));
        let closed = CLOSED.iter().map(|path| (PathBuf::from(path), CLOSED_OPTIONS));
        let mut covered: BTreeMap<PathBuf, &CStr> =
            closed.chain(scratch).filter_map(|(path, options)| Some((fs::canonicalize(path).ok()?, options))).collect();
        if changes_user {
            let shut = readable.iter().map(PathBuf::as_path).chain([files]).filter_map(shut_ancestor);
            for folder in shut {
                covered.entry(folder).or_insert(CLOSED_OPTIONS);
            }
        }
        Self { files: files.to_owned(), readable, covered }
    }

    pub(super) fn readable(&self) -> Vec<PathBuf> {
        self.readable.iter().cloned().collect()
    }

    /// Makes the view in the mount namespace of this process.
    pub(super) fn make(&self) -> Result<(), ViewError> {
        let files = copy_of(&self.files, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
        let mut mounts = Vec::new();
        for path in self.readable.iter().filter(|path| self.is_covered(path) && path.exists()) {
            mounts.push((path, copy_of(path, READ_ONLY | libc::MOUNT_ATTR_NODEV)?));
        }
        set_attributes(CWD, Path::new("/"), READ_ONLY, true).map_err(error("make read-only", Path::new("/")))?;
        for (path, options) in &self.covered {
            cover(path, options)?;
        }
        // A folder comes before those in it.
        for (path, copy) in mounts {
            put(&copy, path)?;
        }
        put(&files, &self.files)?;
        for (path, _) in self.covered.iter().filter(|(_, options)| **options == CLOSED_OPTIONS) {
            set_attributes(CWD, path, READ_ONLY, false).map_err(error("make read-only", path))?;
        }
        Ok(())
    }

    /// Makes the view of a launcher, which is the machine's but for podman's state. The program's files are also in [`FILES_OF_LAUNCHER`],
    /// where the init can reach them: their own folder is in one that only the worker's user can enter.
    pub(super) fn make_for_launcher(files: &Path, state: &[&str]) -> Result<(), ViewError> {
        let copy = copy_of(files, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
        state.iter().try_for_each(|folder| cover(Path::new(folder), ROOT_OPTIONS))?;
        let to = Path::new(FILES_OF_LAUNCHER);
        cover(to.parent().unwrap_or(to), CLOSED_OPTIONS)?;
        put(&copy, to)
    }

    fn is_covered(&self, path: &Path) -> bool {
        self.covered.keys().any(|covered| path.starts_with(covered))
    }
}

/// Returns the first folder on the way to this path that other users can't enter.
fn shut_ancestor(path: &Path) -> Option<PathBuf> {
    let mut ancestors: Vec<_> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    let is_shut = |folder: &&Path| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    ancestors.into_iter().find(is_shut).map(Path::to_owned)
}

/// Returns a copy of the mounts at this path, which is mounted nowhere.
fn copy_of(path: &Path, attributes: u64) -> Result<OwnedFd, ViewError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let copy = open_tree(CWD, path, flags).map_err(error("take the folder", path))?;
    set_attributes(&copy, Path::new(""), attributes, true).map_err(error("restrict the folder", path))?;
    Ok(copy)
}

fn cover(path: &Path, options: &CStr) -> Result<(), ViewError> {
    // The folder may be in one that is covered already.
    fs::create_dir_all(path).map_err(error("make a folder at", path))?;
    mount(c"tmpfs", path, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options).map_err(error("cover", path))
}

fn put(copy: &OwnedFd, path: &Path) -> Result<(), ViewError> {
    fs::create_dir_all(path).map_err(error("make a folder at", path))?;
    move_mount(copy, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(error("mount the folder", path))
}

/// Adds attributes to the mount at a path, or with an empty path to the one that the descriptor names.
fn set_attributes(folder: impl AsFd, path: &Path, attributes: u64, recursively: bool) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let mut flags = if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    if recursively {
        flags |= libc::AT_RECURSIVE;
    }
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let folder = folder.as_fd().as_raw_fd();
    // SAFETY: the call reads the path and the structure, which live as long, and is told the structure's size.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            &raw const attributes,
            mem::size_of::<libc::mount_attr>(),
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn error<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> ViewError {
    move |source| ViewError { what, path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_others_can_not_enter_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(folder.path(), 0o755);
        let (first, second) = (folder.path().join("a"), folder.path().join("a/b"));
        fs::create_dir_all(second.join("c")).unwrap();
        set(&first, 0o750);
        set(&second, 0o700);
        assert_eq!(shut_ancestor(&second.join("c")), Some(first.clone()));
        set(&first, 0o755);
        assert_eq!(shut_ancestor(&second.join("c")), Some(second.clone()));
        assert_eq!(shut_ancestor(&second), shut_ancestor(folder.path()), "the folder itself does not count");
    }
}
