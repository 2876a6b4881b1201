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
    let poison = poison(library, error, run);
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

fn poison(library: &DriverLibrary, error: CudaError, run: &Run) -> Poison {
    let report = library.fault_report();
    let named = report.as_deref().and_then(named_kernel);
    Poison {
        code: error.code,
        device: error.damage() == Damage::Device,
        seen_by: run.job,
        kernel: named.or_else(|| only_kernel(run)),
        report,
        name: error.name,
        text: error.text,
    }
}

/// The emulator writes ``… in kernel `saxpy`, …``.
fn named_kernel(report: &str) -> Option<String> {
    let (_, rest) = report.split_once("in kernel `")?;
    Some(rest.split_once('`')?.0.to_owned())
}

fn only_kernel(run: &Run) -> Option<String> {
    let first = &run.launches.first()?.entry;
    run.launches.iter().all(|launch| launch.entry == *first).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_read_from_the_report() {
        let report = "a write of 4 bytes at 0x10 in kernel `saxpy`, PTX line 12, `st.global.f32`";
        assert_eq!(named_kernel(report).as_deref(), Some("saxpy"));
        assert_eq!(named_kernel("no kernel"), None);
    }
}
