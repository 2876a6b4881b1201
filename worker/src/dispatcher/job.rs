//! The life of a job, from top to bottom.
//!
//! ```text
//! preparing ─▶ awaits room ─▶ queued ─▶ awaits orders ─▶ running ─▶ storing ─▶ ended
//!     │             │           │  │          │              │                   ▲
//!     │             │           │  └──────────┼──▶ forwarding ───────────────────┤
//!     └─────────────┴───────────┴─────────────┴─ cancelled, expired, handed back ┘
//! ```
//! A running job that rides in a train may come back to the queue, if the train takes too long.
//!
//! Only the jobs of a list await room for their outputs. A job awaits orders if the worker was cut off from the control stream. It holds a
//! slot on a device from the end of the queue until it stops running. Only a job whose task asks for it stores outputs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{debug, info, warn};

use super::{
    AttemptEnd, Dispatcher, Effect, JobNo, NewJob, Preparation, QueueLimit, Subject, Unfit, message::MessageState,
    orders::OrderInfo, output_room::OutputRoom, timers::Timer,
};
use crate::{
    disposition::{Disposition, Ending, RetryHistory, dispose},
    failpoint::{self, Failpoint},
    forwarding::Destination,
    scheduler::{Change, Demand, ExecutorId, Ticket},
};

/// How long a session waits for memory at a worker before another one gets its turn.
const SESSION_PATIENCE: Duration = Duration::from_secs(5);

/// A job of a message in flight.
#[derive(Debug)]
pub(super) struct Job<J> {
    pub(super) held: J,
    state: State,
    pub(super) subject: Subject,
    attempts_max: u32,
    limit: Option<QueueLimit>,
    /// The order that cancelled the job.
    cancelled: Option<Arc<OrderInfo>>,
    /// The bytes that it has taken of its list's output room.
    room: u64,
    /// The bytes that it takes in a portion of its list's replies.
    pub(super) bytes: usize,
}

#[derive(Debug)]
enum State {
    Preparing,
    AwaitsRoom(Demand),
    Queued(Ticket, Demand),
    AwaitsOrders(Slot),
    Running(Slot),
    Storing,
    Forwarding,
    Ended(Disposition),
}

/// A slot on a device.
#[derive(Debug, Clone, Copy)]
struct Slot {
    ticket: Ticket,
    /// The ticket of the first job of its train; its own if it is that job or alone.
    train: Ticket,
    demand: Demand,
    executor: ExecutorId,
    cache_bytes_max: u64,
    since: Instant,
}

impl Slot {
    fn held_us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_micros() as u64
    }
}

impl<J> Job<J> {
    fn new(new: NewJob<J>) -> (Self, Preparation) {
        let NewJob { held, subject, attempts_max, limit, preparation } = new;
        let state = State::Preparing;
        let job = Self { held, state, subject, attempts_max, limit, cancelled: None, room: 0, bytes: 0 };
        (job, preparation)
    }

    /// Returns whether the job waits for something inside the worker.
    pub(super) fn is_before_start(&self) -> bool {
        match self.state {
            State::Preparing | State::AwaitsRoom(_) | State::Queued(..) | State::AwaitsOrders(_) => true,
            State::Running(_) | State::Storing | State::Forwarding | State::Ended(_) => false,
        }
    }

    /// Returns whether the job waits until other jobs leave a device.
    pub(super) fn awaits_slot(&self) -> bool {
        matches!(self.state, State::Queued(..))
    }

    pub(super) fn awaits_orders(&self) -> bool {
        matches!(self.state, State::AwaitsOrders(_))
    }

    /// Returns whether a cancellation can still have an effect on the job.
    pub(super) fn can_be_cancelled(&self) -> bool {
        self.cancelled.is_none() && !matches!(self.state, State::Ended(_))
    }

    pub(super) fn disposition(&self) -> Option<&Disposition> {
        match &self.state {
            State::Ended(disposition) => Some(disposition),
            _ => None,
        }
    }
}

impl<M, J> Dispatcher<M, J> {
    /// Begins the jobs of a decoded message. The message knows all of them before the first one proceeds.
    pub(super) fn begin_jobs(&mut self, message: super::MessageNo, new: Vec<NewJob<J>>) {
        let mut preparations = Vec::with_capacity(new.len());
        for new in new {
            let (mut job, preparation) = Job::new(new);
            job.cancelled = self.orders.find(&job.subject, self.now);
            self.message_mut(message).jobs.push(job);
            preparations.push(preparation);
        }
        for (index, preparation) in preparations.into_iter().enumerate() {
            self.begin(JobNo { message, index }, preparation);
        }
    }

    fn begin(&mut self, no: JobNo, preparation: Preparation) {
        let (job, now) = (self.job(no), self.now);
        if let Preparation::Ended(ending) = preparation {
            // A job that would be tried again later expires now if it is too late to start.
            let goes_on = ending.can_be_cancelled() && job.cancelled.is_none();
            let expired = job.limit.filter(|_| goes_on).and_then(|limit| limit.expired(now));
            return self.conclude(no, expired.unwrap_or(ending));
        }
        if job.cancelled.is_some() {
            return self.give_up(no, cancelled());
        }
        if let Some(limit) = job.limit {
            if let Some(expired) = limit.expired(now) {
                return self.give_up(no, expired);
            }
            self.timers.set(limit.deadline(), Timer::Expiry(no));
        }
        let stays = !self.draining && self.message(no.message).live;
        match preparation {
            _ if !stays => self.give_up(no, Ending::HandedBack),
            Preparation::Ready { demand, reply_bytes } => self.queue_when_there_is_room(no, demand, reply_bytes),
            Preparation::Underway => self.effects.push(Effect::Prepare(no)),
            Preparation::Ended(_) => {}
        }
    }

    /// Records that a job is prepared, unless it has ended in the meantime.
    pub(super) fn prepared(&mut self, no: JobNo, demand: Demand, reply_bytes: u64, held: J) {
        if let Some(job) = self.find_job(no).filter(|job| matches!(job.state, State::Preparing)) {
            job.held = held;
            self.queue_when_there_is_room(no, demand, reply_bytes);
        }
    }

    /// Queues a prepared job for a slot; a job of a list first takes room for its outputs.
    fn queue_when_there_is_room(&mut self, no: JobNo, demand: Demand, reply_bytes: u64) {
        self.job_mut(no).state = State::AwaitsRoom(demand);
        let message = self.message_mut(no.message);
        let Some(room) = &mut message.room else { return self.queue(no) };
        message.jobs[no.index].room = OutputRoom::taken(reply_bytes);
        if room.take(no.index, OutputRoom::taken(reply_bytes)) {
            self.queue(no);
        }
    }

    /// Puts the job in the scheduler's queue for a slot.
    fn queue(&mut self, no: JobNo) {
        failpoint::reach(Failpoint::Scheduling);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let job = self.job_mut(no);
        let State::AwaitsRoom(demand) = job.state else { unreachable!("it has just got its room") };
        job.state = State::Queued(ticket, demand);
        self.tickets.insert(ticket, no);
        self.changes.push(Change::Arrived(ticket, demand));
        if demand.session.is_some() {
            self.timers.set(self.now + SESSION_PATIENCE, Timer::Patience(no));
        }
    }

    /// Sends a session on that has found no memory here, so that another worker can take it. One that has reserved a device stays.
    pub(super) fn lose_patience(&mut self, no: JobNo) {
        let Some(Job { state: State::Queued(ticket, _), .. }) = self.find_job(no) else { return };
        let ticket = *ticket;
        if self.scheduler.has_reserved(ticket) {
            self.timers.set(self.now + SESSION_PATIENCE, Timer::Patience(no));
        } else {
            self.forward(no, Unfit::NoRoom);
        }
    }

    /// Charges a running session for device time.
    pub(super) fn used(&mut self, no: JobNo, used_us: u64) {
        if let Some(Job { state: State::Running(slot), .. }) = self.find_job(no) {
            let ticket = slot.ticket;
            self.changes.push(Change::Used { ticket, used_us });
        }
    }

    /// Gives the job the slot that the scheduler grants, alone or in a train. The job starts unless orders are unknown.
    pub(super) fn granted(&mut self, no: JobNo, train: Ticket, executor: ExecutorId) {
        let State::Queued(ticket, demand) = self.job(no).state else {
            unreachable!("only jobs in the queue have tickets")
        };
        let cache_bytes_max = self.scheduler.cache_bytes_max(executor);
        let slot = Slot { ticket, train, demand, executor, cache_bytes_max, since: self.now };
        self.tickets.remove(&ticket);
        self.job_mut(no).state = State::AwaitsOrders(slot);
        if self.orders.are_known(self.now, &mut self.timers) {
            self.start(no);
        }
    }

    /// Starts a job with a slot: all orders are known, and none cancels it. The jobs of a train start together.
    pub(super) fn start(&mut self, no: JobNo) {
        let State::AwaitsOrders(slot) = self.job(no).state else { unreachable!("only a job with a slot starts") };
        self.disarm(no);
        self.job_mut(no).state = State::Running(slot);
        self.credit.started(self.message(no.message).info.queue, slot.since);
        self.message_mut(no.message).redeliveries.was_tried = true;
        self.watch_list(no.message);
        match self.start_of_train(slot.train).map(|effect| &mut self.effects[effect]) {
            Some(Effect::Start { jobs, .. }) => jobs.push(no),
            _ => {
                let Slot { executor, cache_bytes_max, .. } = slot;
                self.effects.push(Effect::Start { jobs: vec![no], executor, cache_bytes_max });
            }
        }
    }

    /// Finds the effect that starts the train, if another job of it starts in this step.
    fn start_of_train(&self, train: Ticket) -> Option<usize> {
        let rides = |no: &JobNo| matches!(self.job(*no).state, State::Running(slot) if slot.train == train);
        self.effects.iter().rposition(|effect| matches!(effect, Effect::Start { jobs, .. } if rides(&jobs[0])))
    }

    /// Releases the slot of a job that has left its executor. Its outputs are still being stored.
    pub(super) fn stopped(&mut self, no: JobNo, used_us: Option<u64>) {
        if let Some(Job { state: State::Running(slot), .. }) = self.find_job(no) {
            let slot = *slot;
            self.job_mut(no).state = State::Storing;
            self.leave_device(no, slot, used_us);
        }
    }

    /// Queues a job again that has not run, unless something has ended it in the meantime. It rides in no train again.
    pub(super) fn returned(&mut self, no: JobNo, held: J) {
        let Some(Job { state: State::Running(slot), .. }) = self.find_job(no) else { return };
        let slot = *slot;
        self.leave_device(no, slot, Some(0));
        let (now, message) = (self.now, self.message(no.message));
        let stays = !self.draining && message.live && message.state == MessageState::Working;
        let job = self.job_mut(no);
        (job.held, job.state) = (held, State::Storing);
        if job.cancelled.is_some() {
            return self.give_up(no, cancelled());
        }
        if !stays {
            return self.hand_back(no);
        }
        if let Some(limit) = self.job(no).limit {
            if let Some(expired) = limit.expired(now) {
                return self.give_up(no, expired);
            }
            self.timers.set(limit.deadline(), Timer::Expiry(no));
        }
        let demand = Demand { brief_us: None, ..slot.demand };
        self.job_mut(no).state = State::AwaitsRoom(demand);
        self.queue(no);
    }

    /// Ends an attempt that was prepared, run or forwarded outside the dispatcher.
    pub(super) fn ended(&mut self, no: JobNo, ended: AttemptEnd, held: Option<J>) {
        let Some(job) = self.find_job(no) else { return };
        let AttemptEnd { ending, bytes, returns, used_us } = ended;
        match job.state {
            State::Preparing | State::Forwarding | State::Storing => {}
            State::Running(slot) => {
                job.state = State::Storing;
                self.leave_device(no, slot, used_us);
            }
            // The dispatcher has already ended the job, so the result of its preparation no longer matters.
            State::AwaitsRoom(_) | State::Queued(..) | State::AwaitsOrders(_) | State::Ended(_) => return,
        }
        let job = self.job_mut(no);
        job.bytes = bytes;
        if let Some(held) = held {
            job.held = held;
        }
        if !returns {
            self.give_back_room(no);
        }
        self.conclude(no, ending);
    }

    /// Forwards a job that no device of this worker can run.
    pub(super) fn forward(&mut self, no: JobNo, unfit: Unfit) {
        self.leave_queue(no);
        self.disarm(no);
        self.give_back_room(no);
        self.job_mut(no).state = State::Forwarding;
        self.effects.push(Effect::Forward(no, unfit));
    }

    /// Hands back a job that does not start here.
    pub(super) fn hand_back(&mut self, no: JobNo) {
        self.give_up(no, Ending::HandedBack);
    }

    pub(super) fn expire(&mut self, no: JobNo) {
        let expired = self.job(no).limit.and_then(|limit| limit.expired(self.now));
        self.give_up(no, expired.expect("the timer is set for the moment at which the limit has passed"));
    }

    /// Cancels the job. If it is running, its executor is killed, which ends the attempt.
    pub(super) fn cancel(&mut self, no: JobNo, order: Arc<OrderInfo>) {
        let job = self.job_mut(no);
        job.cancelled = Some(order);
        match job.state {
            State::Running(_) => self.effects.push(Effect::Cancel(no)),
            State::Storing | State::Forwarding | State::Ended(_) => {}
            _ => self.give_up(no, cancelled()),
        }
    }

    /// Ends a job that has not started.
    fn give_up(&mut self, no: JobNo, ending: Ending) {
        if matches!(self.job(no).state, State::Preparing) {
            self.effects.push(Effect::Cancel(no));
        }
        self.conclude(no, ending);
    }

    /// Decides what happens to the job, and gives up everything that it waits for or holds.
    fn conclude(&mut self, no: JobNo, ending: Ending) {
        match self.job(no).state {
            State::AwaitsOrders(slot) => {
                self.changes.push(Change::Left { ticket: slot.ticket, used_us: slot.held_us(self.now) });
            }
            State::Queued(..) => self.leave_queue(no),
            State::AwaitsRoom(_) => self.leave_room_line(no),
            State::Running(_) => unreachable!("a job that runs leaves its device first"),
            State::Preparing | State::Storing | State::Forwarding | State::Ended(_) => {}
        }
        self.disarm(no);
        if self.job(no).bytes == 0 {
            self.give_back_room(no);
        }
        let info = &self.message(no.message).info;
        let (attempt, past, delivery_count) = (info.attempt, info.past, info.delivery_count);
        let job = self.job_mut(no);
        let ending = match &job.cancelled {
            Some(order) if ending.can_be_cancelled() => ending.cancelled(order.reason()),
            _ => ending,
        };
        let disposition = dispose(ending, past, job.attempts_max, delivery_count);
        tell(&disposition, &job.subject, attempt);
        let state = disposition.attempt_state();
        job.state = State::Ended(disposition);
        self.effects.extend(state.map(|state| Effect::Count(no.message, state)));
        self.job_ended(no);
    }

    /// Releases the slot. The device time charged is at most the time in the slot, because the executor's report may be wrong.
    fn leave_device(&mut self, no: JobNo, slot: Slot, used_us: Option<u64>) {
        let held_us = slot.held_us(self.now);
        let used_us = used_us.map_or(held_us, |used_us| used_us.min(held_us));
        self.changes.push(Change::Left { ticket: slot.ticket, used_us });
        self.credit.stopped(self.message(no.message).info.queue, slot.since, self.now);
    }

    fn leave_queue(&mut self, no: JobNo) {
        if let State::Queued(ticket, _) = self.job(no).state {
            self.tickets.remove(&ticket);
            self.changes.push(Change::Left { ticket, used_us: 0 });
        }
    }

    fn leave_room_line(&mut self, no: JobNo) {
        let message = self.message_mut(no.message);
        message.jobs[no.index].room = 0;
        message.room.iter_mut().for_each(|room| room.leave(no.index));
        self.let_in(no.message);
    }

    /// Returns the room for the job's outputs, so that other jobs of its list can proceed.
    pub(super) fn give_back_room(&mut self, no: JobNo) {
        let message = self.message_mut(no.message);
        let taken = std::mem::take(&mut message.jobs[no.index].room);
        if taken > 0
            && let Some(room) = &mut message.room
        {
            room.give_back(taken);
            self.let_in(no.message);
        }
    }

    fn let_in(&mut self, message: super::MessageNo) {
        while let Some(index) = self.message_mut(message).room.as_mut().and_then(OutputRoom::next) {
            self.queue(JobNo { message, index });
        }
    }

    fn disarm(&mut self, no: JobNo) {
        if let Some(limit) = self.job(no).limit {
            self.timers.clear(limit.deadline(), Timer::Expiry(no));
        }
    }

    pub(super) fn job(&self, no: JobNo) -> &Job<J> {
        &self.message(no.message).jobs[no.index]
    }

    fn job_mut(&mut self, no: JobNo) -> &mut Job<J> {
        &mut self.message_mut(no.message).jobs[no.index]
    }

    /// Returns the job unless its message is already settled.
    fn find_job(&mut self, no: JobNo) -> Option<&mut Job<J>> {
        self.messages.get_mut(&no.message)?.jobs.get_mut(no.index)
    }
}

/// Returns the ending of a cancelled job; [`Dispatcher::conclude`] fills in who cancelled it.
fn cancelled() -> Ending {
    Ending::Cancelled { reason: String::new() }
}

fn tell(disposition: &Disposition, subject: &Subject, attempt: u32) {
    let job_id = subject.job;
    match disposition {
        Disposition::Final { state, failure: None, .. } => debug!(%job_id, attempt, %state, "job ended"),
        Disposition::Final { state, failure: Some(failure), .. } => {
            info!(%job_id, attempt, %state, code = failure.code.name(), "job ended");
        }
        Disposition::Again { past: RetryHistory { losses, unavailable }, failure, after } => {
            let seconds = after.map_or(0, |rung| rung.seconds);
            warn!(%job_id, attempt, losses, unavailable, seconds, reason = failure.message, "job scheduled for a retry");
        }
        Disposition::Forward { history, to: Destination::Class(class) } => {
            info!(%job_id, %class, forwards = history.forwards, "requirements not met here, job forwarded");
        }
        Disposition::Forward { history, to: Destination::Later(rung) } => {
            let (waits, seconds) = (history.waits, rung.seconds);
            info!(%job_id, waits, seconds, "no worker can take the job now, job delayed");
        }
        Disposition::HandBack => debug!(%job_id, "job requeued"),
    }
}
