//! The signals that the processes of the worker ignore, and those of a program must not.

const IGNORED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Gives the signals their default actions. It allocates nothing, so it may run between fork and exec.
pub(super) fn restore() {
    for signal in IGNORED {
        // SAFETY: the default action installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
