//! What a compiler child can still do once everything is closed: it tries, and tells.
//!
//! A worker asks for this at its start, so that a kernel, container or library that leaves a door open is told of before a stranger finds it.

use std::{ffi::CStr, fs::File, net::UdpSocket, thread};

use serde::{Deserialize, Serialize};

use super::sandbox::Closed;

/// What is closed, and what a try showed to be open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub closed: Closed,
    /// What could be done, by its name in [`TRIES`].
    pub open: Vec<String>,
}

/// What is tried, and how; it answers whether it could be done.
type Try = (&'static str, fn() -> bool);

const TRIES: [Try; 8] = [
    ("read a file of the host", || File::open("/etc/passwd").is_ok()),
    ("read a process's environment", || File::open("/proc/self/environ").is_ok()),
    ("write a file", || File::create("/tmp/gpufleet-compiler-check").is_ok()),
    ("open a network socket", || UdpSocket::bind("127.0.0.1:0").is_ok()),
    ("open a local socket", || std::os::unix::net::UnixDatagram::unbound().is_ok()),
    ("start a thread", || thread::Builder::new().spawn(|| ()).is_ok()),
    ("start a process", starts_process),
    ("signal its parent", signals_parent),
];

/// For a process that has nothing left to do: what is not closed is tried in earnest.
pub(super) fn try_everything(closed: Closed) -> Checked {
    let open = TRIES.iter().filter(|(_, possible)| possible()).map(|(what, _)| (*what).to_owned());
    Checked { closed, open: open.collect() }
}

fn starts_process() -> bool {
    const PROGRAM: &CStr = c"/bin/true";
    // SAFETY: the child of the fork, of which there should be none, only makes a system call or two. A vfork would share our memory.
    unsafe {
        match libc::fork() {
            -1 => false,
            0 => {
                libc::execve(
                    PROGRAM.as_ptr(),
                    [PROGRAM.as_ptr(), std::ptr::null()].as_ptr(),
                    [std::ptr::null()].as_ptr(),
                );
                libc::_exit(0)
            }
            _ => true,
        }
    }
}

fn signals_parent() -> bool {
    // SAFETY: signal 0 only asks whether a signal could be sent.
    unsafe { libc::kill(libc::getppid(), 0) == 0 }
}
