//! Reads the output of kernels from the child's standard output, and attributes it to the one job that may print.
//!
//! A GPU's driver does not say which kernel printed a text. So an executor runs only one job at a time whose program can print, and all
//! output in that time belongs to that job. Programs that can't print run beside it. The child writes a job's text before its answer, so
//! the text is in the pipe when the answer arrives.

use std::{
    io::{self, ErrorKind, PipeReader, PipeWriter, Read as _},
    sync::{Arc, Mutex, MutexGuard},
};

use gpufleet_schema::{PrintfOutput, bounds::PRINTF_OUTPUT_BYTES_MAX};
use rustix::fs::{OFlags, fcntl_setfl};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{OwnedSemaphorePermit, Semaphore},
};

const CHUNK_BYTES: usize = 16 << 10;
/// Maximum number of bytes read at once. A pipe holds 64 KiB; the limit protects the supervisor from a child that prints endlessly.
const READ_BYTES_MAX: usize = 1 << 20;

/// The output of a job. It grows while the job runs and is complete when the job has ended, even if the executor was lost.
#[derive(Debug, Clone, Default)]
pub struct Printout(Arc<Mutex<Captured>>);

#[derive(Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    dropped: u64,
}

/// The reader of one child's standard output.
#[derive(Debug)]
pub(super) struct Printer {
    pipe: AsyncFd<PipeReader>,
    /// The job that may print now.
    current: Mutex<Option<Printout>>,
    turns: Arc<Semaphore>,
}

/// The right to print in a child.
#[derive(Debug)]
pub(super) struct PrintPermit {
    printout: Printout,
    _turn: OwnedSemaphorePermit,
}

impl Printer {
    /// Creates a printer and the end of the pipe for the child's standard output. Must be called in the runtime that reads it.
    pub(super) fn new() -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        // The writer's end is another open file, so it stays blocking.
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        // SAFETY: the reader keeps the same descriptor until its drop, and nothing else closes it.
        let pipe = unsafe { AsyncFd::register_with_interest(reader, Interest::READABLE) }?;
        Ok((Self { pipe, current: Mutex::default(), turns: Arc::new(Semaphore::new(1)) }, writer))
    }

    /// Waits until no earlier job may print.
    pub(super) async fn turn(&self, printout: &Printout) -> PrintPermit {
        let turn = Arc::clone(&self.turns).acquire_owned().await.expect("the semaphore is never closed");
        PrintPermit { printout: printout.clone(), _turn: turn }
    }

    /// Begins a job's text. Call it before the job is sent; text that is already in the pipe belongs to no job and is discarded.
    pub(super) fn begin(&self, turn: &PrintPermit) {
        let mut current = self.current();
        self.drain(None);
        *current = Some(turn.printout.clone());
    }

    /// Completes the job's text. Call it when the child has answered or ended.
    pub(super) fn end(&self) {
        let mut current = self.current();
        self.drain(current.as_ref());
        *current = None;
    }

    /// Reads the pipe until the child has ended.
    pub(super) async fn read(self: Arc<Self>) {
        while let Ok(mut ready) = self.pipe.readable().await {
            let drained = self.drain(self.current().as_ref());
            match drained {
                Drained::Empty => ready.clear_ready(),
                Drained::Partly => tokio::task::yield_now().await,
                Drained::Ended => return,
            }
        }
    }

    /// Reads what is in the pipe, for the job `current` if there is one. The caller holds the lock on the current job.
    fn drain(&self, current: Option<&Printout>) -> Drained {
        let mut chunk = [0; CHUNK_BYTES];
        let mut read = 0;
        while read < READ_BYTES_MAX {
            match self.pipe.get_ref().read(&mut chunk) {
                Ok(0) => return Drained::Ended,
                Ok(length) => {
                    read += length;
                    current.iter().for_each(|printout| printout.captured().add(&chunk[..length]));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Drained::Empty,
                Err(_) => return Drained::Ended,
            }
        }
        Drained::Partly
    }

    fn current(&self) -> MutexGuard<'_, Option<Printout>> {
        self.current.lock().expect("no thread panics while reading")
    }
}

impl Printout {
    /// Returns the text, or `None` if nothing was printed.
    pub fn text(&self) -> Option<PrintfOutput> {
        let captured = self.captured();
        PrintfOutput::of(&captured.bytes, captured.dropped)
    }

    /// Returns the bytes after the first `offset` ones, as far as they are kept.
    pub fn since(&self, offset: u64) -> Vec<u8> {
        let captured = self.captured();
        usize::try_from(offset).ok().and_then(|offset| captured.bytes.get(offset..)).unwrap_or_default().to_vec()
    }

    fn captured(&self) -> MutexGuard<'_, Captured> {
        self.0.lock().expect("no thread panics while holding it")
    }
}

/// The state of the pipe after reading.
enum Drained {
    Empty,
    Partly,
    /// The pipe is empty and closed, because the child has ended.
    Ended,
}

impl Captured {
    fn add(&mut self, bytes: &[u8]) {
        let room = PRINTF_OUTPUT_BYTES_MAX - self.bytes.len();
        let (kept, dropped) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.dropped = self.dropped.saturating_add(dropped.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn what_is_printed_in_a_turn_belongs_to_it_and_nothing_else_does() {
        let (printer, mut child) = Printer::new().unwrap();
        child.write_all(b"before\n").unwrap();
        let printout = Printout::default();
        let turn = printer.turn(&printout).await;
        printer.begin(&turn);
        child.write_all(b"mine\n").unwrap();
        printer.end();
        child.write_all(b"after\n").unwrap();
        assert_eq!(printout.text().unwrap().text, "mine\n");
        let silent = Printout::default();
        drop(turn);
        let turn = printer.turn(&silent).await;
        printer.begin(&turn);
        printer.end();
        assert_eq!(silent.text(), None);
    }

    #[tokio::test]
    async fn more_than_a_pipe_holds_is_read_as_it_comes_and_counted() {
        let (printer, mut child) = Printer::new().unwrap();
        let printer = Arc::new(printer);
        let printout = Printout::default();
        let turn = printer.turn(&printout).await;
        printer.begin(&turn);
        let reading = tokio::spawn(Arc::clone(&printer).read());
        const LINES: usize = 100_000;
        let writing = tokio::task::spawn_blocking(move || child.write_all(&b"a line of text\n".repeat(LINES)));
        writing.await.unwrap().unwrap();
        reading.await.unwrap();
        printer.end();
        let printed = printout.text().unwrap();
        assert!(printed.text.starts_with("a line of text\na line"));
        assert_eq!(printed.text.len(), PRINTF_OUTPUT_BYTES_MAX);
        assert_eq!(printed.dropped_bytes as usize, LINES * 15 - PRINTF_OUTPUT_BYTES_MAX);
    }

    #[tokio::test]
    async fn jobs_that_may_print_take_turns() {
        let (printer, _child) = Printer::new().unwrap();
        let first = printer.turn(&Printout::default()).await;
        let printout = Printout::default();
        let mut second = std::pin::pin!(printer.turn(&printout));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        second.await;
    }
}
