//! The dispatcher decides everything that happens to messages and their jobs: deduplication, prefetch, orders, scheduling, settlement.
//!
//! It is plain data: a batch of inputs goes in, a batch of effects comes out. There is no clock, no tokio, no lock and no I/O here, so that
//! a simulation without a broker can check every decision (`simulation.rs`). The shell (`supervisor/shell.rs`) passes the inputs in and
//! performs the effects. Work that takes time runs in tasks outside, which answer with inputs: decoding, preparing, compiling, reading and
//! writing blobs, running on an executor, encoding, publishing.
//!
//! [`job`] shows the life of a job from top to bottom, [`message`] that of a message.

mod credit;
mod duplicates;
mod effect;
mod input;
mod job;
mod message;
mod orders;
mod output_room;
mod queue_limit;
mod renewal;
mod spreading;
mod timers;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    time::{Duration, Instant},
};

use gpufleet_schema::{MessageId, WorkerName};
use tracing::info;

use self::{credit::Credit, duplicates::Duplicates, message::Message, orders::Orders, timers::Timers};
pub(crate) use self::{
    credit::ServedQueue,
    duplicates::{MessageKey, digest},
    effect::{Effect, Settlement, Unfit},
    input::{AttemptEnd, Decoded, Input, MessageInfo, NewJob, Preparation, PublishFailure, ReadOrder, Subject},
    queue_limit::QueueLimit,
};
use crate::scheduler::{Action, Change, PoolGuarantee, PoolId, Scheduler, Ticket, prefetch::PrefetchLimits};

/// Identifies a delivery. A number is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MessageNo(pub(crate) u64);

/// Identifies a job by its delivery and its index in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobNo {
    pub(crate) message: MessageNo,
    pub(crate) index: usize,
}

/// Interval of the scheduler's ticks. A pool's memory is lent after one to two ticks without work, which is longer than a producer needs to
/// send its next job after it has received an outcome.
const TICK: Duration = Duration::from_millis(500);

/// The state of all messages and jobs of a worker. `M` and `J` are what the shell keeps with a message and with a job; the dispatcher only
/// stores them.
#[derive(Debug)]
pub(crate) struct Dispatcher<M, J> {
    scheduler: Scheduler,
    /// The changes that the scheduler has not been given yet, in order.
    changes: Vec<Change>,
    tickets: HashMap<Ticket, JobNo>,
    last_ticket: u64,
    credit: Credit,
    orders: Orders,
    duplicates: Duplicates,
    messages: BTreeMap<MessageNo, Message<M, J>>,
    last_message: u64,
    timers: Timers,
    next_tick: Instant,
    draining: bool,
    now: Instant,
    effects: Vec<Effect>,
}

impl<M, J> Dispatcher<M, J> {
    /// Creates a dispatcher. `mark` is the mark that the worker writes into the control stream at its start.
    pub(crate) fn new(now: Instant, worker: WorkerName, mark: MessageId, guarantees: &[PoolGuarantee]) -> Self {
        Self {
            scheduler: Scheduler::new(guarantees),
            changes: Vec::new(),
            tickets: HashMap::new(),
            last_ticket: 0,
            credit: Credit::new(now),
            orders: Orders::new(now, worker, mark),
            duplicates: Duplicates::default(),
            messages: BTreeMap::new(),
            last_message: 0,
            timers: Timers::default(),
            next_tick: now + TICK,
            draining: false,
            now,
            effects: Vec::new(),
        }
    }

    /// Sets the queues that the worker consumes. Returns the first prefetch of each.
    pub(crate) fn serve(&mut self, limits: PrefetchLimits, queues: Vec<ServedQueue>) -> Vec<u16> {
        self.credit.serve(limits, queues, self.scheduler.slots())
    }

    /// Takes all inputs at the time `now`, handles the timers that are due, and appends the effects.
    pub(crate) fn step(&mut self, now: Instant, inputs: &mut Vec<Input<M, J>>, effects: &mut Vec<Effect>) {
        self.now = now;
        mem::swap(&mut self.effects, effects);
        while let Some(timer) = self.timers.pop(now) {
            self.fire(timer);
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.changes.push(Change::Tick);
        }
        inputs.drain(..).for_each(|input| self.take(input));
        self.schedule();
        if !self.draining && now >= self.credit.due() {
            let changes = self.credit.decide(now, self.scheduler.slots(), &self.scheduler.rooms());
            self.effects.extend(changes.into_iter().map(|(queue, prefetch)| Effect::Prefetch(queue, prefetch)));
        }
        mem::swap(&mut self.effects, effects);
    }

    /// Returns when the next step is due, even without an input.
    pub(crate) fn next_wake(&self) -> Instant {
        let credit = (!self.draining).then(|| self.credit.due());
        [Some(self.next_tick), credit, self.timers.first()].into_iter().flatten().min().expect("there is always a tick")
    }

    /// Returns whether the worker holds no messages.
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of jobs that occupy a slot.
    pub(crate) fn running(&self) -> usize {
        self.scheduler.running()
    }

    /// Returns the number of jobs that wait for a slot, by pool.
    pub(crate) fn waiting_by_pool(&self) -> Vec<usize> {
        self.scheduler.waiting_by_pool()
    }

    /// Returns the number of the pool's host programs that wait for a device.
    pub(crate) fn programs_waiting(&self, pool: PoolId) -> usize {
        self.scheduler.programs_waiting(pool)
    }

    /// Returns what is kept with a message, unless it is settled.
    pub(crate) fn held(&self, no: MessageNo) -> Option<&M> {
        self.messages.get(&no).map(|message| &message.held)
    }

    /// Returns whether a settlement of the message would reach the broker, as far as the inputs say.
    pub(crate) fn is_live(&self, no: MessageNo) -> bool {
        self.messages.get(&no).is_some_and(|message| message.live)
    }

    /// Returns what is kept with a job, unless its message is settled.
    pub(crate) fn held_job(&mut self, no: JobNo) -> Option<&mut J> {
        Some(&mut self.messages.get_mut(&no.message)?.jobs.get_mut(no.index)?.held)
    }

    /// Returns the number of unsettled messages in all queues of a pool.
    pub(crate) fn messages_of(&self, pool: PoolId) -> u32 {
        self.credit.messages_of(pool)
    }

    fn take(&mut self, input: Input<M, J>) {
        match input {
            Input::Delivered(info, held) => self.open(*info, held),
            Input::Decoded(message, decoded) => self.decoded(message, decoded),
            Input::Unreadable(message, failure) => self.refuse(message, *failure),
            Input::Broken(message) => self.break_off(message),
            Input::Prepared { job, demand, reply_bytes, held } => self.prepared(job, demand, reply_bytes, held),
            Input::Stopped { job, used_us } => self.stopped(job, used_us),
            Input::Used { job, used_us } => self.used(job, used_us),
            Input::Returned { job, held } => self.returned(job, held),
            Input::Ended(job, ended, held) => self.ended(job, *ended, Some(held)),
            Input::JobBroken(job) => self.job_broken(job),
            Input::Answered(message, result) => self.answered(message, result),
            Input::Recorded(message, result) => self.recorded(message, result),
            Input::Published(message, result) => self.published(message, result),
            Input::Settled(settled) => settled.into_iter().for_each(|(no, unreached)| self.settled(no, unreached)),
            Input::Looked { message, others_idle } => self.looked(message, others_idle),
            Input::Lost(message) => self.lost(message),
            Input::Subscribed { queue, prefetch } => {
                if let Some((pool, priority)) = self.credit.hoard(queue, prefetch) {
                    info!(pool = pool.0, %priority, prefetch, "requeueing prefetched messages");
                    self.changes.push(Change::Shed(pool, priority));
                }
            }
            Input::Devices(change) => self.changes.push(change),
            Input::Order(order) => self.order(*order),
            Input::OrdersInterrupted { mark } => self.interrupt_orders(mark),
            Input::ClientOrdersKnown(is_known) => self.client_orders_are_known(is_known),
            Input::Drain => self.drain(),
        }
    }

    fn fire(&mut self, timer: timers::Timer) {
        match timer {
            timers::Timer::Expiry(job) => self.expire(job),
            timers::Timer::Patience(job) => self.lose_patience(job),
            timers::Timer::Requeue(message) => self.settle(message, Settlement::Requeue),
            timers::Timer::Watched(message) => self.check_message(message),
            timers::Timer::Orders => self.orders_are_late(),
        }
    }

    /// Passes all changes to the scheduler, and performs its actions, which can cause further changes.
    fn schedule(&mut self) {
        while !self.changes.is_empty() {
            for action in self.scheduler.step(mem::take(&mut self.changes)) {
                self.follow(action);
            }
        }
    }

    fn follow(&mut self, action: Action) {
        let job_of = |ticket| self.tickets.get(&ticket).copied();
        // A ticket without a job belongs to a job that has left; the scheduler gets that change next.
        match action {
            Action::Start(ticket, executor) => {
                job_of(ticket).into_iter().for_each(|job| self.granted(job, ticket, executor));
            }
            Action::Join { ticket, first, executor } => {
                job_of(ticket).into_iter().for_each(|job| self.granted(job, first, executor));
            }
            Action::Refuse(ticket, too_large) => {
                job_of(ticket).into_iter().for_each(|job| self.forward(job, Unfit::TooLarge(too_large)));
            }
            Action::Forward(ticket) => job_of(ticket).into_iter().for_each(|job| self.forward(job, Unfit::NoDevice)),
            Action::Requeue(ticket) => job_of(ticket).into_iter().for_each(|job| self.hand_back(job)),
            Action::ReleaseCache(executor) => self.effects.push(Effect::ReleaseCache(executor)),
        }
    }

    /// Starts nothing any more, and hands back the jobs that wait.
    fn drain(&mut self) {
        self.draining = true;
        self.changes.push(Change::Draining);
        for job in self.jobs_that(job::Job::is_before_start) {
            self.hand_back(job);
        }
        for message in self.timers.requeues() {
            self.settle(message, Settlement::Requeue);
        }
    }

    /// Returns the jobs of all messages for which `is_wanted` is true, oldest first.
    fn jobs_that(&self, is_wanted: impl Fn(&job::Job<J>) -> bool) -> Vec<JobNo> {
        let jobs = self.messages.iter().flat_map(|(no, message)| {
            let jobs = message.jobs.iter().enumerate();
            jobs.map(|(index, job)| (JobNo { message: *no, index }, job))
        });
        jobs.filter(|(_, job)| is_wanted(job)).map(|(no, _)| no).collect()
    }

    /// Returns whether the dispatcher holds no trace of any message.
    #[cfg(test)]
    fn is_unused(&self) -> bool {
        let waiting: usize = self.waiting_by_pool().into_iter().sum();
        self.is_idle()
            && self.running() == 0
            && waiting == 0
            && self.tickets.is_empty()
            && self.changes.is_empty()
            && self.timers.have_no_message()
            && self.duplicates.is_empty()
            && self.credit.is_unused()
    }
}
