//! From checked jobs to confirmed messages.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use futures::{StreamExt, stream};
use gpufleet_schema::{
    Batch, Encoding, MessageId, PoolName, Priority, Submitted, bounds::MESSAGE_BYTES_MAX, event::JobInfo, topology,
};
use gpufleet_transport::{Message, Properties, PublishError};

use crate::{CheckedJob, Job, JobHandle, SubmitError, client::Connection, inbox::Awaited, packing::Packet};

/// Messages of one `submit_many` that may be unconfirmed at once: enough to keep the broker busy, few enough that encoded copies of
/// large tasks stay within half a gigabyte.
const MESSAGES_IN_FLIGHT_MAX: usize = 32;

/// A job that is encoded, and whose reply is awaited already: it can come before the confirm.
pub(crate) struct Submission {
    body: Vec<u8>,
    member: Member,
    pool: PoolName,
    priority: Priority,
}

/// What is left of a job once it is encoded.
struct Member {
    info: JobInfo,
    awaited: Awaited,
    started: Instant,
}

type Outcome = Result<JobHandle, SubmitError>;
type Destination = (PoolName, Priority);

impl Submission {
    /// Checks and encodes a job. The pool's queues are made before the job is stamped, so that its wait in the queue does not
    /// include that.
    pub(crate) async fn prepare(connection: &Connection, job: Job) -> Result<Self, SubmitError> {
        let started = Instant::now();
        let CheckedJob { mut task, pool, priority } = job.build()?;
        connection.declare_pool(&pool).await?;
        let job_id = task.job_id;
        task.reply = Some(connection.client().clone());
        task.submitted_ms = Some(now_ms());
        let info = JobInfo::of(&task, pool.clone(), priority, Some(connection.client().to_string()));
        let encoded = Encoding::MessagePack.encode_tasks(&Batch::One(task));
        let body = encoded.map_err(|problem| SubmitError::Encode { job_id, problem: problem.to_string() })?;
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(SubmitError::TooLarge { job_id, bytes: body.len() });
        }
        let awaited = connection.inbox().expect(job_id).ok_or(SubmitError::AlreadySubmitted { job_id })?;
        Ok(Self { body, member: Member { info, awaited, started }, pool, priority })
    }

    pub(crate) async fn send(self, connection: &Arc<Connection>) -> Outcome {
        let mut packet = Packet::new();
        packet.add(self.body, (0, self.member));
        let mut outcomes = send_packet(connection, &(self.pool, self.priority), packet).await;
        outcomes.pop().expect("a packet has an outcome for each of its members").1
    }
}

pub(crate) async fn send_many(connection: &Arc<Connection>, jobs: impl IntoIterator<Item = Job>) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    let mut packets: HashMap<Destination, Packet<(usize, Member)>> = HashMap::new();
    let mut full = Vec::new();
    for (index, job) in jobs.into_iter().enumerate() {
        outcomes.push(None);
        match Submission::prepare(connection, job).await {
            Ok(Submission { body, member, pool, priority }) => {
                let destination = (pool, priority);
                let packet = packets.entry(destination.clone()).or_insert_with(Packet::new);
                full.extend(packet.add(body, (index, member)).map(|packet| (destination, packet)));
            }
            Err(error) => outcomes[index] = Some(Err(error)),
        }
    }
    full.extend(packets);
    let sending =
        full.into_iter().map(async |(destination, packet)| send_packet(connection, &destination, packet).await);
    let sent: Vec<_> = stream::iter(sending).buffer_unordered(MESSAGES_IN_FLIGHT_MAX).collect().await;
    for (index, outcome) in sent.into_iter().flatten() {
        outcomes[index] = Some(outcome);
    }
    outcomes.into_iter().map(|outcome| outcome.expect("every job was refused or is a member of a packet")).collect()
}

/// Publishes one message. Its members share its fate.
async fn send_packet(
    connection: &Arc<Connection>,
    (pool, priority): &Destination,
    packet: Packet<(usize, Member)>,
) -> Vec<(usize, Outcome)> {
    let (body, members) = packet.into_message();
    let message_id = match members.as_slice() {
        [(_, member)] => member.info.job_id.to_string(),
        _ => MessageId::new().to_string(),
    };
    let message = Message {
        exchange: topology::TASKS,
        routing_key: topology::task_key(pool, *priority),
        body,
        properties: Properties {
            message_id: Some(message_id),
            reply_to: Some(connection.client().to_string()),
            content_type: Some(Encoding::MessagePack.content_type().to_owned()),
            kind: Some(topology::TYPE_TASK.to_owned()),
            timestamp: u64::try_from(now_ms() / 1000).ok(),
            user_id: connection.user_id(),
            ..Properties::default()
        },
        mandatory: true,
    };
    match connection.broker().publish(message).await {
        Ok(()) => {
            let at_ms = now_ms();
            let submitted = members.iter().map(|(_, member)| Submitted { job: member.info.clone(), at_ms });
            connection.record(submitted.collect::<Vec<_>>()).await;
            members.into_iter().map(|(index, member)| (index, Ok(member.into_handle(connection)))).collect()
        }
        Err(error) => {
            if matches!(error, PublishError::Unroutable { .. }) {
                connection.forget_pool(pool).await;
            }
            let refused = |member: &Member| SubmitError::of_publish(error.clone(), member.info.job_id, pool, *priority);
            members.iter().map(|(index, member)| (*index, Err(refused(member)))).collect()
        }
    }
}

impl Member {
    fn into_handle(self, connection: &Arc<Connection>) -> JobHandle {
        JobHandle::new(self.awaited, connection.clone(), self.started)
    }
}

/// By this machine's clock; workers compare it with theirs and never believe a negative wait.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
