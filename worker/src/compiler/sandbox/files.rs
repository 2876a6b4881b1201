//! Restricts this process's access to files by Landlock, through its three system calls.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

/// From `linux/landlock.h`; version 1 of the interface, which every kernel with Landlock has.
const ACCESS_EXECUTE: u64 = 1;
const ACCESS_READ_FILE: u64 = 1 << 2;
const ACCESS_READ_DIR: u64 = 1 << 3;
const ACCESS_ALL_OF_VERSION_1: u64 = (1 << 13) - 1;
const RULE_PATH_BENEATH: u32 = 1;

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed_access: u64,
    parent_fd: i32,
}

/// From now on only these files and folders can be read, and nothing can be written. Returns whether the kernel supports
/// it.
pub(super) fn close(readable: &[PathBuf]) -> io::Result<bool> {
    // SAFETY: the attribute is a live structure of the size that is passed.
    let ruleset = unsafe {
        let attributes = RulesetAttributes { handled_access_fs: ACCESS_ALL_OF_VERSION_1 };
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size_of::<RulesetAttributes>(), 0)
    };
    if ruleset < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has just opened it, and nothing else owns it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset as i32) };
    for path in readable {
        allow(&ruleset, path)?;
    }
    // SAFETY: the call takes integers only.
    let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if restricted == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}

/// Adds a rule for a path. A missing path needs none.
fn allow(ruleset: &OwnedFd, path: &Path) -> io::Result<()> {
    let opened = File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path);
    let Ok(parent) = opened else { return Ok(()) };
    let directory = if parent.metadata()?.is_dir() { ACCESS_READ_DIR } else { 0 };
    let rule = PathBeneathAttributes {
        allowed_access: ACCESS_EXECUTE | ACCESS_READ_FILE | directory,
        parent_fd: parent.as_raw_fd(),
    };
    // SAFETY: the rule is a live structure of the kind that is named, and its descriptor is open.
    let added = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)
    };
    if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
