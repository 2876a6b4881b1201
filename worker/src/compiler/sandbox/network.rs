//! A network namespace of the child's own, in which there is nothing, not even a loopback that is up.

/// Answers whether the kernel allowed it: to root, and elsewhere to who may make user namespaces, which containers often may not.
pub(super) fn close() -> bool {
    // SAFETY: unshare takes flags only. This process has one thread, as a user namespace demands.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 }
}
