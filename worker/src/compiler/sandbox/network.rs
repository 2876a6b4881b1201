//! Moves the child into an empty network namespace, in which even the loopback interface is down.

/// Enters the namespace as root, before root is dropped. Returns whether the kernel allowed it.
pub(super) fn close_as_root() -> bool {
    // SAFETY: unshare takes flags only.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Enters the namespace through a user namespace, which containers often forbid. Returns whether the kernel allowed it.
pub(super) fn close_in_a_user_namespace() -> bool {
    // SAFETY: unshare takes flags only. This process has one thread, as a user namespace demands.
    unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 }
}
