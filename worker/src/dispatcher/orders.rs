//! Orders from the control streams: cancellations, and drain orders for this worker.
//!
//! The worker reads the streams from their beginnings, so that jobs cancelled while no worker was running stay cancelled. At its start it
//! writes a mark into them and accepts no jobs until it has read that mark, because only then does it know every earlier order. After an
//! interruption it continues behind the last order and writes a new mark, and no job starts until it has read that one.
//!
//! The exchange of an order identifies its sender's role: operators may cancel and drain, clients cancel their own jobs, and workers write
//! marks. RabbitMQ's permissions decide who may write to which exchange. Clients' orders are in a stream of their own; there the
//! supervisor, not this module, looks for the mark.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Command, MessageId, Order, Selection, WorkerName, text::recordable, topology::Speaker};
use tracing::{info, warn};

pub(super) use self::order_info::OrderInfo;
use self::{books::Books, reading::Reading};
use super::{
    Dispatcher, Effect, JobNo, ReadOrder, Subject,
    job::Job,
    timers::{Timer, Timers},
};

mod books;
mod cancelled;
mod order_info;
mod reading;

/// How long a job that could start waits while no order arrives. A restored connection subscribes again at once. A broker that fails to
/// start its stream may never deliver again, so jobs then start without orders.
const PATIENCE: Duration = Duration::from_secs(10);

/// The orders that this worker has read, and whether it has read all of them.
#[derive(Debug)]
pub(super) struct Orders {
    worker: WorkerName,
    cancelled: Books,
    reading: Reading,
    /// The offset of the last order in the stream.
    offset: Option<i64>,
    /// The number of orders read, including repeated ones. `read_before` is that number at the last interruption.
    read: u64,
    read_before: u64,
    /// Whether all orders of operators and workers have been read. Jobs may start once those of clients have been read too.
    fleet_known: bool,
    clients_known: bool,
    drain_told: bool,
    /// While jobs wait for orders: the deadline, and the number of orders read when the wait began.
    waiting: Option<(Instant, u64)>,
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
            // A worker takes no jobs before it has read them for the first time.
            clients_known: true,
            drain_told: false,
            waiting: None,
        }
    }

    /// Returns the order that cancelled a job.
    pub(super) fn find(&mut self, subject: &Subject, now: Instant) -> Option<Arc<OrderInfo>> {
        self.cancelled.find(subject, now)
    }

    /// Returns whether jobs may start. If not, the wait for orders begins.
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

    /// Records an offset. An offset at or before the last one means that reading has started again at the beginning.
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

impl<M, J> Dispatcher<M, J> {
    pub(super) fn order(&mut self, read: ReadOrder) {
        let ReadOrder { offset, order, speaker, user } = read;
        self.orders.pass(offset);
        let (Some(order), Some(speaker)) = (order, speaker) else { return };
        self.orders.read += 1;
        let Order { command, at_ms, by, .. } = order;
        let order = OrderInfo { at_ms, by: by.as_deref().map(recordable) };
        match (command, speaker, user) {
            (Command::Cancel(selection), Speaker::Operator, _) => self.cancel_jobs(selection, None, order),
            (Command::Cancel(selection), Speaker::Client, Some(user)) => {
                self.cancel_jobs(selection, Some(&user), order);
            }
            (Command::Drain { worker }, Speaker::Operator, _) => {
                if worker == self.orders.worker {
                    self.orders.reading.drain(order);
                }
            }
            // The supervisor's roster handles announcements.
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
        if let Some(order) = self.orders.reading.drained().filter(|_| !self.orders.drain_told) {
            info!(by = order.by, "drain ordered");
            self.orders.drain_told = true;
            self.effects.push(Effect::DrainOrdered);
        }
    }

    /// Cancels the selected jobs: any jobs for an operator, only those of `user` for a client.
    fn cancel_jobs(&mut self, selection: Selection, user: Option<&str>, order: OrderInfo) {
        if !self.orders.cancelled.add(selection, user, &Arc::new(order), self.now) {
            return;
        }
        for no in self.jobs_that(Job::can_be_cancelled) {
            if let Some(order) = self.find_cancellation(no) {
                self.cancel(no, order);
            }
        }
    }

    fn find_cancellation(&mut self, no: JobNo) -> Option<Arc<OrderInfo>> {
        // A job that this order cancelled before may have settled the message.
        let job = self.messages.get(&no.message)?.jobs.get(no.index)?;
        self.orders.cancelled.find(&job.subject, self.now)
    }

    /// Stops jobs from starting after an interruption, until every order up to `mark` is known.
    pub(super) fn interrupt_orders(&mut self, mark: MessageId) {
        self.orders.fleet_known = false;
        self.orders.read_before = self.orders.read;
        self.orders.reading.read_on(mark);
        self.effects.push(Effect::OrdersKnown(false));
    }

    /// Sets whether all orders of clients are known. Jobs do not start while they are unknown.
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

    /// Handles the deadline of the wait for orders. If an order has arrived, jobs wait on. If none has, they start although some orders may
    /// be unknown.
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

/// Describes an order for the log by its numbers, because its texts may contain anything.
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
