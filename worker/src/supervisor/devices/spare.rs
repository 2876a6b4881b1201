//! Keeps a spare executor, started in advance, which replaces one that ends. Jobs then continue at once, without waiting for the driver to
//! load.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    lease::{Leases, STOP_GRACE},
    memory::MemoryReports,
};
use crate::{
    executor::{Executor, ExecutorOptions, StartError},
    shared_state::{Locked, SharedState},
};

/// Number of consecutive failed starts after which the next start waits until a spare is requested.
const START_FAILURES_MAX: u32 = 5;
/// Time limit for a spare's answer when it is taken: much longer than a driver's memory query, and no longer than the start of an executor
/// on a busy machine.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Pause after a failed start, and after a spare that ended unused.
const PAUSE: Duration = Duration::from_millis(500);

/// The spare executor of one device. Any pool of the device may take it, because it has not run any job.
#[derive(Debug)]
pub(super) struct Spare {
    waiting: SharedState<Option<Arc<Executor>>>,
    taken: Notify,
    /// Whether an executor waits here.
    is_waiting: watch::Sender<bool>,
    leases: Leases,
    retired: CancellationToken,
    memory: Arc<MemoryReports>,
}

impl Spare {
    /// Starts a spare once another executor works on the device, and the next one whenever it is taken or lost, until [`Spare::retire`].
    pub(super) fn keep(
        options: ExecutorOptions,
        mut first: watch::Receiver<Option<Arc<Executor>>>,
        memory: Arc<MemoryReports>,
        leases: Leases,
    ) -> Arc<Self> {
        let (waiting, taken, retired) = (SharedState::new(None), Notify::new(), CancellationToken::new());
        let is_waiting = watch::Sender::new(false);
        let spare = Arc::new(Self { waiting, taken, is_waiting, leases, retired, memory });
        let replacing = Arc::clone(&spare);
        tokio::spawn(async move {
            // A device on which no executor ever starts needs no spare.
            if first.wait_for(Option::is_some).await.is_ok() {
                replacing.replace_whenever_gone(options).await;
            }
        });
        spare
    }

    /// Takes the spare executor, if there is one and it answers. A spare that has just died or hangs would lose the next jobs.
    pub(super) async fn take(&self) -> Option<Arc<Executor>> {
        let executor = self.waiting().take();
        self.taken.notify_one();
        let executor = executor?;
        if !executor.answers(ANSWER_DEADLINE).await {
            warn!(pid = executor.pid(), "spare executor does not answer, starting another");
            executor.kill();
            self.memory.forget(&executor);
            return None;
        }
        Some(executor)
    }

    /// Waits until no spare is on the device.
    pub(super) async fn gone(&self) {
        // `self` holds the sender, so the wait ends only with the wanted state.
        drop(self.is_waiting.subscribe().wait_for(|is_waiting| !is_waiting).await);
    }

    /// Ends the spare and starts no more.
    pub(super) fn retire(&self) {
        self.retired.cancel();
        self.waiting().take();
        self.is_waiting.send_replace(false);
    }

    async fn replace_whenever_gone(self: Arc<Self>, options: ExecutorOptions) {
        let retired = self.retired.clone();
        let replacing = async {
            loop {
                self.leases.free().await;
                let started = tokio::select! {
                    biased;
                    () = self.leases.leased() => continue,
                    started = start(&options) => started,
                };
                match started {
                    Some(executor) => self.offer(executor).await,
                    None => self.taken.notified().await,
                }
            }
        };
        retired.run_until_cancelled(replacing).await;
    }

    /// Offers the executor as the spare. Returns when it has been taken, or has ended. A host program that gets the device ends it.
    async fn offer(&self, executor: Executor) {
        let executor = Arc::new(executor);
        // By now its context has allocated its memory.
        self.memory.listen_to(&executor, None);
        debug!(pid = executor.pid(), "spare executor ready");
        self.waiting().replace(Arc::clone(&executor));
        self.is_waiting.send_replace(true);
        // A caller that found no spare may have left a notification.
        while self.waiting().is_some() {
            tokio::select! {
                () = self.taken.notified() => {}
                () = self.leases.leased() => {
                    let unused = self.waiting().take();
                    if unused.is_some() {
                        executor.stop(STOP_GRACE).await;
                        self.memory.forget(&executor);
                    }
                }
                loss = executor.lost() => {
                    warn!(reason = loss.reason, "spare executor lost, starting another");
                    self.waiting().take();
                    self.memory.forget(&executor);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        self.is_waiting.send_replace(false);
    }

    fn waiting(&self) -> Locked<'_, Option<Arc<Executor>>> {
        self.waiting.lock()
    }
}

async fn start(options: &ExecutorOptions) -> Option<Executor> {
    for failures in 1..=START_FAILURES_MAX {
        match Executor::start(options.clone()).await {
            Ok((executor, _)) => return Some(executor),
            Err(reason) => warn_of(&reason, options.device, failures),
        }
        tokio::time::sleep(PAUSE).await;
    }
    None
}

fn warn_of(reason: &StartError, device: u32, failures: u32) {
    warn!(device, failures, %reason, "spare executor failed to start");
}
