//! Moves the output of kernels to the standard output of this process, which the supervisor reads.
//!
//! A GPU's driver collects the output in a buffer of the context (`CU_LIMIT_PRINTF_FIFO_SIZE`, 1 MiB, sixteen times the limit for a job).
//! When the buffer is full, the oldest text is lost. The driver writes it through the C library at each launch, and whenever a thread waits
//! for an event, a stream or the context. So each job waits for its last event before its answer. The emulator must be polled for its
//! output. While a job that may print runs, a thread polls it, so that the output is known even if the executor is killed.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use super::library::DriverLibrary;

/// Interval between polls. A killed executor loses the output since the last one.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Printing {
    library: DriverLibrary,
    /// The number of running jobs that may print.
    jobs: Mutex<usize>,
    begun: Condvar,
}

/// Counts a running job that may print.
pub(crate) struct Began<'a>(&'a Printing);

impl Printing {
    pub(crate) fn new(library: &DriverLibrary) -> Arc<Self> {
        Arc::new(Self { library: library.clone(), jobs: Mutex::default(), begun: Condvar::new() })
    }

    /// Starts the thread that polls the emulator. It runs until the process ends.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        if self.library.is_emulator() {
            let asking = Arc::clone(self);
            thread::Builder::new().name("printing".into()).spawn(move || asking.ask_again_and_again())?;
        }
        Ok(())
    }

    pub(crate) fn begin(&self) -> Began<'_> {
        *self.jobs() += 1;
        self.begun.notify_one();
        Began(self)
    }

    fn ask_again_and_again(&self) {
        loop {
            let idle = |jobs: &mut usize| *jobs == 0;
            drop(self.begun.wait_while(self.jobs(), idle).expect("no thread panics while holding the count"));
            self.library.print_what_kernels_printed();
            thread::sleep(PAUSE);
        }
    }

    fn jobs(&self) -> MutexGuard<'_, usize> {
        self.jobs.lock().expect("no thread panics while holding the count")
    }
}

impl Began<'_> {
    /// Writes the output of the job's kernels. Call it before the job's answer.
    pub(crate) fn end(self) {
        self.0.library.print_what_kernels_printed();
    }
}

impl Drop for Began<'_> {
    fn drop(&mut self) {
        *self.0.jobs() -= 1;
    }
}
