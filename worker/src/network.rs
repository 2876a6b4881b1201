//! Moves a child into an empty network namespace, in which even the loopback interface is down.

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Enters the namespace as root, before root is dropped. Returns whether the kernel allowed it.
pub(crate) fn close_as_root() -> bool {
    enter(UnshareFlags::NEWNET)
}

/// Enters the namespace through a user namespace, which containers often forbid. Returns whether the kernel allowed it.
pub(crate) fn close_in_a_user_namespace() -> bool {
    enter(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
}

fn enter(namespaces: UnshareFlags) -> bool {
    // SAFETY: the flags unshare no descriptors. This process has one thread, as a user namespace requires.
    unsafe { unshare_unsafe(namespaces) }.is_ok()
}
