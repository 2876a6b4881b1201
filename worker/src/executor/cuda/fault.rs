//! Ends a process whose context is unusable, after a report to the supervisor. Nothing is cleaned up through such a context, because the
//! driver frees everything when the process ends.

use std::fmt;

use super::{
    error::{CudaError, Damage},
    library::DriverLibrary,
    upstream::Upstream,
};
use crate::ipc::{FromExecutor, message::Poison};

/// Exit status after a fault: `EX_SOFTWARE`, which distinguishes this exit from a crash in the log.
pub(crate) const EXIT_POISONED: i32 = 70;

/// The origin of a detected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultOrigin {
    ByJob(u64),
    /// A call outside jobs, while jobs were running.
    BesideJobs,
    /// A call while no job was running, so no job is to blame.
    Idle,
}

impl fmt::Display for FaultOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByJob(job) => write!(f, "in job {job}"),
            Self::BesideJobs => f.write_str("outside a job"),
            Self::Idle => f.write_str("while no job ran"),
        }
    }
}

/// Writes the output of kernels, reports the fault to the supervisor and ends the process.
pub(crate) fn die(upstream: &Upstream, library: &DriverLibrary, error: CudaError, seen: FaultOrigin) -> ! {
    library.print_what_kernels_printed();
    let last = || {
        let poison = poison(library, error, seen);
        eprintln!("the CUDA context was lost {seen}: {} ({})", poison.name, poison.code);
        FromExecutor::Poisoned(poison)
    };
    if let Err(error) = upstream.say_last(last) {
        eprintln!("{error}");
    }
    exit(EXIT_POISONED)
}

/// Ends the process without running destructors of this program or of the driver.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

fn poison(library: &DriverLibrary, error: CudaError, seen: FaultOrigin) -> Poison {
    Poison {
        code: error.code(),
        device: error.damage() == Damage::Device || seen == FaultOrigin::Idle,
        seen_by: match seen {
            FaultOrigin::ByJob(job) => Some(job),
            FaultOrigin::BesideJobs | FaultOrigin::Idle => None,
        },
        kernel: library.fault_kernel(),
        report: library.fault_report(),
        name: error.name,
        text: error.text,
    }
}
