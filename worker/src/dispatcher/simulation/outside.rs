//! The work outside the dispatcher: tasks, executors, the broker. Each piece ends at a random later step, well or
//! badly.

use std::time::Duration;

use gpufleet_schema::{
    AttemptState, Command, Failure, FailureCode, MessageId, Priority, Verdict,
    topology::{Speaker, retry_rung},
};

use super::{
    super::{
        AttemptEnd, Decoded, JobNo, MessageInfo, MessageKey, MessageNo, NewJob, Preparation, PublishFailure,
        QueueLimit, Settlement, Subject, digest,
    },
    HeldMessage, Input, QueuedMessage, UNSETTLED_MAX, World,
};
use crate::{
    disposition::{Disposition, Ending},
    forwarding::{Destination, ForwardingHistory},
    scheduler::{Allowed, Demand, DeviceId, ExecutorId, PoolId},
};

#[derive(Debug)]
pub(super) enum Work {
    Decode(MessageNo),
    Prepare(JobNo),
    Run { job: JobNo, executor: ExecutorId, bytes: u64, train: u64, is_cut: bool },
    Store(JobNo),
    Forward(JobNo),
    Answer { message: MessageNo, jobs: Vec<(usize, Disposition)> },
    Record { message: MessageNo, jobs: Vec<(usize, Disposition)> },
    Whole { message: MessageNo, what: Whole },
    Settle(MessageNo, Settlement),
    Look(MessageNo),
    Subscribe(usize, u16),
    ReadMark(MessageId),
}

/// What is published for a message as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whole {
    Nothing,
    /// A copy with this delivery count.
    Copy(u64),
    Refusal,
}

impl Work {
    pub(super) fn runs_in(&self, wanted: ExecutorId) -> bool {
        matches!(self, Self::Run { executor, .. } if *executor == wanted)
    }

    /// Returns the train and memory of the job if it runs on the device.
    pub(super) fn on(&self, wanted: DeviceId) -> Option<(u64, u64)> {
        match self {
            Self::Run { executor, train, bytes, .. } if executor.device == wanted => Some((*train, *bytes)),
            _ => None,
        }
    }
}

fn failure() -> Failure {
    Failure::new(Verdict::User, FailureCode::InvalidTask, "wrong")
}

fn refused() -> PublishFailure {
    PublishFailure { reason: "refused".to_owned() }
}

impl World {
    pub(super) fn deliver(&mut self) {
        if self.draining || self.held.len() >= UNSETTLED_MAX {
            return;
        }
        let Some(queued) = self.queue.pop_front() else { return };
        self.deliveries += 1;
        self.last_message += 1;
        let message = MessageNo(self.last_message);
        let body = format!("{:?}", queued.jobs);
        let came_before = queued.redelivered || queued.counted > 0;
        let info = MessageInfo {
            queue: queued.jobs.first().map_or(0, |job| self.jobs[*job].pool as usize),
            key: MessageKey::of(Some(&queued.id), body.as_bytes()),
            digest: came_before.then(|| digest(&queued.id, body.as_bytes())),
            redelivered: came_before,
            attempt: 1 + (queued.deliveries + queued.counted) as u32,
            redeliveries: queued.deliveries,
            delivery_count: queued.deliveries + queued.counted,
            past: queued.past,
            inadmissible: None,
            unreadable: (!queued.is_readable && self.chance.percent(50)).then(|| "no content type".to_owned()),
        };
        let held = HeldMessage {
            queued,
            connection: self.connection,
            told: false,
            answered: Default::default(),
            published: Default::default(),
            recorded: Default::default(),
            whole: false,
            is_refused: false,
            is_settling: false,
        };
        self.held.insert(message, held);
        self.batch.push(Input::Delivered(Box::new(info), ()));
    }

    /// Passes an input about a message, after the input that its connection is lost.
    fn tell(&mut self, message: MessageNo, input: Input) {
        let is_live = self.is_live(message);
        if let Some(held) = self.held.get_mut(&message)
            && !is_live
            && !std::mem::replace(&mut held.told, true)
        {
            self.batch.push(Input::Lost(message));
        }
        self.batch.push(input);
    }

    fn end(&mut self, job: JobNo, ending: Ending) {
        let bytes = self.chance.below(3) as usize * (400 << 10);
        let returns = bytes > 0;
        let ended = AttemptEnd { ending, bytes, returns, used_us: None };
        self.tell(job.message, Input::Ended(job, Box::new(ended), ()));
    }

    pub(super) fn executor_lost(&mut self, work: Work) {
        let Work::Run { job, is_cut, .. } = work else { unreachable!("only a run is lost with its executor") };
        let reason = "signal 9".to_owned();
        let ending = if is_cut {
            Ending::Cancelled { reason }
        } else {
            Ending::Lost { reason, suspect: self.chance.percent(50) }
        };
        self.end(job, ending);
    }

    /// Cancels a job: a preparation ends at once, a run a little later.
    pub(super) fn cut(&mut self, cancelled: JobNo) {
        self.work.retain(|work| !matches!(work, Work::Prepare(job) if *job == cancelled));
        for work in &mut self.work {
            if let Work::Run { job, is_cut, .. } = work
                && *job == cancelled
            {
                *is_cut = true;
            }
        }
    }

    /// Ends one piece of work.
    pub(super) fn work_on(&mut self) {
        if self.work.is_empty() {
            return;
        }
        let index = self.chance.below(self.work.len() as u64) as usize;
        match self.work.swap_remove(index) {
            Work::Decode(message) => self.decode(message),
            Work::Prepare(job) => self.prepare(job),
            Work::Run { job, is_cut, .. } => self.run(job, is_cut),
            Work::Store(job) | Work::Forward(job) => self.finish(job),
            Work::Answer { message, jobs } => self.publish_answer(message, jobs),
            Work::Record { message, jobs } => self.record(message, jobs),
            Work::Whole { message, what } => self.publish_whole(message, what),
            Work::Settle(message, settlement) => self.send_settlement(message, settlement),
            Work::Look(message) => {
                let others_idle = self.chance.percent(50);
                self.tell(message, Input::Looked { message, others_idle });
            }
            Work::Subscribe(queue, prefetch) => self.batch.push(Input::Subscribed { queue, prefetch }),
            Work::ReadMark(id) => self.order(Command::Mark { id }, Speaker::Worker),
        }
    }

    fn goes_wrong(&mut self, percent: u64) -> bool {
        self.is_rough && self.chance.percent(percent)
    }

    fn decode(&mut self, message: MessageNo) {
        if self.goes_wrong(1) {
            return self.tell(message, Input::Broken(message));
        }
        let QueuedMessage { jobs, is_list, is_readable, redelivered, past, .. } = self.held[&message].queued.clone();
        if !is_readable {
            return self.tell(message, Input::Unreadable(message, Box::new(failure())));
        }
        let mut new = Vec::new();
        for job in jobs {
            let preparation = match self.chance.below(10) {
                0 => Preparation::Ended(Ending::Failed(failure())),
                1..4 => Preparation::Underway,
                _ => Preparation::Ready { demand: self.demand(job, is_list, past.losses > 0), reply_bytes: 20 << 20 },
            };
            let job = &self.jobs[job];
            let limit = job.limit.filter(|_| !redelivered);
            new.push(NewJob {
                held: (),
                subject: Subject { job: job.id, labels: Default::default(), submitted_ms: 0, user: None },
                attempts_max: 3,
                limit: limit.map(|limit| QueueLimit { limit, before: Duration::ZERO, delivered: self.now }),
                preparation,
            });
        }
        let decoded = Decoded { is_list, body_bytes: 100, held: (), jobs: new };
        self.tell(message, Input::Decoded(message, decoded));
    }

    fn demand(&mut self, job: usize, is_list: bool, alone: bool) -> Demand {
        let (pool, bytes) = (PoolId(self.jobs[job].pool), self.jobs[job].bytes);
        let prints = self.chance.percent(10);
        let brief_us = (!alone && !prints && self.chance.percent(50)).then(|| self.chance.below(100) as u32);
        let is_long = brief_us.is_none() && self.chance.percent(50);
        let (priority, allowed) = (Priority::Normal, Allowed::ALL);
        Demand {
            pool,
            priority,
            bytes,
            alone,
            prints,
            allowed,
            input: None,
            returnable: !is_list,
            brief_us,
            is_long,
            session: None,
        }
    }

    fn prepare(&mut self, job: JobNo) {
        if self.goes_wrong(1) {
            return self.tell(job.message, Input::JobBroken(job));
        }
        match self.chance.below(10) {
            0 => self.end(job, Ending::Failed(failure())),
            1 => self.end(job, Ending::Unavailable { failure: failure(), tries_max: 3 }),
            _ => {
                let Some(held) = self.held.get(&job.message) else { return };
                let (of_all, is_list) = (held.queued.jobs[job.index], held.queued.is_list);
                let demand = self.demand(of_all, is_list, false);
                self.tell(job.message, Input::Prepared { job, demand, reply_bytes: 10, held: () });
            }
        }
    }

    fn run(&mut self, job: JobNo, is_cut: bool) {
        if is_cut && self.chance.percent(50) {
            return self.end(job, Ending::Cancelled { reason: String::new() });
        }
        if self.goes_wrong(1) {
            return self.tell(job.message, Input::JobBroken(job));
        }
        match self.chance.below(21) {
            20 => self.tell(job.message, Input::Returned { job, held: () }),
            0 => self.end(job, Ending::Lost { reason: "signal 9".into(), suspect: true }),
            1 => self.end(job, Ending::ShortOfMemory(failure())),
            2 => self.end(job, Ending::Failed(failure())),
            3..7 => {
                self.tell(job.message, Input::Stopped { job, used_us: Some(10) });
                self.work.push(Work::Store(job));
            }
            _ => self.end(job, Ending::Succeeded),
        }
    }

    fn finish(&mut self, job: JobNo) {
        let history = ForwardingHistory::default();
        match self.chance.below(3) {
            0 => self.end(job, Ending::Forwarded { history, to: Destination::Later(retry_rung(1)) }),
            1 => self.end(job, Ending::Failed(failure())),
            _ => self.end(job, Ending::Succeeded),
        }
    }

    /// Publishes the answer. The record of the same jobs is separate work.
    fn publish_answer(&mut self, message: MessageNo, jobs: Vec<(usize, Disposition)>) {
        let fails = self.goes_wrong(3);
        // If publishing fails, a part of the answer may still have arrived.
        let published = if fails { self.chance.below(jobs.len() as u64) as usize } else { jobs.len() };
        for (index, disposition) in &jobs[..published] {
            self.publish_job(message, *index, disposition);
        }
        if fails {
            return self.tell(message, Input::Answered(message, Err(refused())));
        }
        if let Some(held) = self.held.get_mut(&message) {
            held.published.extend(jobs.iter().map(|(index, _)| *index));
        }
        self.tell(message, Input::Answered(message, Ok(())));
    }

    /// Publishes a job that runs again, as a message of its own.
    fn publish_job(&mut self, message: MessageNo, index: usize, disposition: &Disposition) {
        let is_live = self.is_live(message);
        // A failed message may be settled while its earlier answers are still being published.
        let Some(held) = self.held.get(&message) else { return };
        let (job, mut past) = (held.queued.jobs[index], held.queued.past);
        match disposition {
            Disposition::Again { past: next, .. } => past = *next,
            Disposition::Forward { .. } => {}
            Disposition::HandBack if is_live => {}
            Disposition::HandBack | Disposition::Final { .. } => return,
        }
        let id = self.jobs[job].id.to_string();
        self.queue.push_back(QueuedMessage { past, ..QueuedMessage::new(id, vec![job]) });
    }

    fn record(&mut self, message: MessageNo, jobs: Vec<(usize, Disposition)>) {
        if self.goes_wrong(2) {
            return self.tell(message, Input::Recorded(message, Err(refused())));
        }
        // A message whose answer failed is settled without its record.
        let Some(held) = self.held.get_mut(&message) else { return };
        for (index, disposition) in jobs {
            held.recorded.insert(index);
            if let Disposition::Final { state, .. } = disposition {
                assert_ne!(state, AttemptState::Lost);
                self.jobs[held.queued.jobs[index]].outcomes += 1;
            }
        }
        self.tell(message, Input::Recorded(message, Ok(())));
    }

    fn publish_whole(&mut self, message: MessageNo, what: Whole) {
        if self.goes_wrong(10) {
            return self.tell(message, Input::Published(message, Err(refused())));
        }
        let held = self.held.get_mut(&message).expect("it waits for this");
        (held.whole, held.is_refused) = (true, matches!(what, Whole::Refusal));
        match what {
            Whole::Nothing => {}
            Whole::Copy(counted) => {
                let queued = held.queued.clone();
                self.queue.push_back(QueuedMessage { redelivered: false, deliveries: 0, counted, ..queued });
            }
            Whole::Refusal => held.queued.jobs.iter().for_each(|job| self.jobs[*job].outcomes += 1),
        }
        self.tell(message, Input::Published(message, Ok(())));
    }

    fn send_settlement(&mut self, message: MessageNo, settlement: Settlement) {
        let is_live = self.is_live(message);
        let held = self.held.remove(&message).expect("a message is settled once");
        let HeldMessage { queued, .. } = held;
        let body = format!("{:?}", queued.jobs);
        let unreached = (!is_live).then(|| digest(&queued.id, body.as_bytes()));
        if settlement == Settlement::Answered {
            self.answered_ids.insert(queued.id.clone());
        }
        if settlement == Settlement::Requeue && is_live {
            self.redeliver(queued);
        }
        self.batch.push(Input::Settled(vec![(message, unreached)]));
    }
}
