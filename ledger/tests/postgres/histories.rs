//! Generates histories of jobs: their events, and the rows that the ledger must have.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gpufleet_schema::{
    AttemptFinished, AttemptState, DeviceProgram, DeviceSeen, DeviceSessions, Event, Failure, FailureCode, JobId,
    JobInfo, JobState, PoolName, PoolPrograms, PoolSessions, PoolUse, PrintfOutput, ProgramsSeen, RanOn, SessionsSeen,
    Started, Submitted, Timings, UtilizationBy, Verdict, WorkerName, WorkerSeen,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use uuid::Uuid;

/// One job's life.
#[derive(Debug, Clone)]
pub struct Life {
    /// Whether the job's id contains a time.
    pub timed: bool,
    pub submitted: bool,
    /// Attempts that were lost before the last one.
    pub losses: u32,
    /// The attempts without a start event, one bit for each.
    pub unstarted: u32,
    /// The attempts whose end reports the start together with the job's description, one bit for each. An attempt without a start event has
    /// a known start only if it is among these.
    pub told_by_end: u32,
    /// The attempts with a second, later start event, one bit for each. A queue that does not count deliveries redelivered the job.
    pub restarted: u32,
    /// The end of the last attempt, if it has ended.
    pub ending: Option<AttemptState>,
    /// The end of one more attempt, which ends after the job has ended.
    pub rival: Option<AttemptState>,
}

/// The expected state of a job after some events.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    pub state: JobState,
    /// The highest number of an attempt.
    pub attempts: u32,
    pub final_attempt: Option<u32>,
    pub finished_at: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub described: bool,
    /// The state of each attempt by its number, and whether it is superseded.
    pub ends: BTreeMap<u32, (AttemptState, bool)>,
}

/// The middle of November 2025.
const BASE_MS: i64 = 1_763_164_800_000;
const FINAL: [AttemptState; 5] =
    [AttemptState::Succeeded, AttemptState::Failed, AttemptState::Cancelled, AttemptState::Expired, AttemptState::Dead];

/// Generates the events of a few jobs and workers in any order, some of them twice. Each call makes new ids.
pub fn shuffled(with_rivals: bool) -> impl Strategy<Value = Vec<Event>> {
    (
        any::<u64>(),
        vec(life(with_rivals), 1..6),
        vec((0_u32..3, 0_i64..5, any::<bool>()), 0..4),
        vec(any::<u16>(), 0..6),
    )
        .prop_map(|(seed, lives, beats, repeats)| {
            let mut events: Vec<Event> =
                lives.iter().zip(0..).flat_map(|(life, index)| life.events(seed, index)).collect();
            events.extend(beats.into_iter().map(|(worker, at, leaving)| heartbeat(worker, at, leaving)));
            for repeat in repeats {
                if !events.is_empty() {
                    events.push(events[usize::from(repeat) % events.len()].clone());
                }
            }
            events
        })
        .prop_shuffle()
}

fn life(with_rivals: bool) -> impl Strategy<Value = Life> {
    let rival = if with_rivals { option::of(select(&FINAL[..])).boxed() } else { Just(None).boxed() };
    let bits = || 0_u32..16;
    (any::<bool>(), any::<bool>(), 0_u32..3, bits(), bits(), bits(), option::of(select(&FINAL[..])), rival).prop_map(
        |(timed, submitted, losses, unstarted, told_by_end, restarted, ending, rival)| Life {
            timed,
            submitted,
            losses,
            unstarted,
            told_by_end,
            restarted,
            ending,
            rival,
        },
    )
}

impl Life {
    pub fn events(&self, seed: u64, index: u32) -> Vec<Event> {
        let at = BASE_MS + i64::from(index) * 20 * 86_400_000;
        let job = info(id(seed, index, self.timed.then_some(at)), at);
        let mut events = Vec::new();
        if self.submitted {
            events.push(Event::Submitted(Submitted { job: job.clone(), at_ms: at + 5 }));
        }
        let mut ends: Vec<Option<AttemptState>> = vec![Some(AttemptState::Lost); self.losses as usize];
        ends.push(self.ending);
        ends.extend(self.rival.map(Some));
        for (end, attempt) in ends.into_iter().zip(1..) {
            let begun = at + i64::from(attempt) * 1000;
            if self.unstarted & (1 << attempt) == 0 {
                events.push(started(&job, attempt, begun));
            }
            if self.restarted & (1 << attempt) != 0 {
                events.push(restarted(&job, attempt, begun + 700));
            }
            events.extend(end.map(|state| match self.told_by_end & (1 << attempt) {
                0 => finished(job.job_id, attempt, state, begun + 500),
                _ => ran(&job, attempt, state, begun, begun + 500),
            }));
        }
        events
    }
}

pub fn started(job: &JobInfo, attempt: u32, at_ms: i64) -> Event {
    Event::Started(Started {
        job: job.clone(),
        attempt,
        worker: worker(attempt),
        device: attempt % 2,
        // Some attempts ran on an old worker, which does not report the device.
        ran_on: (attempt % 3 != 1).then(|| ran_on(attempt)),
        at_ms,
    })
}

/// Returns the start after a redelivery to another worker under the same number.
pub fn restarted(job: &JobInfo, attempt: u32, at_ms: i64) -> Event {
    match started(job, attempt, at_ms) {
        Event::Started(event) => Event::Started(Started { worker: worker(attempt + 7), ..event }),
        other => other,
    }
}

pub fn finished(job_id: JobId, attempt: u32, state: AttemptState, at_ms: i64) -> Event {
    let failed = !matches!(state, AttemptState::Succeeded);
    Event::AttemptFinished(AttemptFinished {
        device: Some(attempt % 2),
        ran_on: (attempt % 3 != 2).then(|| ran_on(attempt)),
        failure: failed.then(|| {
            Failure::new(Verdict::Infrastructure, FailureCode::ExecutorLost, "the executor\0 left")
                .with_detail("a log")
                .at_line(Some(2))
                .in_program("{\n\0 y[i] = 1;\n}")
        }),
        output_bytes: 4096,
        timings: timings(attempt),
        // Old workers do not report it.
        charged_us: attempt.is_multiple_of(2).then(|| 95 + u64::from(attempt)),
        printf_output: printed(attempt, state),
        ..AttemptFinished::new(job_id, attempt, worker(attempt), at_ms, state)
    })
}

/// Returns an end event that reports the start and the job's description too.
pub fn ran(job: &JobInfo, attempt: u32, state: AttemptState, started_ms: i64, at_ms: i64) -> Event {
    match finished(job.job_id, attempt, state, at_ms) {
        Event::AttemptFinished(event) => Event::AttemptFinished(AttemptFinished {
            started_ms: Some(started_ms),
            job: Some(Box::new(job.clone())),
            ..event
        }),
        other => other,
    }
}

/// Returns the output of an attempt. Each attempt has another text, and some have none.
pub fn printed(attempt: u32, state: AttemptState) -> Option<PrintfOutput> {
    let text = format!("attempt {attempt}\n{state}\n");
    (attempt % 3 != 2).then(|| PrintfOutput { text, dropped_bytes: 1000 * u64::from(attempt), is_tail: false })
}

/// Returns timings that all differ, so that no two columns can be confused.
pub fn timings(attempt: u32) -> Timings {
    Timings {
        queue_us: 10,
        wait_us: 20,
        fetch_us: 300 + u64::from(attempt),
        compile_us: 40,
        load_us: 50,
        copy_in_us: 60,
        launches_us: vec![3, 4, u64::from(attempt)],
        copy_out_us: 70,
        total_us: 90,
        device_bytes_peak: 1 << 20,
        module_cached: attempt > 1,
    }
}

pub fn ran_on(attempt: u32) -> RanOn {
    RanOn {
        worker: worker(attempt),
        device: attempt % 2,
        device_name: format!("Device\0 {attempt}"),
        emulated: attempt % 2 == 1,
    }
}

pub fn info(job_id: JobId, at_ms: i64) -> JobInfo {
    JobInfo {
        name: Some("nightly".to_owned()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        input_bytes: 512,
        client: Some("client-1".to_owned()),
        submitted_ms: Some(at_ms),
        ..JobInfo::new(job_id, "saxpy")
    }
}

pub fn heartbeat(number: u32, at: i64, leaving: bool) -> Event {
    let device = |index| DeviceSeen {
        index,
        uuid: format!("GPU-{number}-{index}"),
        name: "Emulated".to_owned(),
        emulated: true,
        compute_capability: [8, 6],
        memory_bytes: 1 << 33,
        driver_version: 12080,
        out_of_service: (index == 1).then(|| "fell off\0 its bus".to_owned()),
        jobs_running: Some(index),
        pools: vec![PoolUse {
            pool: PoolName::default(),
            jobs_running: index,
            memory_bytes: 1 << 20,
            weight: Some(3),
            guaranteed_bytes: Some(1 << 19),
            sessions: Some(DeviceSessions { open: index, memory_bytes: 1 << 18, ..DeviceSessions::default() }),
            program: Some(DeviceProgram { job_id: id(7, index, None), label: "sh -c \0".to_owned() }),
        }],
        memory_used_bytes: Some(1 << 30),
        utilization_percent: Some(41),
        utilization_by: Some(UtilizationBy::Worker),
        temperature_celsius: None,
        power_milliwatts: Some(350_500),
    };
    Event::WorkerSeen(WorkerSeen {
        worker: worker(number),
        at_ms: BASE_MS + at * 1000,
        host: "gpu-1".to_owned(),
        pid: 4_000_000_000,
        revision: format!("r{at}"),
        pools: vec![PoolName::default(), "NULL".parse().unwrap()],
        devices: (0..=u32::try_from(at).unwrap() % 2).map(device).collect(),
        jobs_running: 2,
        // Only odd heartbeats have some, so that the latest one shows.
        sessions: (at % 2 == 1).then(|| sessions_seen(at)),
        programs: (at % 2 == 1).then(|| programs_seen(at)),
        leaving,
    })
}

pub fn sessions_seen(at: i64) -> SessionsSeen {
    let pools = vec![PoolSessions { pool: PoolName::default(), open_max: 4 }];
    SessionsSeen { hosts: vec![format!("gpu\0-{at}")], ports: [9480, 9499], pools }
}

pub fn programs_seen(at: i64) -> ProgramsSeen {
    let (pool, environments) = (PoolName::default(), vec![format!("torch\0-{at}")]);
    ProgramsSeen {
        pools: vec![PoolPrograms { pool, taken_max: 2, running: 1, waiting: 1, environments, images: Vec::new() }],
    }
}

pub fn worker(number: u32) -> WorkerName {
    format!("worker-{number}").parse().unwrap()
}

/// Returns a UUIDv7 with this time, or a UUIDv4 if there is none.
pub fn id(seed: u64, index: u32, at_ms: Option<i64>) -> JobId {
    let random = u128::from(seed) << 8 | u128::from(index) | 0x2 << 62;
    let uuid = match at_ms {
        Some(ms) => uuid::Builder::from_unix_timestamp_millis(ms.unsigned_abs(), &low_bytes(random)).into_uuid(),
        None => uuid::Builder::from_random_bytes((random << 40 | random).to_be_bytes()).into_uuid(),
    };
    JobId::from_uuid(uuid)
}

fn low_bytes(number: u128) -> [u8; 10] {
    let bytes = number.to_be_bytes();
    bytes[6..].try_into().unwrap()
}

/// Applies the rules to the events one by one, in the simplest way.
pub fn expected(events: &[Event]) -> BTreeMap<Uuid, Expected> {
    let mut jobs: BTreeMap<Uuid, Expected> = BTreeMap::new();
    for event in events {
        match event {
            Event::Submitted(event) => job(&mut jobs, event.job.job_id).described = true,
            Event::Started(event) => {
                let job = job(&mut jobs, event.job.job_id);
                job.described = true;
                job.attempts = job.attempts.max(event.attempt);
                job.start(event.at_ms);
                job.ends.entry(event.attempt).or_insert((AttemptState::Running, false));
            }
            Event::AttemptFinished(event) => {
                let job = job(&mut jobs, event.job_id);
                job.described |= event.job.is_some();
                job.attempts = job.attempts.max(event.attempt);
                event.started_ms.into_iter().for_each(|at_ms| job.start(at_ms));
                job.end(event);
            }
            Event::WorkerSeen(_) | Event::Action(_) | Event::SessionProgress(_) | Event::Later(_) => {}
        }
    }
    for job in jobs.values_mut() {
        job.started_at = job.started_at.filter(|at| job.finished_at.is_none_or(|end| *at <= end));
        if job.final_attempt.is_none() {
            job.state = match job.ends.get(&job.attempts) {
                Some((AttemptState::Running, _)) => JobState::Running,
                _ => JobState::Queued,
            };
        }
    }
    jobs
}

fn job(jobs: &mut BTreeMap<Uuid, Expected>, job_id: JobId) -> &mut Expected {
    jobs.entry(job_id.as_uuid()).or_insert_with(|| Expected {
        state: JobState::Queued,
        attempts: 0,
        final_attempt: None,
        finished_at: None,
        started_at: None,
        described: false,
        ends: BTreeMap::new(),
    })
}

impl Expected {
    fn start(&mut self, at_ms: i64) {
        let at = time(at_ms);
        self.started_at = Some(self.started_at.map_or(at, |known| known.min(at)));
    }

    fn end(&mut self, event: &AttemptFinished) {
        let is_final = event.state != AttemptState::Lost;
        let rank = |state| match state {
            AttemptState::Running => 0,
            AttemptState::Lost => 1,
            _ => 2,
        };
        let superseded = is_final && self.final_attempt.is_some_and(|attempt| attempt != event.attempt);
        let end = self.ends.entry(event.attempt).or_insert((AttemptState::Running, false));
        if rank(event.state) > rank(end.0) {
            *end = (event.state, superseded);
        }
        if is_final && self.final_attempt.is_none() {
            self.final_attempt = Some(event.attempt);
            self.finished_at = Some(time(event.at_ms));
            self.state = event.state.job_state();
        }
    }
}

pub fn time(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap()
}
