//! Events that are published in one message.

use std::{collections::BTreeMap, mem};

use gpufleet_schema::{
    DeviceSeen, Event, HostProgramInfo, JobInfo, KeptData, KeptOutput, MessageId, PoolPrograms, PoolUse, ProgramsSeen,
    RanOn, SessionsSeen, Started, bounds::MESSAGE_BYTES_MAX, encoding, topology,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{Confirmed, Origin};
use crate::{Group, Message, Properties, PublishError};

/// Number of events with which a batch is full. Upserts are fastest with a few hundred rows at once.
const EVENTS_MAX: usize = 500;
/// Size in bytes with which a batch is full. A larger message gains nothing.
const BYTES_MAX: usize = 256 << 10;
/// Maximum bytes that may be added at once. More could make the batch too large for a message, and the events of others would be lost with
/// it.
pub(super) const ADDED_BYTES_MAX: usize = MESSAGE_BYTES_MAX - BYTES_MAX;

/// Events, the callers that wait for their confirm, and the room that they take until then.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    events: Vec<Event>,
    bytes: usize,
    pub(super) callers: Vec<Confirmed>,
    rooms: Vec<OwnedSemaphorePermit>,
}

/// Events that one caller adds to a batch.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) events: Vec<Event>,
    pub(super) bytes: usize,
    pub(super) room: OwnedSemaphorePermit,
    /// Gets the outcome of the batch.
    pub(super) confirmed: Option<Confirmed>,
}

impl Group for EventBatch {
    type Item = Addition;
    /// Enough to keep the broker busy while full batches travel.
    const UNCONFIRMED_MAX: usize = 4;

    fn add(&mut self, Addition { events, bytes, room, confirmed }: Addition) -> Option<Self> {
        let is_full = self.events.len() >= EVENTS_MAX || self.bytes >= BYTES_MAX;
        let full = is_full.then(|| mem::take(self));
        self.events.extend(events);
        self.bytes += bytes;
        self.callers.extend(confirmed);
        self.rooms.push(room);
        full
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl EventBatch {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// One event, for a message of its own.
    pub(super) fn of_one(event: Event) -> Self {
        Self { events: vec![event], ..Self::default() }
    }

    /// The messages to publish: one for each routing key, and one for each event that travels alone. Each has a new id, which it keeps when
    /// it is published again.
    pub(super) fn messages(&self, origin: &Origin) -> Result<Vec<Message>, PublishError> {
        let (alone, together): (Vec<&Event>, Vec<&Event>) = self.events.iter().partition(|event| event.travels_alone());
        let mut by_key = BTreeMap::<String, Vec<&Event>>::new();
        for event in together {
            by_key.entry(origin.routing_key(event)).or_default().push(event);
        }
        let alone = alone.into_iter().map(|event| (origin.routing_key(event), vec![event]));
        by_key.into_iter().chain(alone).map(|(key, events)| message(origin, key, &events)).collect()
    }
}

fn message(origin: &Origin, routing_key: String, events: &[&Event]) -> Result<Message, PublishError> {
    let body = encoding::encode_events(events).map_err(|error| PublishError::Refused { reason: error.to_string() })?;
    let properties = Properties {
        message_id: Some(MessageId::new().to_string()),
        kind: Some(topology::TYPE_EVENTS.to_owned()),
        content_type: Some(encoding::Encoding::MessagePack.content_type().to_owned()),
        user_id: origin.user_id.clone(),
        ..Properties::default()
    };
    Ok(Message { exchange: origin.exchange, routing_key, body, properties })
}

/// Splits events into parts that are each small enough to be added to a batch, unless a single event is too large.
pub(super) fn split(events: Vec<Event>) -> Vec<Vec<Event>> {
    let mut parts: Vec<Vec<Event>> = Vec::new();
    let mut bytes = 0;
    for event in events {
        let weight = weight(&event);
        match parts.last_mut() {
            Some(part) if bytes + weight <= BYTES_MAX => part.push(event),
            _ => {
                parts.push(vec![event]);
                bytes = 0;
            }
        }
        bytes += weight;
    }
    parts
}

/// The approximate encoded size of an event, never less than the exact one.
pub(super) fn weight(event: &Event) -> usize {
    /// Field names, numbers and structure of the largest kind of event.
    const FIXED: usize = 400;
    /// A digest as a text.
    const DIGEST: usize = 80;
    /// A trace context and the name of its field.
    const TRACE_CONTEXT: usize = 70;
    /// The numbers of a session and the names of their fields.
    const SESSION: usize = 220;
    /// A lease and the name of its field.
    const LEASE: usize = 22;
    let job = |job: &JobInfo| {
        let labels: usize = job.labels.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        job.kernel.len()
            + labels
            + job.name.as_ref().map_or(0, String::len)
            + job.client.as_ref().map_or(0, String::len)
            + job.user_id.as_ref().map_or(0, String::len)
            + job.blobs.len() * DIGEST
            + job.traceparent.map_or(0, |_| TRACE_CONTEXT)
            + job.lease_bytes.map_or(0, |_| LEASE)
            + job.host_program.as_deref().map_or(0, host_program)
    };
    let ran_on = |ran_on: Option<&RanOn>| ran_on.map_or(0, |it| it.worker.as_str().len() + it.device_name.len() + 60);
    let started = |event: &Started| job(&event.job) + event.worker.as_str().len() + ran_on(event.ran_on.as_ref());
    FIXED
        + match event {
            Event::Submitted(submitted) => job(&submitted.job),
            Event::Started(event) => started(event),
            Event::AttemptFinished(finished) => {
                let failure = finished.failure.as_ref();
                let texts = failure.map_or(0, |f| f.message.len() + f.detail.as_ref().map_or(0, String::len));
                let printed = finished.printf_output.as_ref().map_or(0, |printed| printed.text.len() + 40);
                texts
                    + printed
                    + finished.worker.as_str().len()
                    + finished.timings.launches_us.len() * 9
                    + ran_on(finished.ran_on.as_ref())
                    + finished.job.as_deref().map_or(0, |it| FIXED + job(it))
                    + finished.kept.as_deref().map_or(0, |kept| kept.outputs.iter().map(output).sum())
                    + finished.session.as_ref().map_or(0, |_| SESSION)
            }
            Event::WorkerSeen(seen) => {
                let devices: usize = seen.devices.iter().map(device).sum();
                seen.worker.as_str().len()
                    + seen.host.len()
                    + seen.revision.len()
                    + seen.pools.len() * 104
                    + devices
                    + seen.sessions.as_ref().map_or(0, sessions)
                    + seen.programs.as_ref().map_or(0, programs)
            }
            Event::Later(later) => later.encoded.len(),
            Event::SessionProgress(progress) => SESSION + started(&progress.started),
            Event::Action(action) => {
                let optional = [&action.from, &action.reported_by].map(|text| text.as_ref().map_or(0, String::len));
                action.who.len() + action.action.len() + action.target.len() + optional.iter().sum::<usize>()
            }
        }
}

fn output(output: &KeptOutput) -> usize {
    /// Field names, numbers, structure and a digest.
    const FIXED: usize = 160;
    let bytes = if let KeptData::Inline(bytes) = &output.data { bytes.len() } else { 0 };
    FIXED + output.name.len() + output.shape.len() * 9 + bytes
}

fn device(device: &DeviceSeen) -> usize {
    /// Field names, numbers and structure.
    const FIXED: usize = 400;
    /// A pool's name and its use of the device.
    const POOL: usize = 200;
    /// The numbers of a pool's sessions on the device.
    const SESSIONS: usize = 110;
    /// The id of a host program, and field names.
    const PROGRAM: usize = 70;
    let pool = |pool: &PoolUse| {
        let program = pool.program.as_ref().map_or(0, |program| PROGRAM + program.label.len());
        POOL + pool.sessions.map_or(0, |_| SESSIONS) + program
    };
    let reason = device.out_of_service.as_ref().map_or(0, String::len);
    FIXED + device.uuid.len() + device.name.len() + reason + device.pools.iter().map(pool).sum::<usize>()
}

fn sessions(seen: &SessionsSeen) -> usize {
    /// Field names, numbers and structure.
    const FIXED: usize = 50;
    /// A pool's name and its number of sessions.
    const POOL: usize = 130;
    let hosts: usize = seen.hosts.iter().map(|host| host.len() + 5).sum();
    FIXED + hosts + seen.pools.len() * POOL
}

fn programs(seen: &ProgramsSeen) -> usize {
    /// Field names and structure.
    const FIXED: usize = 30;
    /// A pool's name, its numbers of programs, field names and structure.
    const POOL: usize = 190;
    let pool = |pool: &PoolPrograms| POOL + pool.places().map(|name| name.len() + 5).sum::<usize>();
    FIXED + seen.pools.iter().map(pool).sum::<usize>()
}

fn host_program(program: &HostProgramInfo) -> usize {
    /// Field names and structure.
    const FIXED: usize = 100;
    let texts = program.command.iter().chain(&program.variables).map(|text| text.len() + 5);
    let place = [&program.environment, &program.image].map(|name| name.as_ref().map_or(0, |name| name.len() + 15));
    FIXED + place.iter().sum::<usize>() + texts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpufleet_schema::{
        AttemptFinished, AttemptState, BlobDigest, DeviceProgram, DeviceSessions, Dtype, Failure, FailureCode, JobId,
        KeptOutputs, PoolSessions, PrintfOutput, Priority, SessionProgress, SessionUse, Submitted, Timings,
        TraceContext, Verdict, WorkerSeen,
        bounds::{
            BUFFERS_MAX, DIMENSIONS_MAX, KEPT_INLINE_BYTES_MAX, LABELS_MAX, NAME_BYTES_MAX, PRINTF_OUTPUT_BYTES_MAX,
            TEXT_BYTES_MAX,
        },
    };
    use tokio::sync::Semaphore;

    use super::*;

    fn submitted(kernel: &str) -> Event {
        let job = JobInfo {
            job_id: JobId::new(),
            pool: "default".parse().unwrap(),
            priority: Priority::Normal,
            name: None,
            labels: [("team".to_owned(), "a".to_owned())].into(),
            program: "catalog".to_owned(),
            kernel: kernel.to_owned(),
            input_bytes: 1 << 20,
            lease_bytes: None,
            host_program: None,
            client: Some("client".to_owned()),
            submitted_ms: Some(1_700_000_000_000),
            user_id: None,
            blobs: Vec::new(),
            traceparent: None,
        };
        Event::Submitted(Submitted { job, at_ms: 1_700_000_000_000 })
    }

    #[test]
    fn submissions_to_several_pools_leave_in_messages_with_their_keys() {
        let of_pool = |pool: &str| {
            let Event::Submitted(Submitted { job, at_ms }) = submitted("saxpy") else { unreachable!() };
            Event::Submitted(Submitted { job: JobInfo { pool: pool.parse().unwrap(), ..job }, at_ms })
        };
        let batch = EventBatch { events: ["b", "a", "b"].map(of_pool).into(), ..EventBatch::default() };
        let keys = |origin: &Origin| {
            let messages = batch.messages(origin).unwrap();
            let count = |body: &[u8]| encoding::decode_events(body).unwrap().len();
            messages.into_iter().map(|message| (message.routing_key, count(&message.body))).collect::<Vec<_>>()
        };
        let client = Origin { exchange: topology::EVENTS_CLIENT, user_id: None };
        assert_eq!(keys(&client), [("submitted.a".to_owned(), 1), ("submitted.b".to_owned(), 2)]);
        assert_eq!(keys(&WORKER), [(topology::EVENTS_KEY.to_owned(), 3)]);
    }

    const WORKER: Origin = Origin { exchange: topology::EVENTS_WORKER, user_id: None };

    #[test]
    fn progress_of_a_session_leaves_in_a_message_of_its_own() {
        let events = [progress(), submitted("saxpy"), progress()];
        let batch = EventBatch { events: events.to_vec(), ..EventBatch::default() };
        let messages = batch.messages(&WORKER).unwrap();
        let sent = messages.iter().map(|message| encoding::decode_events(&message.body).unwrap());
        let [first, other, second] = events;
        assert_eq!(sent.collect::<Vec<_>>(), [vec![other], vec![first], vec![second]]);
        assert!(messages.iter().all(|message| message.routing_key == topology::EVENTS_KEY));
    }

    fn room() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    #[test]
    fn the_weight_is_no_less_than_the_bytes_and_not_far_above() {
        for kernel in ["saxpy", &"k".repeat(5000)] {
            let event = submitted(kernel);
            let bytes = encoding::encode_events(std::slice::from_ref(&event)).unwrap().len();
            assert!((bytes..bytes + 400).contains(&weight(&event)), "{} for {bytes}", weight(&event));
        }
    }

    /// The end of a job that was refused, whose texts are as long as they may be.
    fn refused() -> Event {
        let Event::Submitted(Submitted { job, .. }) = submitted(&"k".repeat(TEXT_BYTES_MAX)) else { unreachable!() };
        let text = |index: usize| format!("{index:03}{}", "t".repeat(TEXT_BYTES_MAX - 3));
        let job = JobInfo {
            pool: "p".repeat(NAME_BYTES_MAX).parse().unwrap(),
            name: Some(text(0)),
            labels: (0..LABELS_MAX).map(|index| (text(index), text(index))).collect(),
            user_id: Some("u".repeat(255)),
            blobs: vec![BlobDigest::of(b""); BUFFERS_MAX],
            traceparent: Some(TraceContext::new(u128::MAX, u64::MAX, true)),
            lease_bytes: Some(u64::MAX),
            host_program: Some(Box::new(host())),
            ..job
        };
        let failure = Failure::new(Verdict::User, FailureCode::InvalidTask, "m".repeat(2000));
        Event::AttemptFinished(AttemptFinished {
            job_id: job.job_id,
            attempt: u32::MAX,
            worker: "w".repeat(NAME_BYTES_MAX).parse().unwrap(),
            device: None,
            ran_on: None,
            started_ms: Some(i64::MAX),
            at_ms: i64::MAX,
            state: AttemptState::Failed,
            failure: Some(failure),
            retry_at_ms: None,
            output_bytes: 0,
            timings: Timings { queue_us: u64::MAX, launches_us: vec![u64::MAX; 1024], ..Timings::default() },
            job: Some(Box::new(job)),
            charged_us: None,
            user_id: None,
            printf_output: None,
            kept: None,
            session: Some(Box::new(session())),
        })
    }

    /// A program whose texts are as long as the ledger keeps them.
    fn host() -> HostProgramInfo {
        let words = |count, bytes| vec!["c".repeat(bytes); count];
        let info = HostProgramInfo {
            command: words(16, 300),
            is_cut: true,
            environment: Some("e".repeat(TEXT_BYTES_MAX)),
            image: Some("i".repeat(TEXT_BYTES_MAX)),
            network: true,
            variables: words(32, 100),
        };
        info.recordable()
    }

    fn session() -> SessionUse {
        SessionUse {
            processes: u32::MAX,
            calls: u64::MAX,
            waits: u64::MAX,
            sent_bytes: u64::MAX,
            received_bytes: u64::MAX,
            busy_us: u64::MAX,
            memory_bytes: u64::MAX,
            memory_bytes_peak: u64::MAX,
            exit_code: Some(i32::MIN),
            signal: Some(i32::MIN),
        }
    }

    /// What a session has done whose texts are as long as they may be.
    fn progress() -> Event {
        let Event::AttemptFinished(AttemptFinished { job: Some(job), worker, .. }) = refused() else { unreachable!() };
        let device_name = "n".repeat(TEXT_BYTES_MAX);
        let ran_on = RanOn { worker: worker.clone(), device: u32::MAX, device_name, emulated: false };
        let (device, ran_on, at_ms) = (u32::MAX, Some(ran_on), i64::MAX);
        let started = Started { job: *job, attempt: u32::MAX, worker, device, ran_on, at_ms };
        let (sequence, at_ms, charged_us) = (u32::MAX, i64::MAX, u64::MAX);
        Event::SessionProgress(Box::new(SessionProgress { started, sequence, at_ms, charged_us, session: session() }))
    }

    /// The end of a job that printed as much as is kept.
    fn printed() -> Event {
        let Event::AttemptFinished(finished) = refused() else { unreachable!() };
        let printf_output = PrintfOutput::of(&[b'x'; 2 * PRINTF_OUTPUT_BYTES_MAX], 0);
        Event::AttemptFinished(AttemptFinished { printf_output, failure: None, job: None, ..finished })
    }

    /// The end of a job that keeps as many outputs as it may have, one of them in the ledger.
    fn kept() -> Event {
        let Event::AttemptFinished(finished) = printed() else { unreachable!() };
        let output = |data| KeptOutput {
            name: "y".repeat(TEXT_BYTES_MAX),
            dtype: Dtype::F32,
            shape: vec![u64::MAX; DIMENSIONS_MAX],
            data,
        };
        let mut outputs = vec![output(KeptData::Blob(BlobDigest::of(b""))); BUFFERS_MAX];
        outputs[0] = output(KeptData::Inline(vec![0; KEPT_INLINE_BYTES_MAX as usize]));
        let kept = Some(Box::new(KeptOutputs { expires_ms: i64::MAX, outputs }));
        Event::AttemptFinished(AttemptFinished { kept, ..finished })
    }

    fn seen() -> Event {
        let pool = || "p".repeat(NAME_BYTES_MAX).parse().unwrap();
        let device = DeviceSeen {
            index: u32::MAX,
            uuid: "GPU-5a2c3c1e-0000-0000-0000-000000000000".to_owned(),
            name: "n".repeat(TEXT_BYTES_MAX),
            emulated: false,
            compute_capability: [9, 0],
            memory_bytes: u64::MAX,
            driver_version: u32::MAX,
            out_of_service: Some("r".repeat(5000)),
            jobs_running: Some(u32::MAX),
            pools: vec![
                PoolUse {
                    pool: pool(),
                    jobs_running: u32::MAX,
                    memory_bytes: u64::MAX,
                    weight: Some(u32::MAX),
                    guaranteed_bytes: Some(u64::MAX),
                    sessions: Some(DeviceSessions {
                        open: u32::MAX,
                        memory_bytes: u64::MAX,
                        memory_bytes_max: u64::MAX,
                        overhead_bytes: u64::MAX,
                    }),
                    program: Some(DeviceProgram { job_id: JobId::new(), label: "l".repeat(TEXT_BYTES_MAX) }),
                };
                8
            ],
            memory_used_bytes: Some(u64::MAX),
            utilization_percent: Some(100),
            utilization_by: Some(gpufleet_schema::UtilizationBy::Worker),
            temperature_celsius: Some(u32::MAX),
            power_milliwatts: Some(u32::MAX),
        };
        Event::WorkerSeen(WorkerSeen {
            worker: "w".repeat(NAME_BYTES_MAX).parse().unwrap(),
            at_ms: i64::MAX,
            host: "h".repeat(255),
            pid: u32::MAX,
            revision: "0.1.0".to_owned(),
            pools: vec![pool(); 8],
            devices: vec![device; 16],
            jobs_running: u32::MAX,
            sessions: Some(SessionsSeen {
                hosts: vec!["h".repeat(255); 2],
                ports: [u16::MAX; 2],
                pools: vec![PoolSessions { pool: pool(), open_max: u32::MAX }; 8],
            }),
            programs: Some(ProgramsSeen {
                pools: vec![
                    PoolPrograms {
                        pool: pool(),
                        taken_max: u32::MAX,
                        running: u32::MAX,
                        waiting: u32::MAX,
                        environments: vec!["e".repeat(TEXT_BYTES_MAX); 16],
                        images: vec!["i".repeat(TEXT_BYTES_MAX)],
                    };
                    8
                ],
            }),
            leaving: true,
        })
    }

    #[test]
    fn no_event_weighs_less_than_its_bytes() {
        for event in [refused(), printed(), kept(), seen(), progress()] {
            let bytes = encoding::encode_events(std::slice::from_ref(&event)).unwrap().len();
            assert!(weight(&event) >= bytes, "{} for {bytes}: {event:?}", weight(&event));
            assert!(weight(&event) < 2 * bytes, "{} for {bytes}: {event:?}", weight(&event));
        }
    }

    #[test]
    fn a_batch_fits_in_a_message_whatever_was_added_last() {
        for event in [refused(), printed(), kept()] {
            let parts = split(vec![event.clone(); 1024]);
            assert!(parts.len() >= (1024 * weight(&event) / BYTES_MAX).min(1024));
            let mut batch = EventBatch::default();
            let full = loop {
                let part = parts[0].clone();
                let bytes = part.iter().map(weight).sum();
                assert!(bytes <= ADDED_BYTES_MAX);
                if let Some(full) = batch.add(Addition { events: part, bytes, room: room(), confirmed: None }) {
                    break full;
                }
            };
            for message in full.messages(&WORKER).unwrap() {
                message.check(MESSAGE_BYTES_MAX).unwrap();
            }
        }
        assert_eq!(ADDED_BYTES_MAX + BYTES_MAX, MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_batch_decodes_to_the_events_that_went_in() {
        let mut batch = EventBatch::default();
        let events = vec![submitted("a"), submitted("b")];
        let _not_full = batch.add(Addition { events: events.clone(), bytes: 800, room: room(), confirmed: None });
        let message = batch.messages(&WORKER).unwrap().remove(0);
        assert_eq!(encoding::decode_events(&message.body).unwrap(), events);
        assert_eq!(message.exchange, topology::EVENTS_WORKER);
        assert!(message.properties.message_id.is_some());
    }
}
