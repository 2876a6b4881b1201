//! Turns jobs into messages, publishes them and waits for the broker's confirm.

use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use futures::{Stream, StreamExt, future::join_all, stream};
use gpufleet_schema::{
    AffinitySlot, Encoding, MessageId, OneOrMany, Program, Submitted, TooLarge, bounds::MESSAGE_BYTES_MAX,
    event::JobInfo, topology,
};
use gpufleet_transport::{Group, HeaderValue, Message, Properties, PublishError, Turn};
use tokio::sync::oneshot;

use crate::{
    CheckedJob, Job, JobHandle, SubmitError, claims,
    connection::Connection,
    destination::Destination,
    follower::{Awaited, ByFollower, Followed, GuardedFollower},
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
    reply_route: ReplyRoute,
    span: SubmitSpan,
}

/// How the reply to a job reaches its caller.
#[derive(Debug)]
enum ReplyRoute {
    Handle(PendingReply, Instant),
    Follower(Followed),
}

/// A job to submit.
pub(crate) enum SubmitRequest {
    /// The job gets a handle.
    Draft(Box<Job>),
    Followed(Box<CheckedJob>, Followed),
}

/// A job that gathers with others. Its call of `submit` waits for the outcome, unless the job is followed.
pub(crate) type GatheredJob = (Option<oneshot::Sender<SubmitOutcome>>, Member);

/// None if the outcome was reported to a follower.
type SubmitOutcome = Option<Result<JobHandle, SubmitError>>;

impl Submission {
    /// Checks and encodes a job. The time of submission is taken after the reply queue is declared and large arrays are
    /// stored, so that the queue time does not include them.
    pub(crate) async fn prepare(connection: &Connection, request: SubmitRequest) -> Result<Self, SubmitError> {
        let started = Instant::now();
        let (CheckedJob { mut task, pool, priority }, files, followed) = match request {
            SubmitRequest::Draft(job) => {
                let mut job = *job;
                #[cfg(feature = "ledger")]
                if job.is_chained() {
                    job = Box::pin(connection.chained(job)).await?;
                }
                let files = job.take_files();
                (job.build()?, files, None)
            }
            SubmitRequest::Followed(checked, followed) => (*checked, Vec::new(), Some(followed)),
        };
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
        let tasks = OneOrMany::One(task);
        let encoded = Encoding::MessagePack.encode_tasks(&tasks);
        let body = encoded.map_err(|problem| SubmitError::Encode { job_id, problem: problem.to_string() })?;
        let OneOrMany::One(task) = &tasks else { unreachable!("it was made of one task") };
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(SubmitError::TooLarge { job_id, problem: TooLarge::task(task, body.len() as u64) });
        }
        let inbox = connection.inbox();
        let is_alone = matches!(task.program, Program::Session { .. } | Program::Host(_));
        // The time of a session or a host program is that of a person or a program, and says nothing about the next one.
        let kind = (body.len() < PACKED_BYTES_MAX && !is_alone).then(|| JobKind::of(task));
        let run_us = match connection.replies_kept() {
            // They take long, and their message is unacknowledged until they end.
            _ if is_alone => Some(PACKED_RUN_US_MAX),
            // The reply to a list of jobs is a list.
            Some(_) => Some(PACKED_RUN_US_MAX),
            None => kind.and_then(|kind| inbox.run_times().expected_us(kind)),
        };
        let slot = if connection.uses_affinity() { AffinitySlot::of(task) } else { None };
        let reply_route = match followed {
            None => inbox.expect(job_id, kind).map(|reply| ReplyRoute::Handle(reply, started)),
            Some(job) => {
                let is_first = inbox.follow(job_id, kind, Awaited { job: job.clone(), submitted: started });
                is_first.then_some(ReplyRoute::Follower(job))
            }
        };
        let reply_route = reply_route.ok_or(SubmitError::AlreadySubmitted { job_id })?;
        let destination = match task.program {
            Program::Session { .. } => Destination::Sessions { pool },
            Program::Host(_) => Destination::Programs { pool },
            _ => Destination::Tasks { pool, priority, slot },
        };
        Ok(Self { body, member: Member { info, reply_route, span }, destination, run_us })
    }

    /// Short jobs share messages. Every other job has its own message.
    pub(crate) async fn send(self, connection: &Arc<Connection>) -> Result<JobHandle, SubmitError> {
        let outcome = match self.shared_run_us() {
            Some(run_us) => {
                let (caller, outcome) = oneshot::channel();
                self.gather(connection, run_us, Some(caller));
                outcome.await.unwrap_or_else(|_| Some(Err(PublishError::Closed.into())))
            }
            None => self.send_alone(connection).await,
        };
        outcome.expect("a job without a follower has an outcome")
    }

    /// Submits a job with a follower, without waiting for the broker.
    pub(crate) fn send_followed(self, connection: &Arc<Connection>) {
        match self.shared_run_us() {
            Some(run_us) => self.gather(connection, run_us, None),
            None => {
                let connection = connection.clone();
                tokio::spawn(async move { self.send_alone(&connection).await });
            }
        }
    }

    /// The expected run time of a job that may share a message.
    fn shared_run_us(&self) -> Option<u64> {
        self.run_us.filter(|run_us| *run_us <= PACKED_RUN_US_MAX / 2)
    }

    async fn send_alone(self, connection: &Arc<Connection>) -> SubmitOutcome {
        let mut packet = Packet::default();
        let _empty_before = packet.add((self.body, 0, ((), self.member)));
        let mut outcomes = send_packet(connection, &self.destination, packet).await;
        outcomes.pop().expect("a packet has an outcome for each of its members").1
    }

    /// A separate task publishes the message, because cancelling one caller must not affect the others.
    fn gather(self, connection: &Arc<Connection>, run_us: u64, caller: Option<oneshot::Sender<SubmitOutcome>>) {
        let Self { body, member, destination, .. } = self;
        if let Some(turn) = connection.packets.add(&destination, (body, run_us, (caller, member))) {
            tokio::spawn(send_packets(connection.clone(), turn));
        }
    }
}

/// Publishes the packets of a turn.
async fn send_packets(connection: Arc<Connection>, packets: Turn<Destination, Packet<GatheredJob>>) {
    let destination = packets.destination().clone();
    for packet in packets {
        for (caller, outcome) in send_packet(&connection, &destination, packet).await {
            if let Some(caller) = caller {
                // An error means that the call of `submit` was cancelled.
                let _cancelled = caller.send(outcome);
            }
        }
    }
}

/// Publishes all jobs that still gather, and waits for the outcomes. Tasks publish them, because cancelling the caller must
/// not lose jobs.
pub(crate) async fn send_all_gathered(connection: &Arc<Connection>) {
    let send = |turn| tokio::spawn(send_packets(connection.clone(), turn));
    join_all(connection.packets.begin_all().into_iter().map(send)).await;
}

/// Submits jobs that get handles. The outcomes are in the order of the jobs.
pub(crate) async fn send_many(
    connection: &Arc<Connection>,
    jobs: impl IntoIterator<Item = Job>,
) -> Vec<Result<JobHandle, SubmitError>> {
    let requests = jobs.into_iter().map(|job| SubmitRequest::Draft(Box::new(job))).enumerate();
    let mut outcomes: Vec<(usize, SubmitOutcome)> = send_all(connection, requests).collect().await;
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome.expect("a job without a follower has an outcome")).collect()
}

/// Submits jobs with a follower.
pub(crate) async fn send_many_followed(connection: &Arc<Connection>, jobs: Vec<(CheckedJob, Followed)>) {
    let requests =
        jobs.into_iter().map(|(job, followed)| (followed.clone(), SubmitRequest::Followed(Box::new(job), followed)));
    let outcomes = send_all(connection, requests);
    pin!(outcomes)
        .for_each(async |(followed, outcome)| {
            if let Some(Err(error)) = outcome {
                followed.refused(error);
            }
        })
        .await;
}

/// Packs and sends jobs. Each outcome comes with the value that its job came with.
fn send_all<T, I>(connection: &Arc<Connection>, requests: I) -> impl Stream<Item = (T, SubmitOutcome)>
where
    I: Iterator<Item = (T, SubmitRequest)>,
{
    let packing = Packing { requests, packets: HashMap::new() };
    // Each step owns the connection: with a reference, the compiler does not see that a program may spawn this.
    let steps = stream::unfold((packing, connection.clone()), |(mut packing, connection)| async move {
        let step = packing.next(&connection).await?;
        Some(((step, connection.clone()), (packing, connection)))
    });
    let outcomes = steps.map(|(step, connection)| async move {
        match step {
            Step::Full(destination, packet) => send_packet(&connection, &destination, packet).await,
            Step::Refused(which, error) => vec![(which, Some(Err(error)))],
        }
    });
    // The buffer limits messages in flight, so jobs are taken and encoded only as fast as messages are confirmed.
    outcomes.buffer_unordered(MESSAGES_IN_FLIGHT_MAX).flat_map(stream::iter)
}

/// Packs jobs into messages.
struct Packing<I, T> {
    requests: I,
    /// The message of each queue that is not full yet.
    packets: HashMap<Destination, Packet<(T, Member)>>,
}

enum Step<T> {
    /// A full message, or the last one for its queue.
    Full(Destination, Packet<(T, Member)>),
    Refused(T, SubmitError),
}

impl<T, I: Iterator<Item = (T, SubmitRequest)>> Packing<I, T> {
    async fn next(&mut self, connection: &Connection) -> Option<Step<T>> {
        for (which, request) in self.requests.by_ref() {
            let Submission { body, member, destination, run_us } = match Submission::prepare(connection, request).await
            {
                Ok(submission) => submission,
                Err(error) => return Some(Step::Refused(which, error)),
            };
            let packet = self.packets.entry(destination.clone()).or_default();
            if let Some(full) = packet.add((body, run_us.unwrap_or(UNKNOWN_RUN_US), (which, member))) {
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
) -> Vec<(T, SubmitOutcome)> {
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
    };
    let published = connection.broker().publish(message).await;
    for (_, member) in &members {
        connection.spans.end(&member.span, &member.info, published.is_err());
    }
    match published {
        Ok(()) => confirmed(connection, members).await,
        Err(error) => {
            let refused = |member: &Member| SubmitError::of_publish(error.clone(), member.info.job_id, destination);
            members.into_iter().map(|(caller, member)| (caller, member.refused(refused, connection))).collect()
        }
    }
}

async fn confirmed<T>(connection: &Arc<Connection>, members: Vec<(T, Member)>) -> Vec<(T, SubmitOutcome)> {
    let at_ms = now_ms();
    let mut submitted = Vec::with_capacity(members.len());
    let mut told = ByFollower::default();
    let outcomes = members.into_iter().map(|(caller, Member { info, reply_route, span: _ })| {
        submitted.push(Submitted { job: info, at_ms });
        let outcome = match reply_route {
            ReplyRoute::Handle(reply, started) => Some(Ok(JobHandle::new(reply, connection.clone(), started))),
            ReplyRoute::Follower(Followed { token, follower }) => {
                told.push(follower, token);
                None
            }
        };
        (caller, outcome)
    });
    let outcomes = outcomes.collect();
    connection.record(submitted).await;
    told.tell(GuardedFollower::confirmed);
    outcomes
}

/// Returns the headers of a task message. Only a client that acknowledges replies when they arrive accepts lists of replies.
fn headers(connection: &Connection) -> BTreeMap<String, HeaderValue> {
    let reads_lists = connection.replies_kept().is_none();
    let lists = (topology::HEADER_REPLIES.to_owned(), topology::REPLIES_IN_LISTS.into());
    let token = connection.reply_token.clone();
    let token = token.map(|token| (topology::HEADER_REPLY_TOKEN.to_owned(), token.into()));
    reads_lists.then_some(lists).into_iter().chain(token).collect()
}

impl Member {
    fn refused(self, error: impl FnOnce(&Self) -> SubmitError, connection: &Connection) -> SubmitOutcome {
        let error = error(&self);
        let ReplyRoute::Follower(job) = self.reply_route else { return Some(Err(error)) };
        if connection.inbox().unfollow(self.info.job_id) {
            job.refused(error);
        } else {
            // Its reply came although the confirm did not, so the broker had the job.
            job.follower.confirmed(vec![job.token]);
        }
        None
    }
}

/// The time by this machine's clock, in milliseconds since 1970. Workers treat a time in their future as now.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
