//! Orders from the control log: what is cancelled, and whether this worker is to drain.
//!
//! The log is read from its beginning, so that what was cancelled while no worker was there stays cancelled. The worker writes a
//! mark of its own into the log at its start and takes no jobs before it has read that mark: by then it knows every earlier order.
//! After an interruption the log is read once more from its beginning, to a new mark, and until then no job starts.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use gpufleet_schema::{Command, JobId, MessageId, Order, Selection, Task, WorkerName, encoding, topology};
use gpufleet_transport::{Broker, Incoming, PublishError};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, info, warn};

use self::{cancelled::Cancelled, reading::Reading};
use super::clock::unix_ms;
use crate::forwarding::Roster;

mod cancelled;
mod reading;

/// Between marks that the broker did not take.
const MARK_PAUSE: Duration = Duration::from_secs(1);

/// What this worker was told.
#[derive(Debug)]
pub(super) struct Orders {
    worker: WorkerName,
    known: Mutex<Known>,
    /// What workers have announced in the same log.
    roster: Mutex<Roster>,
    /// Whether jobs may start, for all we know.
    all_known: watch::Sender<bool>,
    drain: CancellationToken,
}

#[derive(Debug)]
struct Known {
    cancelled: Cancelled,
    reading: Reading,
    /// Orders that were read, however often.
    read: u64,
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
    given: Option<Arc<Given>>,
}

/// When an order was given, and by whom.
#[derive(Debug)]
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
        let known = Known {
            cancelled: Cancelled::new(Instant::now()),
            reading: Reading::new(),
            read: 0,
            watched: HashMap::new(),
            watches: 0,
        };
        Arc::new(Self {
            worker,
            known: Mutex::new(known),
            roster: Mutex::default(),
            all_known: watch::Sender::new(false),
            drain: CancellationToken::new(),
        })
    }

    /// Reads the log until the broker is closed.
    pub(super) async fn follow(self: Arc<Self>, broker: Broker) {
        let mut log = broker.read(topology::CONTROL_QUEUE.to_owned());
        let mut _marking = None;
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
                Incoming::Interrupted { reason } => {
                    warn!(reason, "orders are interrupted, they are read again");
                    let mark = self.read_again();
                    let marking = Arc::clone(&self).mark_again(broker.clone(), log.subscription(), mark);
                    _marking = Some(AbortOnDropHandle::new(tokio::spawn(marking)));
                }
            }
        }
    }

    /// Writes this worker's mark into the log, and waits until it has come back with everything before it.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), PublishError> {
        let mark = self.known().reading.mark();
        while let Err(error) = self.write(broker, mark).await {
            match error {
                // A broker that has just started refuses what it can't yet put into the log. The mark may come twice.
                PublishError::Nacked { .. } | PublishError::Timeout { .. } | PublishError::Unknown { .. } => {
                    warn!(%error, "no word yet of the orders given before, asking again");
                    tokio::time::sleep(MARK_PAUSE).await;
                }
                refused => return Err(refused),
            }
        }
        let mut all_known = self.all_known.subscribe();
        all_known.wait_for(|all_known| *all_known).await.expect("the sender is here");
        Ok(())
    }

    /// Writes the mark of another reading, however long the broker does not take it.
    async fn mark_again(self: Arc<Self>, broker: Broker, mut subscription: watch::Receiver<bool>, mark: MessageId) {
        // One that was written before the subscription might come back while there are younger orders to be read.
        if subscription.wait_for(|subscribed| *subscribed).await.is_err() {
            return;
        }
        while let Err(error) = self.write(&broker, mark).await {
            debug!(%error, "no word yet of the orders given meanwhile, asking again");
            tokio::time::sleep(MARK_PAUSE).await;
        }
    }

    async fn write(&self, broker: &Broker, mark: MessageId) -> Result<(), PublishError> {
        let order = Order::new(unix_ms(), Some(self.worker.to_string()), Command::Mark { id: mark });
        broker.order(&order, mark).await
    }

    fn read_again(&self) -> MessageId {
        self.all_known.send_replace(false);
        self.known().reading.again()
    }

    /// Waits until every order is known that was given before the last interruption ended. Gives up where not one is read for so long.
    pub(super) async fn all_known(&self, patience: Duration) -> bool {
        let mut all_known = self.all_known.subscribe();
        let read = || self.known().read;
        let mut before = read();
        while timeout(patience, all_known.wait_for(|all_known| *all_known)).await.is_err() {
            if read() == before {
                return false;
            }
            before = read();
        }
        true
    }

    /// Has jobs start although orders may be missed.
    pub(super) fn go_on_without(&self) {
        if !self.all_known.send_replace(true) {
            warn!("orders can't be read, jobs go on without: one that was cancelled meanwhile may run");
        }
    }

    /// Resolves when this worker was told to drain.
    pub(super) async fn drain(&self) {
        self.drain.cancelled().await;
    }

    /// Watches for the cancellation of a job, which may have been ordered long ago.
    pub(super) fn watch(self: &Arc<Self>, task: &Task<'_>, submitted_ms: i64) -> Watch {
        let cancelled = CancellationToken::new();
        let mut known = self.known();
        known.watches += 1;
        let number = known.watches;
        let given = known.cancelled.find(task.job_id, &task.labels, submitted_ms, Instant::now());
        if given.is_some() {
            cancelled.cancel();
        }
        let watched = Watched {
            job: task.job_id,
            labels: task.labels.clone(),
            submitted_ms,
            cancelled: cancelled.clone(),
            given,
        };
        known.watched.insert(number, watched);
        Watch { orders: Arc::clone(self), number, cancelled }
    }

    fn take(&self, order: Order) {
        let mut known = self.known();
        known.read += 1;
        let given = Given { at_ms: order.at_ms, by: order.by };
        match order.command {
            Command::Cancel(selection) => known.cancel(selection, given),
            Command::Drain { worker } if worker == self.worker => known.reading.drain(given),
            Command::Drain { .. } => {}
            Command::Announce(announcement) => self.roster().hear(announcement, given.at_ms),
            Command::Mark { id } => {
                if known.reading.pass(id) {
                    self.all_known.send_replace(true);
                }
            }
        }
        if let Some(given) = known.reading.drained().filter(|_| !self.drain.is_cancelled()) {
            info!(by = given.by, "told to drain");
            self.drain.cancel();
        }
    }

    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().expect("nobody panics while holding the roster")
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while holding what is known")
    }
}

impl Known {
    fn cancel(&mut self, selection: Selection, given: Given) {
        let now = Instant::now();
        if !self.cancelled.add(selection, &Arc::new(given), now) {
            return;
        }
        for watched in self.watched.values_mut().filter(|watched| watched.given.is_none()) {
            watched.given = self.cancelled.find(watched.job, &watched.labels, watched.submitted_ms, now);
            if watched.given.is_some() {
                watched.cancelled.cancel();
            }
        }
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
        Some(match &given.by {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        })
    }

    /// Something else, unless the job is cancelled meanwhile, be it in the same moment.
    pub(super) async fn or_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.cancelled.run_until_cancelled(work).await.filter(|_| !self.cancelled.is_cancelled())
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

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    fn orders() -> Arc<Orders> {
        Orders::new("w".parse().unwrap())
    }

    fn task(label: &str) -> Task<'static> {
        Task {
            labels: BTreeMap::from([("run".to_owned(), label.to_owned())]),
            ..Task::new(Program::Catalog("saxpy".into()))
        }
    }

    fn cancel(jobs: &[JobId], label: Option<&str>, at_ms: i64) -> Order {
        let labels = label.map(|value| ("run".to_owned(), value.to_owned())).into_iter().collect();
        Order::new(at_ms, Some("anna".into()), Command::Cancel(Selection { jobs: jobs.to_vec(), labels }))
    }

    fn drain(name: &str) -> Order {
        Order::new(0, None, Command::Drain { worker: name.parse().unwrap() })
    }

    fn mark(id: MessageId) -> Order {
        Order::new(0, None, Command::Mark { id })
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
        let here = [task("a"), task("b"), task("a")];
        let watches = [(0, 19), (1, 19), (2, 21)].map(|(index, at_ms)| orders.watch(&here[index], at_ms));
        orders.take(cancel(&[], Some("a"), 20));
        assert_eq!(watches.each_ref().map(|watch| watch.token().is_cancelled()), [true, false, false]);
        assert!(orders.watch(&task("a"), 20).token().is_cancelled());
        assert!(!orders.watch(&task("b"), 20).token().is_cancelled());
        assert!(!orders.watch(&task("a"), 21).token().is_cancelled());
    }

    #[test]
    fn only_a_drain_by_its_own_name_and_after_its_start_is_meant_for_this_worker() {
        let orders = orders();
        let first = orders.known().reading.mark();
        orders.take(drain("w"));
        orders.take(mark(first));
        orders.take(drain("other"));
        assert!(!orders.drain.is_cancelled());
        orders.take(drain("w"));
        assert!(orders.drain.is_cancelled(), "whatever the clocks say");
    }

    #[tokio::test]
    async fn after_an_interruption_jobs_wait_for_what_was_ordered_meanwhile() {
        let orders = orders();
        let first = orders.known().reading.mark();
        orders.take(mark(first));
        assert!(orders.all_known(Duration::ZERO).await);

        let second = orders.read_again();
        let cancelled = task("a");
        let watch = orders.watch(&cancelled, 0);
        let waiting = watch.or_cancelled(orders.all_known(LONG));
        let reading = async {
            for order in [mark(first), cancel(&[cancelled.job_id], None, 20), mark(second)] {
                assert!(!*orders.all_known.borrow());
                orders.take(order);
            }
        };
        let (waited, ()) = tokio::join!(waiting, reading);
        assert_eq!(waited, None, "its cancellation came before the mark");
        assert!(orders.all_known(Duration::ZERO).await);
    }

    #[tokio::test]
    async fn jobs_wait_while_orders_come_and_go_on_when_none_do() {
        let (orders, began) = (orders(), Instant::now());
        let (all_known, ()) = tokio::join!(orders.all_known(SHORT), async { orders.take(cancel(&[], None, 20)) });
        assert!(!all_known);
        assert!(began.elapsed() >= 2 * SHORT, "an order came");
        orders.go_on_without();
        assert!(orders.all_known(LONG).await, "nobody else waits as long");
    }
}
