//! Orders from the control log: what is cancelled, and whether this worker is to drain.
//!
//! The log is read from its beginning, so that what was cancelled while no worker was there stays cancelled. The worker writes a
//! mark of its own into the log at its start and takes no jobs before it has read that mark: by then it knows every earlier order.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use gpufleet_schema::{Command, JobId, MessageId, Order, Selection, Task, WorkerName, encoding, topology};
use gpufleet_transport::{Broker, Incoming, PublishError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::clock::unix_ms;

/// Between marks that the broker did not take.
const MARK_PAUSE: Duration = Duration::from_secs(1);

/// What this worker was told.
#[derive(Debug)]
pub(super) struct Orders {
    worker: WorkerName,
    started_ms: i64,
    mark: MessageId,
    known: Mutex<Known>,
    caught_up: watch::Sender<bool>,
    drain: CancellationToken,
}

#[derive(Debug, Default)]
struct Known {
    /// Jobs that were cancelled by id.
    jobs: HashMap<JobId, Given>,
    /// Cancellations by label.
    labelled: Vec<(Selection, Given)>,
    /// Jobs that are here now.
    watched: HashMap<u64, Watched>,
    watches: u64,
}

#[derive(Debug)]
struct Watched {
    job: JobId,
    labels: BTreeMap<String, String>,
    submitted_ms: i64,
    cancelled: CancellationToken,
    given: Option<Given>,
}

/// When an order was given, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    at_ms: i64,
    by: Option<String>,
}

/// Watches for the cancellation of one job for as long as it is here.
#[derive(Debug)]
pub(super) struct Watch {
    orders: Arc<Orders>,
    number: u64,
    cancelled: CancellationToken,
}

impl Orders {
    pub(super) fn new(worker: WorkerName) -> Arc<Self> {
        Arc::new(Self {
            worker,
            started_ms: unix_ms(),
            mark: MessageId::new(),
            known: Mutex::default(),
            caught_up: watch::Sender::new(false),
            drain: CancellationToken::new(),
        })
    }

    /// Reads the log until the broker is closed.
    pub(super) async fn follow(self: Arc<Self>, broker: Broker) {
        let mut log = broker.read(topology::CONTROL_QUEUE.to_owned());
        while let Some(incoming) = log.next().await {
            match incoming {
                Incoming::Delivery(delivery) => {
                    match encoding::decode_order(&delivery.body) {
                        Ok(order) => self.take(order),
                        // Of a later version, perhaps; others may know what to do with it.
                        Err(error) => warn!(%error, "an order was not understood"),
                    }
                    // It only makes room for the next: the log keeps everything.
                    drop(delivery.ack().await);
                }
                Incoming::Interrupted { reason } => warn!(reason, "orders are interrupted, they are read again"),
            }
        }
    }

    /// Writes this worker's mark into the log, and waits until it has come back with everything before it.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), PublishError> {
        let order = Order::new(unix_ms(), Some(self.worker.to_string()), Command::Mark { id: self.mark });
        while let Err(error) = broker.order(&order, self.mark).await {
            match error {
                // A broker that has just started refuses what it can't yet put into the log. The mark may come twice.
                PublishError::Nacked { .. } | PublishError::Timeout { .. } | PublishError::Unknown { .. } => {
                    warn!(%error, "no word yet of the orders given before, asking again");
                    tokio::time::sleep(MARK_PAUSE).await;
                }
                refused => return Err(refused),
            }
        }
        let mut caught_up = self.caught_up.subscribe();
        caught_up.wait_for(|caught_up| *caught_up).await.expect("the sender is here");
        Ok(())
    }

    /// Resolves when this worker was told to drain.
    pub(super) async fn drain(&self) {
        self.drain.cancelled().await;
    }

    /// Watches for the cancellation of a job, which may have been ordered long ago. `received_ms` stands for the time of
    /// submission where the task does not tell it.
    pub(super) fn watch(self: &Arc<Self>, task: &Task<'_>, received_ms: i64) -> Watch {
        let cancelled = CancellationToken::new();
        let mut known = self.known();
        known.watches += 1;
        let number = known.watches;
        let submitted_ms = task.submitted_ms.unwrap_or(received_ms);
        let mut watched = Watched {
            job: task.job_id,
            labels: task.labels.clone(),
            submitted_ms,
            cancelled: cancelled.clone(),
            given: known.jobs.get(&task.job_id).cloned(),
        };
        let labelled = known.labelled.iter().find(|(selection, given)| watched.is_meant(selection, given));
        watched.given = watched.given.or_else(|| labelled.map(|(_, given)| given.clone()));
        if watched.given.is_some() {
            cancelled.cancel();
        }
        known.watched.insert(number, watched);
        Watch { orders: Arc::clone(self), number, cancelled }
    }

    fn take(&self, order: Order) {
        let given = Given { at_ms: order.at_ms, by: order.by };
        match order.command {
            Command::Cancel(selection) => self.known().cancel(selection, &given),
            Command::Drain { worker } if worker == self.worker && given.at_ms >= self.started_ms => {
                info!(by = given.by, "told to drain");
                self.drain.cancel();
            }
            Command::Drain { .. } => {}
            Command::Mark { id } if id == self.mark => drop(self.caught_up.send_replace(true)),
            Command::Mark { .. } => {}
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while holding what is known")
    }
}

impl Known {
    fn cancel(&mut self, selection: Selection, given: &Given) {
        for watched in self.watched.values_mut().filter(|watched| watched.given.is_none()) {
            if watched.is_meant(&selection, given) {
                watched.given = Some(given.clone());
                watched.cancelled.cancel();
            }
        }
        // The first order stands: the log is read again after an interruption.
        for job in &selection.jobs {
            self.jobs.entry(*job).or_insert_with(|| given.clone());
        }
        let labels = Selection { jobs: Vec::new(), ..selection };
        if !labels.labels.is_empty() && !self.labelled.iter().any(|known| known.0 == labels && known.1 == *given) {
            self.labelled.push((labels, given.clone()));
        }
    }
}

impl Watched {
    fn is_meant(&self, selection: &Selection, given: &Given) -> bool {
        selection.matches(self.job, &self.labels, self.submitted_ms, given.at_ms)
    }
}

impl Watch {
    /// Cancelled when the job is.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// What the job's owner is told, once it is cancelled.
    pub(super) fn reason(&self) -> Option<String> {
        let given = self.orders.known().watched.get(&self.number)?.given.clone()?;
        Some(match given.by {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        })
    }

    /// Something else, unless the job is cancelled first.
    pub(super) async fn or_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.cancelled.run_until_cancelled(work).await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.orders.known().watched.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Program;

    use super::*;

    fn orders() -> Arc<Orders> {
        Orders::new("w".parse().unwrap())
    }

    fn task(label: &str) -> Task<'static> {
        Task {
            labels: BTreeMap::from([("run".to_owned(), label.to_owned())]),
            submitted_ms: Some(10),
            ..Task::new(Program::Catalog("saxpy".into()))
        }
    }

    fn cancel(jobs: &[JobId], label: Option<&str>, at_ms: i64) -> Order {
        let labels = label.map(|value| ("run".to_owned(), value.to_owned())).into_iter().collect();
        Order::new(at_ms, Some("anna".into()), Command::Cancel(Selection { jobs: jobs.to_vec(), labels }))
    }

    #[test]
    fn a_cancellation_reaches_the_job_that_is_here_and_the_one_that_comes_later() {
        let orders = orders();
        let (here, later) = (task("a"), task("a"));
        let watch = orders.watch(&here, 0);
        assert!(!watch.token().is_cancelled());
        orders.take(cancel(&[here.job_id, later.job_id], None, 20));
        assert!(watch.token().is_cancelled());
        assert_eq!(watch.reason().as_deref(), Some("cancelled by anna"));
        assert!(orders.watch(&later, 0).token().is_cancelled());
        assert!(!orders.watch(&task("a"), 0).token().is_cancelled());
    }

    #[test]
    fn a_label_cancels_what_was_submitted_before_and_nothing_after() {
        let orders = orders();
        orders.take(cancel(&[], Some("a"), 20));
        assert!(orders.watch(&task("a"), 0).token().is_cancelled());
        assert!(!orders.watch(&task("b"), 0).token().is_cancelled());
        assert!(!orders.watch(&Task { submitted_ms: Some(21), ..task("a") }, 0).token().is_cancelled());
        assert!(!orders.watch(&Task { submitted_ms: None, ..task("a") }, 21).token().is_cancelled());
    }

    #[test]
    fn an_order_that_is_read_again_changes_nothing() {
        let orders = orders();
        for _ in 0..3 {
            orders.take(cancel(&[], Some("a"), 20));
        }
        assert_eq!(orders.known().labelled.len(), 1);
    }

    #[test]
    fn only_a_drain_by_its_own_name_and_after_its_start_is_meant_for_this_worker() {
        let orders = orders();
        let drain = |name: &str, at_ms| Order::new(at_ms, None, Command::Drain { worker: name.parse().unwrap() });
        orders.take(drain("other", i64::MAX));
        orders.take(drain("w", orders.started_ms - 1));
        assert!(!orders.drain.is_cancelled());
        orders.take(drain("w", orders.started_ms));
        assert!(orders.drain.is_cancelled());
    }
}
