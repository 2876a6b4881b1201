//! Gives up what a program may not have: root, capabilities, new privileges, files, and more than a share of the machine's tables.

use std::{io, path::PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    landlock,
    privileges::{self, PrivilegeError},
    program::message::{InitSpec, Place},
};

/// What every program can read and execute. The system's programs are here, and what they need.
const READABLE: [&str; 10] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/dev/tty"];
/// What every program can also write.
const WRITABLE: [&str; 8] =
    ["/tmp", "/var/tmp", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Maximum number of open files of a process.
const OPEN_FILES_MAX: u64 = 65536;
/// Maximum number of processes and threads of the program's user.
const PROCESSES_MAX: u64 = 4096;

/// Why a program can't be confined.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfinementError {
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    #[error("failed to limit the resources of a program: {0}")]
    Limits(#[source] io::Error),
    #[error("failed to close the machine's files to a program: {0}")]
    Files(#[source] io::Error),
    #[error(
        "this kernel has no Landlock, which closes the machine's files to programs; use Linux 5.13 or later, and put landlock into its \
         lsm= option"
    )]
    NoLandlock,
    #[error("failed to enter the folder of the program's files: {0}")]
    Folder(#[from] io::Error),
}

/// Confines this process, which has one thread, and all that it starts.
pub(super) fn enter(spec: &InitSpec) -> Result<(), ConfinementError> {
    privileges::refuse_new()?;
    limit_resources(spec.file_bytes_max).map_err(ConfinementError::Limits)?;
    privileges::leave_root(spec.user.as_deref())?;
    let paths = |fixed: &[&str]| -> Vec<PathBuf> { fixed.iter().map(PathBuf::from).collect() };
    let readable = [paths(&READABLE), spec.readable.clone()].concat();
    let writable = [paths(&WRITABLE), vec![spec.files.clone()], spec.devices.clone()].concat();
    // The processes of a container are the launcher's, so the init could not signal them.
    let is_closed = matches!(spec.place, Place::Environment(_));
    match landlock::allow(&readable, &writable, is_closed) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ConfinementError::NoLandlock),
        Err(error) => Err(ConfinementError::Files(error)),
    }
}

fn limit_resources(file_bytes_max: u64) -> io::Result<()> {
    let limits =
        [(Resource::Nofile, OPEN_FILES_MAX), (Resource::Nproc, PROCESSES_MAX), (Resource::Fsize, file_bytes_max)];
    for (resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}
