//! Turns jobs into messages, publishes them and waits for the broker's confirm.

use std::{
    collections::{BTreeMap, HashMap},
    iter::Enumerate,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use futures::{StreamExt, future::join_all, stream};
use gpufleet_schema::{
    Batch, Encoding, MessageId, PoolName, Priority, Slot, Submitted, TooLarge, bounds::MESSAGE_BYTES_MAX,
    event::JobInfo, topology,
};
use gpufleet_transport::{HeaderValue, Message, Properties, PublishError};
use tokio::sync::oneshot;

use crate::{
    CheckedJob, Job, JobHandle, SubmitError, claims,
    connection::Connection,
    inbox::PendingReply,
    packing::{PACKED_BYTES_MAX, PACKED_RUN_US_MAX, PACKED_TASKS_MAX, Packet},
    run_times::JobKind,
    spans::SubmitSpan,
};

/// Messages of one `submit_many` that may be unconfirmed at once. This is enough to keep the broker busy, and it limits
/// encoded copies of large tasks to half a gigabyte, plus one message for each queue.
const MESSAGES_IN_FLIGHT_MAX: usize = 32;

/// The run time that `submit_many` assumes for a job of unknown run time: a message may carry [`PACKED_TASKS_MAX`] of
/// them.
const UNKNOWN_RUN_US: u64 = PACKED_RUN_US_MAX / PACKED_TASKS_MAX as u64;

/// An encoded job. Its reply is awaited already, because the reply can arrive before the confirm.
pub(crate) struct Submission {
    body: Vec<u8>,
    member: Member,
    destination: Destination,
    /// The expected run time. `None` if it is unknown, or if the job is too large to share a message. A job that must have a
    /// message of its own counts as one that fills it.
    run_us: Option<u64>,
}

/// A job in a message. Its task is encoded and not kept.
#[derive(Debug)]
pub(crate) struct Member {
    info: JobInfo,
    awaited: PendingReply,
    started: Instant,
    span: SubmitSpan,
}

/// A job that gathers with others. Its call of `submit` waits for the outcome.
pub(crate) type Gathered = (oneshot::Sender<Outcome>, Member);

type Outcome = Result<JobHandle, SubmitError>;
/// A queue of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub(crate) pool: PoolName,
    pub(crate) priority: Priority,
    /// The affinity slot, if the client uses them and the job has a large input.
    pub(crate) slot: Option<Slot>,
}

impl Destination {
    fn routing_key(&self) -> String {
        match self.slot {
            Some(slot) => topology::slot_key(&self.pool, slot, self.priority),
            None => topology::task_key(&self.pool, self.priority),
        }
    }
}

impl Submission {
    /// Checks and encodes a job. The time of submission is taken after the reply queue is declared and large arrays are
    /// stored, so that the queue time does not include them.
    pub(crate) async fn prepare(connection: &Connection, mut job: Job) -> Result<Self, SubmitError> {
        let started = Instant::now();
        #[cfg(feature = "ledger")]
        if job.is_chained() {
            job = Box::pin(connection.chained(job)).await?;
        }
        let files = job.take_files();
        let CheckedJob { mut task, pool, priority } = job.build()?;
        let span = connection.spans.begin(&mut task);
        connection.listen().await?;
        match connection.blobs() {
            Some(store) => {
                // The reply names blobs, which must exist for as long as the broker keeps it.
                let kept = connection.replies_kept().and_then(|time| u64::try_from(time.as_millis()).ok());
                task.keep_ms = task.keep_ms.max(kept);
                Box::pin(claims::check_in(&mut task, files, store)).await?;
            }
            None => claims::read_in(&mut task, files)?,
        }
        let job_id = task.job_id;
        task.reply = Some(connection.client().clone());
        task.submitted_ms = Some(now_ms());
        let info = JobInfo::of(&task, pool.clone(), priority, Some(connection.client().to_string()));
        let batch = Batch::One(task);
        let encoded = Encoding::MessagePack.encode_tasks(&batch);
        let body = encoded.map_err(|problem| SubmitError::Encode { job_id, problem: problem.to_string() })?;
        let Batch::One(task) = &batch else { unreachable!("the batch was made of one task") };
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(SubmitError::TooLarge { job_id, problem: TooLarge::task(task, body.len() as u64) });
        }
        let inbox = connection.inbox();
        let kind = (body.len() < PACKED_BYTES_MAX).then(|| JobKind::of(task));
        let run_us = match connection.replies_kept() {
            // The reply to a list of jobs is a list.
            Some(_) => Some(PACKED_RUN_US_MAX),
            None => kind.and_then(|kind| inbox.run_times().expected_us(kind)),
        };
        let slot = if connection.uses_affinity() { Slot::of(task) } else { None };
        let awaited = inbox.expect(job_id, kind).ok_or(SubmitError::AlreadySubmitted { job_id })?;
        let destination = Destination { pool, priority, slot };
        Ok(Self { body, member: Member { info, awaited, started, span }, destination, run_us })
    }

    /// Short jobs share messages. Every other job has its own message.
    pub(crate) async fn send(self, connection: &Arc<Connection>) -> Outcome {
        match self.run_us {
            Some(run_us) if run_us <= PACKED_RUN_US_MAX / 2 => self.send_gathered(connection, run_us).await,
            _ => self.send_alone(connection).await,
        }
    }

    async fn send_alone(self, connection: &Arc<Connection>) -> Outcome {
        let mut packet = Packet::new();
        packet.add(self.body, 0, ((), self.member));
        let mut outcomes = send_packet(connection, &self.destination, packet).await;
        outcomes.pop().expect("a packet has an outcome for each of its members").1
    }

    /// A separate task publishes the message, because cancelling one caller must not affect the others.
    async fn send_gathered(self, connection: &Arc<Connection>, run_us: u64) -> Outcome {
        let Self { body, member, destination, .. } = self;
        let (caller, outcome) = oneshot::channel();
        if let Some(packet) = connection.gatherings().add(&destination, body, run_us, (caller, member)) {
            tokio::spawn(send_gathered(connection.clone(), destination, packet));
        }
        outcome.await.unwrap_or_else(|_| Err(PublishError::Closed.into()))
    }
}

/// Publishes the packet, and then the jobs that gathered in the meantime, until none are left.
pub(crate) async fn send_gathered(connection: Arc<Connection>, destination: Destination, packet: Packet<Gathered>) {
    let mut next = Some(packet);
    while let Some(packet) = next {
        for (caller, outcome) in send_packet(&connection, &destination, packet).await {
            // An error means that the call of `submit` was cancelled.
            let _cancelled = caller.send(outcome);
        }
        next = connection.gatherings().settled(&destination);
    }
}

/// Publishes all jobs that still gather, and waits for the outcomes.
pub(crate) async fn send_all_gathered(connection: &Arc<Connection>) {
    let packets = connection.gatherings().take_all();
    join_all(packets.into_iter().map(|(destination, packet)| send_gathered(connection.clone(), destination, packet)))
        .await;
}

pub(crate) async fn send_many(connection: &Arc<Connection>, jobs: impl IntoIterator<Item = Job>) -> Vec<Outcome> {
    let packing = Packing { jobs: jobs.into_iter().enumerate(), packets: HashMap::new() };
    // Each step owns the connection: with a reference, the compiler does not see that a program may spawn this.
    let steps = stream::unfold((packing, connection.clone()), |(mut packing, connection)| async move {
        let step = packing.next(&connection).await?;
        Some(((step, connection.clone()), (packing, connection)))
    });
    let outcomes = steps.map(|(step, connection)| async move {
        match step {
            Step::Full(destination, packet) => send_packet(&connection, &destination, packet).await,
            Step::Refused(index, error) => vec![(index, Err(error))],
        }
    });
    // The buffer limits messages in flight, so jobs are taken and encoded only as fast as messages are confirmed.
    let outcomes = outcomes.buffer_unordered(MESSAGES_IN_FLIGHT_MAX).flat_map(stream::iter);
    let mut outcomes: Vec<(usize, Outcome)> = outcomes.collect().await;
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Packs the jobs of one `submit_many` into messages.
struct Packing<I> {
    jobs: Enumerate<I>,
    /// The message of each queue that is not full yet.
    packets: HashMap<Destination, Packet<(usize, Member)>>,
}

enum Step {
    /// A full message, or the last one for its queue.
    Full(Destination, Packet<(usize, Member)>),
    Refused(usize, SubmitError),
}

impl<I: Iterator<Item = Job>> Packing<I> {
    async fn next(&mut self, connection: &Connection) -> Option<Step> {
        for (index, job) in self.jobs.by_ref() {
            let Submission { body, member, destination, run_us } = match Submission::prepare(connection, job).await {
                Ok(submission) => submission,
                Err(error) => return Some(Step::Refused(index, error)),
            };
            let packet = self.packets.entry(destination.clone()).or_insert_with(Packet::new);
            if let Some(full) = packet.add(body, run_us.unwrap_or(UNKNOWN_RUN_US), (index, member)) {
                return Some(Step::Full(destination, full));
            }
        }
        let destination = self.packets.keys().next()?.clone();
        self.packets.remove_entry(&destination).map(|(destination, packet)| Step::Full(destination, packet))
    }
}

/// Publishes one message. All of its jobs have the same outcome.
async fn send_packet<T>(
    connection: &Arc<Connection>,
    destination: &Destination,
    packet: Packet<(T, Member)>,
) -> Vec<(T, Outcome)> {
    let (body, members) = packet.into_message();
    let message_id = match members.as_slice() {
        [(_, member)] => member.info.job_id.to_string(),
        _ => MessageId::new().to_string(),
    };
    let message = Message {
        exchange: topology::TASKS,
        routing_key: destination.routing_key(),
        body,
        properties: Properties {
            message_id: Some(message_id),
            reply_to: Some(connection.client().to_string()),
            content_type: Some(Encoding::MessagePack.content_type().to_owned()),
            kind: Some(topology::TYPE_TASK.to_owned()),
            timestamp: u64::try_from(now_ms() / 1000).ok(),
            user_id: connection.user_id(),
            headers: headers(connection),
            ..Properties::default()
        },
        mandatory: true,
    };
    let published = connection.broker().publish(message).await;
    for (_, member) in &members {
        connection.spans.end(&member.span, &member.info, published.is_err());
    }
    match published {
        Ok(()) => {
            let at_ms = now_ms();
            let submitted = members.iter().map(|(_, member)| Submitted { job: member.info.clone(), at_ms });
            connection.record(submitted.collect::<Vec<_>>()).await;
            members.into_iter().map(|(caller, member)| (caller, Ok(member.into_handle(connection)))).collect()
        }
        Err(error) => {
            let refused = |member: &Member| SubmitError::of_publish(error.clone(), member.info.job_id, destination);
            members.into_iter().map(|(caller, member)| (caller, Err(refused(&member)))).collect()
        }
    }
}

/// A client that acknowledges each reply when its result is taken needs each reply in a message of its own.
fn headers(connection: &Connection) -> BTreeMap<String, HeaderValue> {
    let reads_lists = connection.replies_kept().is_none();
    let lists = (topology::HEADER_REPLIES.to_owned(), topology::REPLIES_IN_LISTS.into());
    reads_lists.then_some(lists).into_iter().collect()
}

impl Member {
    fn into_handle(self, connection: &Arc<Connection>) -> JobHandle {
        JobHandle::new(self.awaited, connection.clone(), self.started)
    }
}

/// The time by this machine's clock, in milliseconds since 1970. Workers treat a time in their future as now.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
