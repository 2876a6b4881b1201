//! Orders from the control log: cancellations, and drain orders for this worker.
//!
//! The worker reads the log from its beginning, so that jobs cancelled while no worker was running stay cancelled. It writes a
//! mark into the log at its start and accepts no jobs before it has read that mark, because only then it knows every earlier order.
//! After an interruption it continues behind the last order and writes a new mark. No job starts before it has read that mark.
//!
//! The exchange of an order identifies its sender's role: operators may cancel and drain, clients cancel their own jobs, and workers
//! write marks. RabbitMQ's permissions decide who may write to which exchange. Clients' orders come from a log of their own, in which the
//! supervisor looks for the mark.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Command, MessageId, Order, Selection, WorkerName, text::recordable, topology::Speaker};
use tracing::{info, warn};

use self::{books::Books, reading::Reading};
use super::{
    Dispatcher, Effect, JobNo, ReadOrder, Subject,
    job::Job,
    timers::{Timer, Timers},
};

mod books;
mod cancelled;
mod reading;

/// How long a job that could start waits while not one order comes. A link that is back subscribes again at once; a broker that does not
/// bring up its stream of orders may never do so, and jobs go on without.
const PATIENCE: Duration = Duration::from_secs(10);

/// The orders that this worker has read.
#[derive(Debug)]
pub(super) struct Orders {
    worker: WorkerName,
    cancelled: Books,
    reading: Reading,
    /// The offset of the last order in the log.
    offset: Option<i64>,
    /// The number of orders read, including repeated ones, and that number at the last interruption.
    read: u64,
    read_before: u64,
    /// Whether all orders in the log have been read. Jobs may start once those of clients have been read too.
    fleet_known: bool,
    clients_known: bool,
    drain_told: bool,
    /// While jobs wait for orders: the deadline, and the number of orders read when it was set.
    waiting: Option<(Instant, u64)>,
}

/// The time and sender of an order.
#[derive(Debug)]
pub(super) struct Given {
    at_ms: i64,
    by: Option<String>,
}

impl Given {
    /// The cancellation reason for the job's owner.
    pub(super) fn reason(&self) -> String {
        match &self.by {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        }
    }
}

impl Orders {
    pub(super) fn new(now: Instant, worker: WorkerName, mark: MessageId) -> Self {
        Self {
            worker,
            cancelled: Books::new(now),
            reading: Reading::new(mark),
            offset: None,
            read: 0,
            read_before: 0,
            fleet_known: false,
            // A worker takes no job before it has read them for the first time.
            clients_known: true,
            drain_told: false,
            waiting: None,
        }
    }

    /// The order that cancelled a job.
    pub(super) fn find(&mut self, subject: &Subject, now: Instant) -> Option<Arc<Given>> {
        self.cancelled.find(subject, now)
    }

    /// Whether jobs may start. If not, the wait for orders begins.
    pub(super) fn are_known(&mut self, now: Instant, timers: &mut Timers) -> bool {
        if !self.all_known() && self.waiting.is_none() {
            self.wait(now, timers);
        }
        self.all_known()
    }

    fn all_known(&self) -> bool {
        self.fleet_known && self.clients_known
    }

    fn wait(&mut self, now: Instant, timers: &mut Timers) {
        let at = now + PATIENCE;
        self.waiting = Some((at, self.read));
        timers.set(at, Timer::Orders);
    }

    /// Records an offset. An offset that was passed before means that reading has started again at the beginning.
    fn pass(&mut self, offset: Option<i64>) {
        if offset.is_some() && offset <= self.offset {
            self.reading.start_over();
        }
        self.offset = offset;
    }

    fn know_all(&mut self, timers: &mut Timers) {
        (self.fleet_known, self.clients_known) = (true, true);
        if let Some((at, _)) = self.waiting.take() {
            timers.clear(at, Timer::Orders);
        }
    }
}

impl Dispatcher {
    pub(super) fn order(&mut self, read: ReadOrder) {
        let ReadOrder { offset, order, speaker, user } = read;
        self.orders.pass(offset);
        let (Some(order), Some(speaker)) = (order, speaker) else { return };
        self.orders.read += 1;
        let Order { command, at_ms, by, .. } = order;
        let given = Given { at_ms, by: by.as_deref().map(recordable) };
        match (command, speaker, user) {
            (Command::Cancel(selection), Speaker::Operator, _) => self.cancel_jobs(selection, None, given),
            (Command::Cancel(selection), Speaker::Client, Some(user)) => {
                self.cancel_jobs(selection, Some(&user), given);
            }
            (Command::Drain { worker }, Speaker::Operator, _) => {
                if worker == self.orders.worker {
                    self.orders.reading.drain(given);
                }
            }
            // The roster of the supervisor hears it.
            (Command::Announce(_), Speaker::Worker, _) => {}
            (Command::Mark { id }, Speaker::Worker, _) => {
                if self.orders.reading.pass(id) {
                    info!(orders = self.orders.read - self.orders.read_before, "all orders read");
                    self.orders.fleet_known = true;
                    self.start_if_orders_are_known();
                }
            }
            (command, speaker, user) => {
                let command = described(&command);
                warn!(?speaker, user, command, "order refused: its sender has no permission");
            }
        }
        if let Some(given) = self.orders.reading.drained().filter(|_| !self.orders.drain_told) {
            info!(by = given.by, "drain ordered");
            self.orders.drain_told = true;
            self.effects.push(Effect::DrainOrdered);
        }
    }

    /// Cancels jobs: any jobs for an operator, only the user's own for a client.
    fn cancel_jobs(&mut self, selection: Selection, user: Option<&str>, given: Given) {
        if !self.orders.cancelled.add(selection, user, &Arc::new(given), self.now) {
            return;
        }
        for no in self.jobs_that(Job::can_be_cancelled) {
            if let Some(given) = self.find_cancellation(no) {
                self.cancel(no, given);
            }
        }
    }

    fn find_cancellation(&mut self, no: JobNo) -> Option<Arc<Given>> {
        // An earlier cancellation of the same order may have settled its message.
        let job = self.messages.get(&no.message)?.jobs.get(no.index)?;
        self.orders.cancelled.find(&job.subject, self.now)
    }

    /// After an interruption, no job starts until every order from before its end is known.
    pub(super) fn interrupt_orders(&mut self, mark: MessageId) {
        self.orders.fleet_known = false;
        self.orders.read_before = self.orders.read;
        self.orders.reading.read_on(mark);
        self.effects.push(Effect::OrdersKnown(false));
    }

    /// The same for the orders of clients.
    pub(super) fn client_orders_are_known(&mut self, are_known: bool) {
        self.orders.clients_known = are_known;
        if are_known {
            self.start_if_orders_are_known();
        } else {
            self.effects.push(Effect::OrdersKnown(false));
        }
    }

    fn start_if_orders_are_known(&mut self) {
        if self.orders.all_known() {
            self.orders_are_known();
        }
    }

    fn orders_are_known(&mut self) {
        self.orders.know_all(&mut self.timers);
        self.effects.push(Effect::OrdersKnown(true));
        for no in self.jobs_that(Job::awaits_orders) {
            self.start(no);
        }
    }

    /// Jobs have waited for a while. If an order came, they wait on; if none did, they start although some orders may be unknown.
    pub(super) fn orders_are_late(&mut self) {
        let Some((_, read)) = self.orders.waiting.take() else { return };
        if self.jobs_that(Job::awaits_orders).is_empty() {
            return;
        }
        if read != self.orders.read {
            return self.orders.wait(self.now, &mut self.timers);
        }
        warn!("orders cannot be read, starting jobs anyway: a job cancelled in the meantime may run");
        self.orders_are_known();
    }
}

/// An order for the log: its numbers, because its texts may be anything.
fn described(command: &Command) -> String {
    match command {
        Command::Cancel(Selection { jobs, labels }) => {
            format!("cancel {} jobs by id and those with {} labels", jobs.len(), labels.len())
        }
        Command::Drain { worker } => format!("drain {worker}"),
        Command::Mark { .. } => "mark".to_owned(),
        Command::Announce(announcement) => format!("announce {} device classes", announcement.classes.len()),
    }
}
