//! The end of a process whose context is beyond use: say what is known, and go. Nothing is cleaned up through such a context; the
//! driver takes everything back when the process ends.

use std::{os::unix::net::UnixStream, sync::Mutex};

use super::{
    error::{CudaError, Damage},
    library::DriverLibrary,
};
use crate::ipc::{
    FromExecutor, frame,
    message::{Poison, Run},
};

/// `EX_SOFTWARE`: seen in the log, and told apart from a crash.
pub(crate) const EXIT_POISONED: i32 = 70;

/// Tells the supervisor and ends the process. Whoever held the socket has finished its frame by then, and nobody gets it after.
pub(crate) fn die(socket: &Mutex<UnixStream>, library: &DriverLibrary, error: CudaError, run: &Run) -> ! {
    let socket = socket.lock().expect("nobody panics while holding the socket");
    let poison = poison(library, error, run.job);
    eprintln!("the context is lost at job {}: {} ({})", run.job, poison.name, poison.code);
    if let Err(error) = frame::write(&socket, &FromExecutor::Poisoned(poison)) {
        eprintln!("could not {error}");
    }
    exit(EXIT_POISONED)
}

/// Ends the process without running destructors of ours or of the driver.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

fn poison(library: &DriverLibrary, error: CudaError, seen_by: u64) -> Poison {
    Poison {
        code: error.code,
        device: error.damage() == Damage::Device,
        seen_by,
        kernel: library.fault_kernel(),
        report: library.fault_report(),
        name: error.name,
        text: error.text,
    }
}
