//! The memory of jobs that wait for their inputs, for the thread that copies the pieces.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use super::arena::DeviceBuffer;

/// The jobs that wait for inputs.
#[derive(Debug, Default)]
pub(crate) struct Transfers(Mutex<HashMap<u64, Arc<Transfer>>>);

#[derive(Debug)]
struct Transfer {
    /// The memory for each buffer; none once the job no longer waits. Locked during a copy, so that no copy outlives the memory.
    targets: Mutex<HashMap<u32, DeviceBuffer>>,
    signals: mpsc::Sender<Signal>,
}

/// What the supervisor says to a job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Go,
    Release,
}

/// A job's wait for its inputs. Dropping it ends all copies to the job's memory.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    transfers: &'a Transfers,
    job: u64,
    signals: mpsc::Receiver<Signal>,
}

impl Transfers {
    /// Lets pieces be copied to this memory, by the index of the buffer.
    pub(super) fn open(&self, job: u64, targets: HashMap<u32, DeviceBuffer>) -> Arrival<'_> {
        let (sender, signals) = mpsc::channel();
        let transfer = Transfer { targets: Mutex::new(targets), signals: sender };
        self.jobs().insert(job, Arc::new(transfer));
        Arrival { transfers: self, job, signals }
    }

    /// Passes on what the supervisor says. A job that no longer waits does not hear it.
    pub(crate) fn signal(&self, job: u64, signal: Signal) {
        if let Some(transfer) = self.find(job) {
            // A job that has heard an earlier word needs no other.
            let _ = transfer.signals.send(signal);
        }
    }

    /// Copies to a buffer of a job. `None` if the job does not wait for it.
    pub(super) fn copy<T>(&self, job: u64, buffer: u32, copy: impl FnOnce(DeviceBuffer) -> T) -> Option<T> {
        let transfer = self.find(job)?;
        let targets = transfer.targets();
        targets.get(&buffer).map(|target| copy(*target))
    }

    fn find(&self, job: u64) -> Option<Arc<Transfer>> {
        self.jobs().get(&job).cloned()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<u64, Arc<Transfer>>> {
        self.0.lock().expect("no thread panics while holding the transfers")
    }
}

impl Transfer {
    fn targets(&self) -> MutexGuard<'_, HashMap<u32, DeviceBuffer>> {
        self.targets.lock().expect("no thread panics while copying")
    }
}

impl Arrival<'_> {
    /// Waits for the supervisor's word.
    pub(super) fn wait(&self) -> Signal {
        self.signals.recv().expect("the sender lives until this is dropped")
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let transfer = self.transfers.jobs().remove(&self.job);
        if let Some(transfer) = transfer {
            transfer.targets().clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: DeviceBuffer = DeviceBuffer { address: 7, bytes: 16 };

    #[test]
    fn pieces_are_copied_only_while_their_job_waits() {
        let transfers = Transfers::default();
        let address = |job, buffer| transfers.copy(job, buffer, |target| target.address);
        assert_eq!(address(1, 0), None);
        let arrival = transfers.open(1, HashMap::from([(0, BUFFER)]));
        assert_eq!((address(1, 0), address(1, 1), address(2, 0)), (Some(7), None, None));
        drop(arrival);
        assert_eq!(address(1, 0), None);
    }

    #[test]
    fn a_job_hears_the_first_word_of_the_supervisor() {
        let transfers = Transfers::default();
        let arrival = transfers.open(1, HashMap::new());
        transfers.signal(2, Signal::Release);
        transfers.signal(1, Signal::Go);
        transfers.signal(1, Signal::Release);
        assert_eq!(arrival.wait(), Signal::Go);
    }

    #[test]
    fn a_job_ends_its_wait_after_the_copy_in_progress() {
        let transfers = Transfers::default();
        let arrival = transfers.open(1, HashMap::from([(0, BUFFER)]));
        let (started, start) = mpsc::channel();
        std::thread::scope(|scope| {
            let copy = scope.spawn(|| {
                transfers.copy(1, 0, |_| {
                    started.send(()).unwrap();
                    // The drop of the wait removes the job, and then waits for this copy.
                    while transfers.find(1).is_some() {
                        std::thread::yield_now();
                    }
                    "done"
                })
            });
            start.recv().unwrap();
            drop(arrival);
            assert_eq!(copy.join().unwrap(), Some("done"));
        });
    }
}
