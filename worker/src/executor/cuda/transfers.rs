//! The memory of jobs whose arrays move in pieces, for the thread that copies the pieces. The jobs wait in the meantime.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use super::buffer::DeviceBuffer;

/// The jobs that wait for their inputs or outputs to be moved.
#[derive(Debug, Default)]
pub(crate) struct Transfers(Mutex<HashMap<u64, Arc<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    direction: Direction,
    /// The memory of each buffer; empty once the job no longer waits. It is locked during a copy, so that no copy outlives the memory.
    blocks: Mutex<HashMap<u32, DeviceBuffer>>,
    signals: mpsc::Sender<Signal>,
}

/// The direction in which pieces move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    FromDevice,
}

/// The supervisor's answer to a job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Go,
    Release,
}

/// The wait of a job. Dropping it ends all copies to and from the job's memory.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    transfers: &'a Transfers,
    job: u64,
    signals: mpsc::Receiver<Signal>,
}

impl Transfers {
    /// Allows pieces to be copied in one direction, to or from the memory in `blocks`, by the index of the buffer.
    pub(super) fn open(&self, job: u64, direction: Direction, blocks: HashMap<u32, DeviceBuffer>) -> Transfer<'_> {
        let (sender, signals) = mpsc::channel();
        let waiting = Waiting { direction, blocks: Mutex::new(blocks), signals: sender };
        self.jobs().insert(job, Arc::new(waiting));
        Transfer { transfers: self, job, signals }
    }

    /// Passes the supervisor's answer to a job. If the job no longer waits, nothing happens.
    pub(crate) fn signal(&self, job: u64, signal: Signal) {
        if let Some(waiting) = self.find(job) {
            // An error means that the job has already received an answer.
            let _ = waiting.signals.send(signal);
        }
    }

    /// Copies to or from a buffer of a job. Returns `None` if the job does not wait for such a copy.
    pub(super) fn copy<T>(
        &self,
        job: u64,
        buffer: u32,
        direction: Direction,
        copy: impl FnOnce(DeviceBuffer) -> T,
    ) -> Option<T> {
        let waiting = self.find(job).filter(|waiting| waiting.direction == direction)?;
        let blocks = waiting.blocks();
        blocks.get(&buffer).map(|block| copy(*block))
    }

    fn find(&self, job: u64) -> Option<Arc<Waiting>> {
        self.jobs().get(&job).cloned()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiting>>> {
        self.0.lock().expect("no thread panics while holding the transfers")
    }
}

impl Waiting {
    fn blocks(&self) -> MutexGuard<'_, HashMap<u32, DeviceBuffer>> {
        self.blocks.lock().expect("no thread panics while copying")
    }
}

impl Transfer<'_> {
    /// Waits for the supervisor's answer.
    pub(super) fn wait(&self) -> Signal {
        self.signals.recv().expect("the sender lives until this is dropped")
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        let waiting = self.transfers.jobs().remove(&self.job);
        if let Some(waiting) = waiting {
            waiting.blocks().clear();
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToDevice => "to the device",
            Self::FromDevice => "from the device",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: DeviceBuffer = DeviceBuffer { address: 7, bytes: 16 };

    #[test]
    fn pieces_are_copied_only_while_their_job_waits() {
        let transfers = Transfers::default();
        let address = |job, buffer| transfers.copy(job, buffer, Direction::ToDevice, |block| block.address);
        assert_eq!(address(1, 0), None);
        let transfer = transfers.open(1, Direction::ToDevice, HashMap::from([(0, BUFFER)]));
        assert_eq!((address(1, 0), address(1, 1), address(2, 0)), (Some(7), None, None));
        drop(transfer);
        assert_eq!(address(1, 0), None);
    }

    #[test]
    fn an_output_that_leaves_is_never_overwritten() {
        let transfers = Transfers::default();
        let _transfer = transfers.open(1, Direction::FromDevice, HashMap::from([(0, BUFFER)]));
        let address = |direction| transfers.copy(1, 0, direction, |block| block.address);
        assert_eq!((address(Direction::FromDevice), address(Direction::ToDevice)), (Some(7), None));
    }

    #[test]
    fn a_job_hears_the_first_word_of_the_supervisor() {
        let transfers = Transfers::default();
        let transfer = transfers.open(1, Direction::ToDevice, HashMap::new());
        transfers.signal(2, Signal::Release);
        transfers.signal(1, Signal::Go);
        transfers.signal(1, Signal::Release);
        assert_eq!(transfer.wait(), Signal::Go);
    }

    #[test]
    fn a_job_ends_its_wait_after_the_copy_in_progress() {
        let transfers = Transfers::default();
        let transfer = transfers.open(1, Direction::ToDevice, HashMap::from([(0, BUFFER)]));
        let (started, start) = mpsc::channel();
        std::thread::scope(|scope| {
            let copy = scope.spawn(|| {
                transfers.copy(1, 0, Direction::ToDevice, |_| {
                    started.send(()).unwrap();
                    // The drop removes the job first, and then waits for this copy.
                    while transfers.find(1).is_some() {
                        std::thread::yield_now();
                    }
                    "done"
                })
            });
            start.recv().unwrap();
            drop(transfer);
            assert_eq!(copy.join().unwrap(), Some("done"));
        });
    }
}
