//! Orders from the control log: cancellations, and drain orders for this worker.
//!
//! The worker reads the log from its beginning, so that jobs cancelled while no worker was running stay cancelled. It writes a
//! mark into the log at its start and accepts no jobs before it has read that mark, because only then it knows every earlier order.
//! After an interruption it continues behind the last order and writes a new mark. No job starts before it has read that mark.
//!
//! The exchange of an order identifies its sender's role: operators may cancel and drain, clients cancel their own jobs, and workers
//! write marks. RabbitMQ's permissions decide who may write to which exchange.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{
    Command, JobId, MessageId, Order, Selection, Task, WorkerName, encoding,
    topology::{self, Speaker},
};
use gpufleet_transport::{Broker, Delivery, Incoming, PublishError};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, info, warn};

use self::{
    books::{Books, Subject},
    reading::Reading,
};
use super::clock::unix_ms;
use crate::{
    forwarding::Roster,
    shared_state::{Locked, SharedState},
};

mod books;
mod cancelled;
mod reading;

/// The pause after the broker has not accepted a mark.
const MARK_PAUSE: Duration = Duration::from_secs(1);

/// The orders that this worker has read.
#[derive(Debug)]
pub(super) struct Orders {
    worker: WorkerName,
    known: SharedState<Known>,
    /// The announcements of workers in the same log.
    roster: SharedState<Roster>,
    /// Whether all orders have been read, so that jobs may start.
    all_known: watch::Sender<bool>,
    drain: CancellationToken,
}

#[derive(Debug)]
struct Known {
    cancelled: Books,
    reading: Reading,
    /// The offset of the last order in the log.
    offset: Option<i64>,
    /// The number of orders read, including repeated ones, and that number at the last interruption.
    read: u64,
    read_before: u64,
    /// Jobs that this worker holds, by number.
    watched: HashMap<u64, WatchedJob>,
    watches: u64,
}

#[derive(Debug)]
struct WatchedJob {
    job: JobId,
    labels: BTreeMap<String, String>,
    submitted_ms: i64,
    user: Option<String>,
    cancelled: CancellationToken,
    given: Option<Arc<Given>>,
}

/// The sender of an order, as validated by the broker.
#[derive(Debug, Clone, Copy)]
struct Sender<'a> {
    speaker: Speaker,
    user: Option<&'a str>,
}

/// The time and sender of an order.
#[derive(Debug)]
struct Given {
    at_ms: i64,
    by: Option<String>,
}

/// Watches for the cancellation of one job for as long as this worker holds it.
#[derive(Debug)]
pub(super) struct Watch {
    orders: Arc<Orders>,
    number: u64,
    cancelled: CancellationToken,
}

impl Orders {
    pub(super) fn new(worker: WorkerName) -> Arc<Self> {
        let known = Known {
            cancelled: Books::new(Instant::now()),
            reading: Reading::new(),
            offset: None,
            read: 0,
            read_before: 0,
            watched: HashMap::new(),
            watches: 0,
        };
        Arc::new(Self {
            worker,
            known: SharedState::new(known),
            roster: SharedState::default(),
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
                    self.read(&delivery);
                    // The ack only requests further messages; the log keeps its messages.
                    drop(delivery.ack().await);
                }
                Incoming::Interrupted { reason } => {
                    warn!(reason, "control stream interrupted");
                    let mark = self.read_on();
                    let marking = Arc::clone(&self).mark_again(broker.clone(), log.subscription(), mark);
                    _marking = Some(AbortOnDropHandle::new(tokio::spawn(marking)));
                }
            }
        }
    }

    fn read(&self, delivery: &Delivery) {
        self.pass(delivery.stream_offset);
        let Some(speaker) = Speaker::of_order(&delivery.exchange) else {
            return warn!(exchange = delivery.exchange, "order from an unexpected exchange rejected");
        };
        match encoding::decode_order(&delivery.body) {
            Ok(order) => self.take(order, Sender { speaker, user: delivery.properties.user_id.as_deref() }),
            // The order may be of a later version, which other workers understand.
            Err(error) => warn!(%error, "failed to decode an order"),
        }
    }

    /// Records an offset. An offset that was passed before means that reading has started again at the beginning.
    fn pass(&self, offset: Option<i64>) {
        let mut known = self.known();
        if offset.is_some() && offset <= known.offset {
            known.reading.start_over();
        }
        known.offset = offset;
    }

    /// Writes this worker's mark into the log, and waits until it has read the mark and everything before it.
    pub(super) async fn catch_up(&self, broker: &Broker) -> Result<(), PublishError> {
        let mark = self.known().reading.mark();
        while let Err(error) = self.write(broker, mark).await {
            match error {
                // A broker that has just started may reject messages for the log. The mark may then be in the log twice.
                PublishError::Nacked { .. } | PublishError::Timeout { .. } | PublishError::Unknown { .. } => {
                    warn!(%error, "earlier orders not read yet, trying again");
                    tokio::time::sleep(MARK_PAUSE).await;
                }
                refused => return Err(refused),
            }
        }
        let mut all_known = self.all_known.subscribe();
        all_known.wait_for(|all_known| *all_known).await.expect("the sender is here");
        Ok(())
    }

    /// Writes the mark after an interruption, retrying until the broker accepts it.
    async fn mark_again(self: Arc<Self>, broker: Broker, mut subscription: watch::Receiver<bool>, mark: MessageId) {
        // A mark written before the subscription could be read while later orders are still unread.
        if subscription.wait_for(|subscribed| *subscribed).await.is_err() {
            return;
        }
        while let Err(error) = self.write(&broker, mark).await {
            debug!(%error, "orders given during the interruption not read yet, trying again");
            tokio::time::sleep(MARK_PAUSE).await;
        }
    }

    async fn write(&self, broker: &Broker, mark: MessageId) -> Result<(), PublishError> {
        let order = Order::new(unix_ms(), Some(self.worker.to_string()), Command::Mark { id: mark });
        broker.order(&order, Speaker::Worker, mark).await
    }

    fn read_on(&self) -> MessageId {
        self.all_known.send_replace(false);
        let mut known = self.known();
        known.read_before = known.read;
        known.reading.read_on()
    }

    /// Waits until every order from before the end of the last interruption has been read. Gives up if no order arrives for `patience`.
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

    /// Lets jobs start although some orders may be unknown.
    pub(super) fn go_on_without(&self) {
        if !self.all_known.send_replace(true) {
            warn!("orders cannot be read, starting jobs anyway: a job cancelled in the meantime may run");
        }
    }

    /// Resolves when this worker is ordered to drain.
    pub(super) async fn drain(&self) {
        self.drain.cancelled().await;
    }

    /// Watches for the cancellation of a job. An earlier cancellation order applies too.
    pub(super) fn watch(self: &Arc<Self>, task: &Task<'_>, submitted_ms: i64, user: Option<&str>) -> Watch {
        let cancelled = CancellationToken::new();
        let mut known = self.known();
        known.watches += 1;
        let number = known.watches;
        let subject = Subject { job: task.job_id, labels: &task.labels, submitted_ms, user };
        let given = known.cancelled.find(&subject, Instant::now());
        if given.is_some() {
            cancelled.cancel();
        }
        let watched = WatchedJob {
            job: task.job_id,
            labels: task.labels.clone(),
            submitted_ms,
            user: user.map(str::to_owned),
            cancelled: cancelled.clone(),
            given,
        };
        known.watched.insert(number, watched);
        Watch { orders: Arc::clone(self), number, cancelled }
    }

    fn take(&self, order: Order, sender: Sender<'_>) {
        let mut known = self.known();
        known.read += 1;
        let given = Given { at_ms: order.at_ms, by: order.by };
        match (order.command, sender) {
            (Command::Cancel(selection), Sender { speaker: Speaker::Operator, .. }) => {
                known.cancel(selection, None, given);
            }
            (Command::Cancel(selection), Sender { speaker: Speaker::Client, user: Some(user) }) => {
                known.cancel(selection, Some(user), given);
            }
            (Command::Drain { worker }, Sender { speaker: Speaker::Operator, .. }) => {
                if worker == self.worker {
                    known.reading.drain(given);
                }
            }
            (Command::Announce(announcement), Sender { speaker: Speaker::Worker, .. }) => {
                self.roster().hear(announcement, given.at_ms);
            }
            (Command::Mark { id }, Sender { speaker: Speaker::Worker, .. }) => {
                if known.reading.pass(id) {
                    info!(orders = known.read - known.read_before, "all orders read");
                    self.all_known.send_replace(true);
                }
            }
            (command, Sender { speaker, user }) => {
                warn!(?speaker, user, ?command, "order rejected: its sender has no permission");
            }
        }
        if let Some(given) = known.reading.drained().filter(|_| !self.drain.is_cancelled()) {
            info!(by = given.by, "drain ordered");
            self.drain.cancel();
        }
    }

    pub(super) fn roster(&self) -> Locked<'_, Roster> {
        self.roster.lock()
    }

    fn known(&self) -> Locked<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    /// Cancels jobs: any jobs for an operator, only the user's own for a client.
    fn cancel(&mut self, selection: Selection, user: Option<&str>, given: Given) {
        let now = Instant::now();
        if !self.cancelled.add(selection, user, &Arc::new(given), now) {
            return;
        }
        for watched in self.watched.values_mut().filter(|watched| watched.given.is_none()) {
            let WatchedJob { job, labels, submitted_ms, user, .. } = &*watched;
            let subject = Subject { job: *job, labels, submitted_ms: *submitted_ms, user: user.as_deref() };
            watched.given = self.cancelled.find(&subject, now);
            if watched.given.is_some() {
                watched.cancelled.cancel();
            }
        }
    }
}

impl Watch {
    /// Cancelled when the job is cancelled.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// The cancellation reason for the job's owner.
    pub(super) fn reason(&self) -> Option<String> {
        let given = self.orders.known().watched.get(&self.number)?.given.clone()?;
        Some(match &given.by {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        })
    }

    /// The result of `work`; none if the job is cancelled first or at the same moment.
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

    /// Passes an order as if from a sender with permission.
    fn take(orders: &Orders, order: Order) {
        let speaker = if matches!(order.command, Command::Mark { .. }) { Speaker::Worker } else { Speaker::Operator };
        orders.take(order, Sender { speaker, user: None });
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
        let watch = orders.watch(&here, 0, None);
        assert!(!watch.token().is_cancelled());
        take(&orders, cancel(&[here.job_id, later.job_id], None, 20));
        assert!(watch.token().is_cancelled());
        assert_eq!(watch.reason().as_deref(), Some("cancelled by anna"));
        assert!(orders.watch(&later, 0, None).token().is_cancelled());
        assert!(!orders.watch(&task("a"), 0, None).token().is_cancelled());
    }

    #[test]
    fn a_label_cancels_what_was_submitted_before_and_nothing_after() {
        let orders = orders();
        let here = [task("a"), task("b"), task("a")];
        let watches = [(0, 19), (1, 19), (2, 21)].map(|(index, at_ms)| orders.watch(&here[index], at_ms, None));
        take(&orders, cancel(&[], Some("a"), 20));
        assert_eq!(watches.each_ref().map(|watch| watch.token().is_cancelled()), [true, false, false]);
        assert!(orders.watch(&task("a"), 20, None).token().is_cancelled());
        assert!(!orders.watch(&task("b"), 20, None).token().is_cancelled());
        assert!(!orders.watch(&task("a"), 21, None).token().is_cancelled());
    }

    #[test]
    fn only_a_drain_by_its_own_name_and_after_its_start_is_meant_for_this_worker() {
        let orders = orders();
        let first = orders.known().reading.mark();
        take(&orders, drain("w"));
        take(&orders, mark(first));
        take(&orders, drain("other"));
        assert!(!orders.drain.is_cancelled());
        take(&orders, drain("w"));
        assert!(orders.drain.is_cancelled(), "whatever the clocks say");
    }

    #[test]
    fn an_order_counts_only_from_a_sender_who_may_give_it() {
        let (orders, job) = (orders(), task("a"));
        let first = orders.known().reading.mark();
        let sent = |order: Order, speaker, user| orders.take(order, Sender { speaker, user });
        sent(mark(first), Speaker::Client, Some("anna"));
        assert!(!*orders.all_known.borrow(), "clients write no marks");
        sent(mark(first), Speaker::Worker, None);
        assert!(*orders.all_known.borrow());
        for speaker in [Speaker::Client, Speaker::Worker] {
            sent(drain("w"), speaker, Some("eve"));
        }
        assert!(!orders.drain.is_cancelled());
        let watch = orders.watch(&job, 0, Some("anna"));
        sent(cancel(&[job.job_id], None, 1), Speaker::Worker, Some("anna"));
        sent(cancel(&[job.job_id], None, 1), Speaker::Client, Some("eve"));
        sent(cancel(&[job.job_id], None, 1), Speaker::Client, None);
        assert!(!watch.token().is_cancelled());
        sent(cancel(&[job.job_id], None, 1), Speaker::Client, Some("anna"));
        assert!(watch.token().is_cancelled(), "it is anna's own");
    }

    #[test]
    fn a_log_that_is_read_from_its_beginning_again_repeats_no_drain_order() {
        let orders = orders();
        let first = orders.known().reading.mark();
        orders.pass(Some(4));
        take(&orders, mark(first));
        let second = orders.read_on();
        orders.pass(Some(0));
        take(&orders, drain("w"));
        assert!(!orders.drain.is_cancelled(), "it was for an earlier worker of this name");
        orders.pass(Some(4));
        take(&orders, mark(first));
        orders.pass(Some(5));
        take(&orders, mark(second));
        assert!(*orders.all_known.borrow());
        assert!(!orders.drain.is_cancelled());
    }

    #[tokio::test]
    async fn after_an_interruption_jobs_wait_for_what_was_ordered_meanwhile() {
        let orders = orders();
        let first = orders.known().reading.mark();
        take(&orders, mark(first));
        assert!(orders.all_known(Duration::ZERO).await);

        let second = orders.read_on();
        let cancelled = task("a");
        let watch = orders.watch(&cancelled, 0, None);
        let waiting = watch.or_cancelled(orders.all_known(LONG));
        let reading = async {
            for order in [mark(first), cancel(&[cancelled.job_id], None, 20), mark(second)] {
                assert!(!*orders.all_known.borrow());
                take(&orders, order);
            }
        };
        let (waited, ()) = tokio::join!(waiting, reading);
        assert_eq!(waited, None, "its cancellation came before the mark");
        assert!(orders.all_known(Duration::ZERO).await);
    }

    #[tokio::test]
    async fn jobs_wait_while_orders_come_and_go_on_when_none_do() {
        let (orders, began) = (orders(), Instant::now());
        let (all_known, ()) = tokio::join!(orders.all_known(SHORT), async { take(&orders, cancel(&[], None, 20)) });
        assert!(!all_known);
        assert!(began.elapsed() >= 2 * SHORT, "an order came");
        orders.go_on_without();
        assert!(orders.all_known(LONG).await, "nobody else waits as long");
    }
}
