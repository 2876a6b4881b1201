//! Moves the guard of a program into namespaces of its own. Root needs nothing for that; another user gets the right from a user namespace.

use std::{
    ffi::CStr,
    fs, io, mem,
    os::fd::{AsFd as _, AsRawFd as _},
    process::{Child, Command},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    net::{AddressFamily, SocketType, socket},
    process::{getegid, geteuid},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

/// Why the namespaces could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NamespaceError {
    #[error(
        "failed to create the namespaces of a program: {0}; run the worker as root, or allow it to create user namespaces (sysctl \
         user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns, RestrictNamespaces of a service, seccomp profile and \
         CAP_SYS_ADMIN of a container)"
    )]
    Unshare(#[source] io::Error),
    #[error("failed to map the user into a user namespace: {0}; run the worker as root")]
    Map(#[source] io::Error),
    #[error(
        "failed to separate the mounts of a program from the machine's: {0}; allow the worker to mount in its own namespace"
    )]
    Mounts(#[source] io::Error),
    #[error(
        "failed to bring up the loopback interface of a program: {0}; allow the worker CAP_NET_ADMIN in its own namespace"
    )]
    Loopback(#[source] io::Error),
}

/// Moves this process into new namespaces, and its children into a new PID namespace. This process must have one thread, and can start none
/// afterwards. As another user than root, it keeps all capabilities in a user namespace until it drops them.
pub(super) fn enter(network: bool) -> Result<(), NamespaceError> {
    let mut namespaces = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if !network {
        namespaces |= UnshareFlags::NEWNET;
    }
    let (user, group) = (geteuid(), getegid());
    if !user.is_root() {
        namespaces |= UnshareFlags::NEWUSER;
    }
    // SAFETY: the flags unshare no descriptors.
    unsafe { unshare_unsafe(namespaces) }.map_err(|error| NamespaceError::Unshare(error.into()))?;
    if !user.is_root() {
        map(user.as_raw(), group.as_raw()).map_err(NamespaceError::Map)?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| NamespaceError::Mounts(error.into()))?;
    if network { Ok(()) } else { bring_up_loopback().map_err(NamespaceError::Loopback) }
}

/// Gives the user and group of this process the same numbers in its user namespace.
fn map(user: u32, group: u32) -> io::Result<()> {
    // Without this an unprivileged process may not map its group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
}

fn bring_up_loopback() -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all-zero is valid for this structure of integers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the call reads the structure, which lives as long.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Starts a child as the first process of a PID namespace in that of this process. The children after it are in the one of this process.
pub(super) fn start_in_another(command: &mut Command) -> io::Result<Child> {
    let own = fs::File::open("/proc/self/ns/pid")?;
    // SAFETY: the flag unshares no descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    let child = command.spawn();
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    child
}

/// Mounts the `/proc` of the PID namespace of this process over the machine's. It allocates nothing, so it may run between fork and exec.
pub(super) fn mount_proc() -> io::Result<()> {
    Ok(mount(c"proc", c"/proc", c"proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None::<&CStr>)?)
}
