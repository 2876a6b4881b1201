//! A network namespace of the child's own, in which there is nothing, not even a loopback that is up.

/// Answers whether the kernel allowed it: to root, for which this comes before it is given up.
pub(super) fn close_as_root() -> bool {
    // SAFETY: unshare takes flags only.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Answers whether the kernel allowed it: to who may make user namespaces, which containers often may not.
pub(super) fn close_as_anybody() -> bool {
    // SAFETY: unshare takes flags only. This process has one thread, as a user namespace demands.
    unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 }
}
