//! What kernels print, on its way to the standard output of this process, which the supervisor reads.
//!
//! A GPU's driver keeps it in a buffer of the context (`CU_LIMIT_PRINTF_FIFO_SIZE`, 1 MiB, sixteen times what is kept of a job; when it is
//! full, the oldest text goes) and writes it out by itself, through the C library: at each launch, and whenever somebody waits for an event,
//! a stream or the context. A stream waits for the last event of its job before the job is answered. The emulator is asked for it. While a job
//! runs there that may print, it is asked again and again, so that what a killed executor's job had printed is known.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use super::library::DriverLibrary;

/// Between two questions to the emulator. Text of the last moment is lost with an executor that is killed.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Printing {
    library: DriverLibrary,
    /// How many jobs run that may print.
    jobs: Mutex<usize>,
    begun: Condvar,
}

/// A job that may print, while it runs.
pub(crate) struct Began<'a>(&'a Printing);

impl Printing {
    pub(crate) fn new(library: &DriverLibrary) -> Arc<Self> {
        Arc::new(Self { library: library.clone(), jobs: Mutex::default(), begun: Condvar::new() })
    }

    /// Starts the thread that asks the emulator. It ends with the process.
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
    /// The job's kernels have ended. What they printed goes before its answer.
    pub(crate) fn end(self) {
        self.0.library.print_what_kernels_printed();
    }
}

impl Drop for Began<'_> {
    fn drop(&mut self) {
        *self.0.jobs() -= 1;
    }
}
