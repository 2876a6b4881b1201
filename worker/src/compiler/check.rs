//! Tests the compilers' sandbox: a child enters it, tries forbidden operations, and reports which succeed.
//!
//! A worker does this at its start, to report a gap in the kernel, the container or a library before untrusted code can use it.

use std::{ffi::CStr, fs::File, net::UdpSocket, thread};

use serde::{Deserialize, Serialize};

use super::sandbox::Closed;

/// The active layers of the sandbox, and the forbidden operations that still succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub closed: Closed,
    /// The operations that succeeded, by their names in [`TRIES`].
    pub open: Vec<String>,
}

/// The name of a forbidden operation, and a function that tries it and returns whether it succeeded.
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

/// Tries every operation. They are real, so the process must have no other work.
pub(super) fn try_everything(closed: Closed) -> Checked {
    let open = TRIES.iter().filter(|(_, possible)| possible()).map(|(what, _)| (*what).to_owned());
    Checked { closed, open: open.collect() }
}

fn starts_process() -> bool {
    const PROGRAM: &CStr = c"/bin/true";
    // SAFETY: fork should fail. If it succeeds, its child makes only one or two system calls. A vfork would share our memory.
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
    // This is the C library's wrapper, because rustix asserts that the call can't fail, and the sandbox makes it fail.
    // SAFETY: signal 0 only tests whether a signal could be sent.
    unsafe { libc::kill(libc::getppid(), 0) == 0 }
}
