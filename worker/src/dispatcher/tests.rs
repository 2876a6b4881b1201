//! Tests of the dispatcher, step by step.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gpufleet_schema::{
    Command, Failure, FailureCode, JobId, MessageId, Order, Priority, Selection, Verdict, topology::Speaker,
};

use super::{
    AttemptEnd, Decoded, Effect, JobNo, MessageInfo, MessageKey, MessageNo, Preparation, PublishFailure, QueueLimit,
    ReadOrder, ServedQueue, Settlement, Subject, digest,
};
use crate::{
    disposition::{Disposition, Ending, RetryHistory},
    scheduler::{Allowed, Change, Demand, DeviceId, ExecutorId, PoolGuarantee, PoolId, prefetch::PrefetchLimits},
};

mod renewal;
mod sessions;
mod trains;

type Dispatcher = super::Dispatcher<(), ()>;
type Input = super::Input<(), ()>;
type NewJob = super::NewJob<()>;

const FIRST: MessageNo = MessageNo(1);
const NONE: [usize; 0] = [];
const SECOND: MessageNo = MessageNo(2);
const THIRD: MessageNo = MessageNo(3);
/// Indices of the three queues: a pool's own, one of an affinity slot, and that of sessions.
const POOL: usize = 0;
const SLOT: usize = 1;
const SESSIONS: usize = 2;

/// A dispatcher with one device, and the effects that it has produced.
struct Desk {
    dispatcher: Dispatcher,
    now: Instant,
    mark: MessageId,
    effects: Vec<Effect>,
    deliveries: u64,
}

impl Desk {
    /// Creates a dispatcher with this many slots that has read all orders.
    fn new(slots: u32) -> Self {
        let mut desk = Self::cut_off(slots);
        let mark = desk.mark;
        desk.order(Command::Mark { id: mark }, Speaker::Worker, None);
        desk
    }

    /// Creates a dispatcher with this many slots that has read no orders.
    fn cut_off(slots: u32) -> Self {
        let (now, mark) = (Instant::now(), MessageId::new());
        let dispatcher = Dispatcher::new(now, "w".parse().unwrap(), mark, &[PoolGuarantee::default()]);
        let mut desk = Self { dispatcher, now, mark, effects: Vec::new(), deliveries: 0 };
        desk.tell(Input::Devices(Change::Device { device: DeviceId(0), slots, bytes: 100 }));
        desk.tell(Input::Devices(Change::ExecutorUp(ExecutorId::first(DeviceId(0), PoolId(0)))));
        let limits = PrefetchLimits { messages_max: 8, bytes_max: 1 << 20, message_bytes_max: 1 };
        let (pool, priority) = (PoolId(0), Priority::Normal);
        let queue = |has_favourite| ServedQueue { pool, priority, has_favourite, fixed_prefetch: None };
        let sessions = ServedQueue { fixed_prefetch: Some(2), ..queue(false) };
        let first = desk.dispatcher.serve(limits, vec![queue(false), queue(true), sessions]);
        assert_eq!(first[SESSIONS], 2);
        desk
    }

    fn tell(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.dispatcher.step(self.now, &mut vec![input], &mut effects);
        self.effects.extend(effects);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let mut effects = Vec::new();
        self.dispatcher.step(self.now, &mut Vec::new(), &mut effects);
        self.effects.extend(effects);
    }

    fn deliver(&mut self, message: MessageNo, id: &str, redelivered: bool) {
        self.deliver_from(POOL, message, id, redelivered);
    }

    fn deliver_from(&mut self, queue: usize, message: MessageNo, id: &str, redelivered: bool) {
        let deliveries = u64::from(redelivered);
        self.tell_delivered(message, message_info(queue, id, deliveries, deliveries));
    }

    /// Delivers a message that the broker has delivered `redeliveries` times before and whose header counts `counted`
    /// deliveries.
    fn deliver_again(&mut self, message: MessageNo, id: &str, redeliveries: u64, counted: u64) {
        self.tell_delivered(message, message_info(POOL, id, redeliveries, counted + redeliveries));
    }

    fn tell_delivered(&mut self, message: MessageNo, info: MessageInfo) {
        self.deliveries += 1;
        assert_eq!(message, MessageNo(self.deliveries), "messages are numbered as they arrive");
        self.tell(Input::Delivered(Box::new(info), ()));
    }

    /// Takes the copies to publish, with their delivery counts.
    fn copied(&mut self) -> Vec<(MessageNo, u64)> {
        self.taken(|effect| match effect {
            Effect::Copy { message, delivery_count } => Some((*message, *delivery_count)),
            _ => None,
        })
    }

    /// Delivers and decodes a message with these jobs.
    fn take(&mut self, message: MessageNo, jobs: Vec<NewJob>) {
        self.take_from(POOL, message, jobs);
    }

    fn take_from(&mut self, queue: usize, message: MessageNo, jobs: Vec<NewJob>) {
        self.deliver_from(queue, message, &message.0.to_string(), false);
        let decoded = Decoded { is_list: jobs.len() > 1, body_bytes: 4, held: (), jobs };
        self.tell(Input::Decoded(message, decoded));
    }

    fn order(&mut self, command: Command, speaker: Speaker, user: Option<&str>) {
        self.order_at(None, command, speaker, user);
    }

    fn order_at(&mut self, offset: Option<i64>, command: Command, speaker: Speaker, user: Option<&str>) {
        let order = Some(Order::new(20, Some("anna".into()), command));
        let user = user.map(str::to_owned);
        self.tell(Input::Order(Box::new(ReadOrder { offset, order, speaker: Some(speaker), user })));
    }

    fn end(&mut self, job: JobNo, ending: Ending, bytes: usize) {
        self.tell(Input::Ended(job, Box::new(AttemptEnd { ending, bytes, returns: bytes > 0, used_us: None }), ()));
    }

    /// Takes the jobs that have started since the last call, as indices in their messages.
    fn started(&mut self) -> Vec<usize> {
        let started = |effect: &Effect| match effect {
            Effect::Start { jobs, .. } => Some(jobs.iter().map(|job| job.index).collect::<Vec<_>>()),
            _ => None,
        };
        self.taken(started).concat()
    }

    fn looks_for_idle(&mut self) -> usize {
        self.taken(|effect| matches!(effect, Effect::LookForIdle { .. }).then_some(())).len()
    }

    fn settled(&mut self) -> Vec<Settlement> {
        self.taken(|effect| if let Effect::Settle(_, settlement) = effect { Some(*settlement) } else { None })
    }

    fn answered(&mut self) -> Vec<Vec<(usize, Disposition)>> {
        self.taken(|effect| if let Effect::Answer { jobs, .. } = effect { Some(jobs.clone()) } else { None })
    }

    fn is_drain_ordered(&mut self) -> bool {
        !self.taken(|effect| matches!(effect, Effect::DrainOrdered).then_some(())).is_empty()
    }

    fn taken<T>(&mut self, wanted: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        let taken = self.effects.iter().filter_map(&wanted).collect();
        self.effects.retain(|effect| wanted(effect).is_none());
        taken
    }

    /// Returns whether the job was answered as cancelled.
    fn is_cancelled(&mut self) -> bool {
        let answered = self.answered();
        let of = |jobs: &Vec<(usize, Disposition)>| format!("{jobs:?}").contains("cancelled by anna");
        answered.iter().any(of)
    }
}

fn message_info(queue: usize, id: &str, redeliveries: u64, delivery_count: u64) -> MessageInfo {
    let redelivered = delivery_count > 0;
    MessageInfo {
        queue,
        key: MessageKey::of(Some(id), b"body"),
        digest: redelivered.then(|| digest(id, b"body")),
        redelivered,
        attempt: 1 + delivery_count as u32,
        redeliveries,
        delivery_count,
        past: RetryHistory::default(),
        inadmissible: None,
        unreadable: None,
    }
}

fn job() -> NewJob {
    with_label("a", 0, None)
}

fn with_label(label: &str, submitted_ms: i64, user: Option<&str>) -> NewJob {
    let labels = BTreeMap::from([("run".to_owned(), label.to_owned())]);
    let subject = Subject { job: JobId::new(), labels, submitted_ms, user: user.map(str::to_owned) };
    let demand = Demand {
        pool: PoolId(0),
        priority: Priority::Normal,
        bytes: 1,
        alone: false,
        prints: false,
        allowed: Allowed::ALL,
        input: None,
        returnable: true,
        brief_us: None,
        is_long: false,
        session: None,
    };
    let preparation = Preparation::Ready { demand, reply_bytes: 0 };
    NewJob { held: (), subject, attempts_max: 3, limit: None, preparation }
}

fn first_of(message: MessageNo) -> JobNo {
    JobNo { message, index: 0 }
}

fn cancel(jobs: &[JobId], label: Option<&str>) -> Command {
    let labels = label.map(|value| ("run".to_owned(), value.to_owned())).into_iter().collect();
    Command::Cancel(Selection { jobs: jobs.to_vec(), labels })
}

fn drain(name: &str) -> Command {
    Command::Drain { worker: name.parse().unwrap() }
}

fn not_confirmed() -> PublishFailure {
    PublishFailure { reason: "gone".to_owned() }
}

#[test]
fn a_message_is_acknowledged_once_its_reply_and_its_record_are_confirmed() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    assert_eq!(desk.started(), [0]);
    desk.end(first_of(FIRST), Ending::Succeeded, 4);
    assert_eq!(desk.answered().len(), 1);
    desk.tell(Input::Recorded(FIRST, Ok(())));
    assert_eq!(desk.settled(), []);
    desk.tell(Input::Answered(FIRST, Ok(())));
    assert_eq!(desk.settled(), [Settlement::Answered]);
    desk.tell(Input::Settled(vec![(FIRST, None)]));
    assert!(desk.dispatcher.is_unused());
}

#[test]
fn an_outcome_that_is_not_confirmed_requeues_the_message_after_a_while() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.end(first_of(FIRST), Ending::Succeeded, 4);
    desk.tell(Input::Answered(FIRST, Err(not_confirmed())));
    assert_eq!(desk.settled(), []);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.settled(), [Settlement::Requeue]);
}

#[test]
fn a_redelivery_waits_for_the_first_delivery_and_is_acknowledged_with_it() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.deliver(SECOND, "1", true);
    desk.end(first_of(FIRST), Ending::Succeeded, 4);
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.tell(Input::Lost(FIRST));
    desk.tell(Input::Recorded(FIRST, Ok(())));
    assert_eq!(desk.settled(), [Settlement::Answered]);
    desk.tell(Input::Settled(vec![(FIRST, Some(digest("1", b"body")))]));
    assert_eq!(desk.settled(), [Settlement::Answered], "it does not run again");
}

#[test]
fn a_list_is_answered_in_portions_while_its_other_jobs_run() {
    let mut desk = Desk::new(2);
    desk.take(FIRST, vec![job(), job(), job()]);
    assert_eq!(desk.started(), [0, 1]);
    desk.end(JobNo { message: FIRST, index: 1 }, Ending::Succeeded, 2 << 20);
    assert_eq!(desk.answered().len(), 1);
    assert_eq!(desk.started(), [2]);
    desk.end(JobNo { message: FIRST, index: 0 }, Ending::Succeeded, 2 << 20);
    assert_eq!(desk.answered().len(), 0, "one portion at a time");
    desk.tell(Input::Answered(FIRST, Ok(())));
    assert_eq!(desk.answered().len(), 1);
}

#[test]
fn a_long_list_is_handed_back_once_other_workers_are_idle() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job(), job(), job()]);
    desk.pass(Duration::from_millis(100));
    assert_eq!(desk.looks_for_idle(), 1);
    desk.tell(Input::Looked { message: FIRST, others_idle: false });
    assert!(desk.answered().is_empty());
    desk.pass(Duration::from_millis(100));
    assert_eq!(desk.looks_for_idle(), 1);
    desk.tell(Input::Looked { message: FIRST, others_idle: true });
    assert_eq!(desk.answered(), [[(1, Disposition::HandBack), (2, Disposition::HandBack)]], "the first one runs");
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.end(first_of(FIRST), Ending::Succeeded, 0);
    assert_eq!(desk.answered().len(), 1);
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.tell(Input::Recorded(FIRST, Ok(())));
    assert_eq!(desk.settled(), []);
    desk.tell(Input::Recorded(FIRST, Ok(())));
    assert_eq!(desk.settled(), [Settlement::SentOn]);
    desk.tell(Input::Settled(vec![(FIRST, None)]));
    assert!(desk.dispatcher.is_unused());
}

#[test]
fn a_job_of_an_affinity_slot_waits_until_other_workers_are_idle() {
    let mut desk = Desk::new(1);
    desk.take_from(SLOT, FIRST, vec![job()]);
    desk.take_from(SLOT, SECOND, vec![job()]);
    assert_eq!(desk.started(), [0], "the first one");
    // The pauses double, because the job may wait for minutes.
    for pause in [1, 1, 2, 4] {
        desk.pass(Duration::from_millis(1000 * pause - 1));
        assert_eq!(desk.looks_for_idle(), 0);
        desk.pass(Duration::from_millis(1));
        assert_eq!(desk.looks_for_idle(), 1, "the first one runs");
        desk.tell(Input::Looked { message: SECOND, others_idle: pause == 4 });
    }
    assert_eq!(desk.answered(), [[(0, Disposition::HandBack)]], "it is published as a new message");
    desk.tell(Input::Answered(SECOND, Ok(())));
    desk.tell(Input::Recorded(SECOND, Ok(())));
    assert_eq!(desk.settled(), [Settlement::SentOn]);
}

#[test]
fn a_job_of_an_affinity_slot_that_has_started_stays() {
    let mut desk = Desk::new(1);
    desk.take_from(SLOT, FIRST, vec![job()]);
    desk.take_from(SLOT, SECOND, vec![job()]);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.looks_for_idle(), 1);
    desk.end(first_of(FIRST), Ending::Succeeded, 0);
    desk.tell(Input::Looked { message: SECOND, others_idle: true });
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.looks_for_idle(), 0);
    assert_eq!(desk.answered().len(), 1, "that of the first one");
}

#[test]
fn a_job_of_an_affinity_slot_that_is_being_prepared_stays() {
    let mut desk = Desk::new(1);
    desk.take_from(SLOT, FIRST, vec![NewJob { preparation: Preparation::Underway, ..job() }]);
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.looks_for_idle(), 0, "it would have to be prepared again");
}

#[test]
fn a_job_of_the_pools_own_queue_is_not_handed_back() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.take(SECOND, vec![job()]);
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.looks_for_idle(), 0);
}

#[test]
fn the_ended_jobs_of_a_long_list_are_answered_while_the_others_run() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job(), job(), job(), job()]);
    desk.pass(Duration::from_millis(60));
    desk.end(first_of(FIRST), Ending::Succeeded, 0);
    assert!(desk.answered().is_empty());
    desk.pass(Duration::from_millis(40));
    assert_eq!(desk.answered().len(), 1);
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.tell(Input::Looked { message: FIRST, others_idle: false });
    desk.pass(Duration::from_millis(100));
    assert!(desk.answered().is_empty(), "no other job has ended");
    desk.end(JobNo { message: FIRST, index: 1 }, Ending::Succeeded, 0);
    desk.end(JobNo { message: FIRST, index: 2 }, Ending::Succeeded, 0);
    desk.tell(Input::Looked { message: FIRST, others_idle: false });
    desk.pass(Duration::from_millis(100));
    let answered: Vec<usize> = desk.answered().into_iter().flatten().map(|(index, _)| index).collect();
    assert_eq!(answered, [1, 2], "no job of the list waits for a slot any more, but one runs");
}

#[test]
fn a_list_of_brief_jobs_and_one_that_is_about_to_end_stay() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, (0..100).map(|_| job()).collect());
    for index in 0..60 {
        desk.pass(Duration::from_millis(2));
        desk.end(JobNo { message: FIRST, index }, Ending::Succeeded, 0);
    }
    desk.take(SECOND, vec![job(), job()]);
    for index in 60..99 {
        desk.pass(Duration::from_millis(10));
        desk.end(JobNo { message: FIRST, index }, Ending::Succeeded, 0);
    }
    assert_eq!(desk.looks_for_idle(), 0);
}

#[test]
fn draining_hands_back_what_waits_and_what_still_arrives() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.take(SECOND, vec![job()]);
    desk.tell(Input::Drain);
    assert_eq!(desk.settled(), [Settlement::Requeue]);
    desk.take(MessageNo(3), vec![job()]);
    assert_eq!(desk.settled(), [Settlement::Requeue]);
    desk.end(first_of(FIRST), Ending::Succeeded, 0);
    assert_eq!(desk.answered().len(), 1, "what runs ends");
}

#[test]
fn a_job_expires_while_it_waits_and_not_once_it_runs() {
    let mut desk = Desk::new(1);
    let limit = QueueLimit { limit: Duration::from_secs(5), before: Duration::ZERO, delivered: desk.now };
    desk.take(FIRST, vec![NewJob { limit: Some(limit), ..job() }]);
    desk.take(SECOND, vec![NewJob { limit: Some(limit), ..job() }]);
    assert_eq!(desk.started(), [0]);
    desk.pass(Duration::from_secs(6));
    let answered = desk.answered();
    assert_eq!(answered.len(), 1);
    assert!(format!("{answered:?}").contains("longer than its limit of 5000 ms"), "{answered:?}");
}

#[test]
fn a_job_that_would_be_retried_expires_if_it_is_too_late_to_start() {
    let failure = || Failure::new(Verdict::Infrastructure, FailureCode::BlobMissing, "no such blob");
    for (before, state) in [(4, "Again"), (6, "Expired")] {
        let mut desk = Desk::new(1);
        let (limit, before) = (Duration::from_secs(5), Duration::from_secs(before));
        let limit = Some(QueueLimit { limit, before, delivered: desk.now });
        let preparation = Preparation::Ended(Ending::Unavailable { failure: failure(), tries_max: 3 });
        desk.take(FIRST, vec![NewJob { limit, preparation, ..job() }]);
        let answered = format!("{:?}", desk.answered());
        assert!(answered.contains(state), "{answered}");
    }
}

#[test]
fn a_job_is_charged_for_no_more_time_than_it_held_its_slot() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    let ended = AttemptEnd { ending: Ending::Succeeded, bytes: 0, returns: false, used_us: Some(u64::MAX) };
    desk.tell(Input::Ended(first_of(FIRST), Box::new(ended), ()));
    assert_eq!(desk.dispatcher.running(), 0);
}

#[test]
fn a_cancellation_reaches_the_job_that_is_here_and_the_one_that_comes_later() {
    let mut desk = Desk::new(1);
    let (runs, here, later) = (job(), job(), job());
    let ids = [here.subject.job, later.subject.job];
    desk.take(FIRST, vec![runs]);
    desk.take(SECOND, vec![here]);
    assert!(!desk.is_cancelled());
    desk.order(cancel(&ids, None), Speaker::Operator, None);
    assert!(desk.is_cancelled());
    desk.take(MessageNo(3), vec![later]);
    assert!(desk.is_cancelled());
    desk.end(first_of(FIRST), Ending::Succeeded, 0);
    assert!(!desk.is_cancelled(), "it was not meant");
}

#[test]
fn a_job_that_runs_is_cut_and_reported_as_cancelled() {
    let mut desk = Desk::new(1);
    let runs = job();
    let id = runs.subject.job;
    desk.take(FIRST, vec![runs]);
    desk.order(cancel(&[id], None), Speaker::Operator, None);
    assert_eq!(desk.taken(|effect| matches!(effect, Effect::Cancel(_)).then_some(())).len(), 1);
    desk.end(first_of(FIRST), Ending::Lost { reason: "killed".into(), suspect: true }, 0);
    assert!(desk.is_cancelled());
}

#[test]
fn a_label_cancels_what_was_submitted_before_and_nothing_after() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![with_label("other", 19, None)]);
    desk.take(SECOND, vec![with_label("a", 19, None), with_label("b", 19, None), with_label("a", 21, None)]);
    desk.order(cancel(&[], Some("a")), Speaker::Operator, None);
    let ended = desk.dispatcher.jobs_that(|job| job.disposition().is_some());
    assert_eq!(ended, [first_of(SECOND)]);
}

#[test]
fn an_order_counts_only_from_a_sender_who_may_give_it() {
    let mut desk = Desk::cut_off(1);
    let mark = Command::Mark { id: desk.mark };
    desk.take(FIRST, vec![with_label("a", 0, Some("anna"))]);
    desk.order(mark.clone(), Speaker::Client, Some("anna"));
    assert_eq!(desk.started(), NONE, "clients write no marks");
    let id = desk.dispatcher.job(first_of(FIRST)).subject.job;
    for (speaker, user) in [(Speaker::Worker, Some("anna")), (Speaker::Client, Some("eve")), (Speaker::Client, None)] {
        desk.order(cancel(&[id], None), speaker, user);
    }
    assert!(!desk.is_cancelled());
    desk.order(mark, Speaker::Worker, None);
    assert_eq!(desk.started(), [0]);
    for speaker in [Speaker::Client, Speaker::Worker] {
        desk.order(drain("w"), speaker, Some("eve"));
    }
    assert!(!desk.is_drain_ordered());
    desk.take(SECOND, vec![with_label("a", 0, Some("anna"))]);
    let id = desk.dispatcher.job(first_of(SECOND)).subject.job;
    desk.order(cancel(&[id], None), Speaker::Client, Some("anna"));
    assert!(desk.is_cancelled(), "it is anna's own");
}

#[test]
fn only_a_drain_by_its_own_name_and_after_its_start_is_meant_for_this_worker() {
    let mut desk = Desk::cut_off(1);
    desk.order(drain("w"), Speaker::Operator, None);
    let mark = desk.mark;
    desk.order(Command::Mark { id: mark }, Speaker::Worker, None);
    desk.order(drain("other"), Speaker::Operator, None);
    assert!(!desk.is_drain_ordered());
    desk.order(drain("w"), Speaker::Operator, None);
    assert!(desk.is_drain_ordered(), "whatever the clocks say");
}

#[test]
fn a_log_that_is_read_from_its_beginning_again_repeats_no_drain_order() {
    let mut desk = Desk::cut_off(1);
    let (first, second) = (desk.mark, MessageId::new());
    desk.order_at(Some(4), Command::Mark { id: first }, Speaker::Worker, None);
    desk.tell(Input::OrdersInterrupted { mark: second });
    desk.order_at(Some(0), drain("w"), Speaker::Operator, None);
    desk.order_at(Some(4), Command::Mark { id: first }, Speaker::Worker, None);
    desk.order_at(Some(5), Command::Mark { id: second }, Speaker::Worker, None);
    assert!(!desk.is_drain_ordered(), "it was for an earlier worker of this name");
}

#[test]
fn after_an_interruption_jobs_wait_for_what_was_ordered_meanwhile() {
    let mut desk = Desk::new(2);
    let (first, second) = (desk.mark, MessageId::new());
    desk.tell(Input::OrdersInterrupted { mark: second });
    let (cancelled, other) = (job(), job());
    let id = cancelled.subject.job;
    desk.take(FIRST, vec![cancelled]);
    desk.take(SECOND, vec![other]);
    desk.order(Command::Mark { id: first }, Speaker::Worker, None);
    desk.order(cancel(&[id], None), Speaker::Operator, None);
    assert_eq!(desk.started(), NONE);
    assert!(desk.is_cancelled(), "its cancellation came before the mark");
    desk.order(Command::Mark { id: second }, Speaker::Worker, None);
    assert_eq!(desk.started(), [0]);
}

#[test]
fn after_an_interruption_of_the_clients_stream_jobs_wait_too() {
    let mut desk = Desk::new(1);
    desk.tell(Input::ClientOrdersKnown(false));
    desk.take(FIRST, vec![with_label("a", 0, Some("anna"))]);
    desk.order(Command::Mark { id: desk.mark }, Speaker::Worker, None);
    assert_eq!(desk.started(), NONE, "anna's orders are in the other stream");
    desk.tell(Input::ClientOrdersKnown(true));
    assert_eq!(desk.started(), [0]);
}

#[test]
fn jobs_wait_while_orders_come_and_go_on_when_none_do() {
    let mut desk = Desk::cut_off(1);
    desk.take(FIRST, vec![job()]);
    desk.pass(Duration::from_secs(5));
    desk.order(cancel(&[], None), Speaker::Operator, None);
    desk.pass(Duration::from_secs(6));
    assert_eq!(desk.started(), NONE, "an order came");
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.started(), [0]);
}
