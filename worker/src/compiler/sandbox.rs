//! Closes the file system to this process, as far as the kernel can: Landlock, by its three system calls.
//!
//! After [`close_file_system`] only CUDA's headers, NVRTC's own folder and the system's libraries can be read, and nothing can be
//! written. Processes and the network are not closed here: the compiler child has no use for either and runs no code of the
//! user's, it only reads it.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use super::library::Nvrtc;

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

/// Answers whether the kernel could do it. `false` is for kernels without Landlock; an error is a sandbox that should have closed
/// and did not.
pub(super) fn close_file_system(nvrtc: &Nvrtc) -> io::Result<bool> {
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
    // SAFETY: the kernel has just opened it, and nobody else has it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset as i32) };
    for folder in readable(nvrtc) {
        allow(&ruleset, &folder)?;
    }
    // SAFETY: both calls take integers only.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(true)
}

/// NVRTC opens its builtins while it compiles, so its folder stays open to it.
fn readable(nvrtc: &Nvrtc) -> Vec<PathBuf> {
    let own = nvrtc.library.parent().filter(|folder| folder.is_absolute()).map(Path::to_owned);
    let system = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/cuda/lib64", "/etc/ld.so.cache"];
    own.into_iter().chain(nvrtc.includes.iter().cloned()).chain(system.map(PathBuf::from)).collect()
}

/// A path that is not there needs no rule.
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
