//! Examples of lists of events.

use std::collections::BTreeMap;

use gpufleet_schema::{
    Action, AttemptFinished, AttemptState, DeviceProgram, DeviceSeen, DeviceSessions, Dtype, Event, Failure,
    FailureCode, HostProgramInfo, JobInfo, KeptData, KeptOutput, KeptOutputs, PoolPrograms, PoolSessions, PoolUse,
    Priority, ProgramsSeen, SessionProgress, SessionUse, SessionsSeen, Started, Submitted, UtilizationBy, Verdict,
    WorkerSeen,
};

use crate::{
    id,
    replies::{failed, printed, ran_on, succeeded},
    tasks::{X_BLOB, little_endian, trace_context},
};

/// The name of an empty blob.
const EMPTY_BLOB: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub(crate) fn job_info() -> JobInfo {
    JobInfo {
        job_id: id(1),
        pool: "default".parse().unwrap(),
        priority: Priority::High,
        name: Some("a name".into()),
        labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        program: "catalog".into(),
        kernel: "saxpy".into(),
        input_bytes: 24,
        lease_bytes: None,
        host_program: None,
        client: Some("golden-client".into()),
        submitted_ms: Some(1_720_000_000_123),
        user_id: None,
        blobs: Vec::new(),
        traceparent: None,
    }
}

pub(crate) fn events() -> Vec<Event> {
    let job = job_info();
    vec![
        Event::Submitted(Submitted { job: job.clone(), at_ms: 1_720_000_000_123 }),
        Event::Started(Started {
            job,
            attempt: 1,
            worker: "w1".parse().unwrap(),
            device: 0,
            ran_on: None,
            at_ms: 1_720_000_000_125,
        }),
        Event::AttemptFinished(AttemptFinished {
            job_id: id(1),
            attempt: 1,
            worker: "w1".parse().unwrap(),
            device: Some(0),
            ran_on: None,
            started_ms: None,
            at_ms: 1_720_000_000_130,
            state: AttemptState::Failed,
            failure: failed().failure,
            retry_at_ms: None,
            output_bytes: 0,
            timings: succeeded().timings,
            job: None,
            charged_us: None,
            user_id: None,
            printf_output: None,
            kept: None,
            session: None,
        }),
        Event::WorkerSeen(WorkerSeen {
            worker: "w1".parse().unwrap(),
            at_ms: 1_720_000_000_140,
            host: "host".into(),
            pid: 42,
            revision: "0.1.0".into(),
            pools: vec!["default".parse().unwrap()],
            devices: vec![DeviceSeen {
                index: 0,
                uuid: "GPU-0".into(),
                name: "a device".into(),
                emulated: false,
                compute_capability: [9, 0],
                memory_bytes: 1 << 37,
                driver_version: 12080,
                out_of_service: None,
                jobs_running: None,
                pools: Vec::new(),
                memory_used_bytes: None,
                utilization_percent: None,
                utilization_by: None,
                temperature_celsius: None,
                power_milliwatts: None,
            }],
            jobs_running: 1,
            sessions: None,
            programs: None,
            leaving: false,
        }),
    ]
}

/// Events of a worker that reports its device with each attempt.
pub(crate) fn events_ran_on() -> Vec<Event> {
    let mut events = events();
    for event in &mut events {
        match event {
            Event::Started(started) => started.ran_on = Some(ran_on()),
            Event::AttemptFinished(finished) => finished.ran_on = Some(ran_on()),
            Event::Submitted(_)
            | Event::WorkerSeen(_)
            | Event::Action(_)
            | Event::SessionProgress(_)
            | Event::Later(_) => {}
        }
    }
    events
}

/// Events with the user that the broker validated.
pub(crate) fn events_user() -> Vec<Event> {
    let mut events = events_ran_on();
    for event in &mut events {
        if let Event::Started(started) = event {
            started.job.user_id = Some("anna".into());
        }
    }
    events
}

/// Events of a worker that reports the state of its devices, and the description of a job that never started.
pub(crate) fn events_devices() -> Vec<Event> {
    let mut events = events_user();
    for event in &mut events {
        match event {
            Event::WorkerSeen(seen) => {
                let device = seen.devices[0].clone();
                let pool = "default".parse().unwrap();
                seen.devices[0] = DeviceSeen {
                    jobs_running: Some(1),
                    pools: vec![PoolUse {
                        pool,
                        jobs_running: 1,
                        memory_bytes: 1 << 20,
                        weight: None,
                        guaranteed_bytes: None,
                        sessions: None,
                        program: None,
                    }],
                    memory_used_bytes: Some(1 << 30),
                    utilization_percent: Some(41),
                    utilization_by: Some(UtilizationBy::Nvml),
                    temperature_celsius: Some(55),
                    power_milliwatts: Some(350_500),
                    ..device.clone()
                };
                let out_of_service = Some("its probe kernel failed".into());
                let utilization_by = Some(UtilizationBy::Worker);
                let utilization_percent = Some(0);
                seen.devices.push(DeviceSeen {
                    index: 1,
                    out_of_service,
                    utilization_percent,
                    utilization_by,
                    ..device
                });
            }
            Event::AttemptFinished(finished) => {
                (finished.device, finished.ran_on) = (None, None);
                finished.job = Some(Box::new(JobInfo { user_id: Some("anna".into()), ..job_info() }));
            }
            Event::Submitted(_)
            | Event::Started(_)
            | Event::Action(_)
            | Event::SessionProgress(_)
            | Event::Later(_) => {}
        }
    }
    events
}

/// Events of a worker that reports the `printf` output of an attempt.
pub(crate) fn events_printf() -> Vec<Event> {
    let mut events = events_devices();
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            finished.printf_output = Some(printed());
        }
    }
    events
}

/// Events of a worker that reports the start and the description of a job in its final event.
pub(crate) fn events_started_ms() -> Vec<Event> {
    let mut events = events_printf();
    events.retain(|event| !matches!(event, Event::Started(_)));
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            (finished.device, finished.ran_on) = (Some(0), Some(ran_on()));
            finished.started_ms = Some(1_720_000_000_125);
        }
    }
    events
}

/// Events of a worker that reports the kept outputs of a job.
pub(crate) fn events_kept() -> Vec<Event> {
    let mut events = events_started_ms();
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            let output =
                |name: &str, data| KeptOutput { name: name.into(), dtype: Dtype::F32, shape: vec![1, 3], data };
            let blob = KeptData::Blob(X_BLOB.parse().unwrap());
            let inline = KeptData::Inline(little_endian([0.5, -0.5, 0.0]));
            let outputs = vec![output("y", inline), output("x", blob)];
            (finished.state, finished.failure) = (AttemptState::Succeeded, None);
            finished.kept = Some(Box::new(KeptOutputs { expires_ms: 1_720_086_400_130, outputs }));
        }
    }
    events
}

/// Events of a client and a worker that name the blobs of a job.
pub(crate) fn events_blobs() -> Vec<Event> {
    let blobs = [X_BLOB, EMPTY_BLOB].map(|name| name.parse().unwrap()).to_vec();
    let mut events = events_kept();
    for event in &mut events {
        match event {
            Event::Submitted(Submitted { job, .. }) | Event::Started(Started { job, .. }) => {
                job.blobs.clone_from(&blobs)
            }
            Event::AttemptFinished(AttemptFinished { job: Some(job), .. }) => job.blobs.clone_from(&blobs),
            Event::AttemptFinished(_)
            | Event::WorkerSeen(_)
            | Event::Action(_)
            | Event::SessionProgress(_)
            | Event::Later(_) => {}
        }
    }
    events
}

/// Events of a worker that reports the weights of its pools.
pub(crate) fn events_weights() -> Vec<Event> {
    let mut events = events_blobs();
    for event in &mut events {
        if let Event::WorkerSeen(seen) = event {
            seen.devices.iter_mut().flat_map(|device| &mut device.pools).for_each(|pool| pool.weight = Some(3));
        }
    }
    events
}

/// Events of a worker that takes sessions, and of one that waits.
pub(crate) fn events_takes_sessions() -> Vec<Event> {
    let mut events = events_weights();
    events.retain(|event| !matches!(event, Event::AttemptFinished(_)));
    for event in &mut events {
        if let Event::WorkerSeen(seen) = event {
            let pools = vec![PoolSessions { pool: "default".parse().unwrap(), open_max: 4 }];
            seen.sessions =
                Some(SessionsSeen { hosts: vec!["10.0.0.7".into(), "gpu-7".into()], ports: [9480, 9499], pools });
            seen.devices[0].pools[0].sessions = Some(DeviceSessions {
                open: 2,
                memory_bytes: 12 << 30,
                memory_bytes_max: 40 << 30,
                overhead_bytes: 640 << 20,
            });
        }
    }
    let job = JobInfo {
        program: "session".into(),
        kernel: "python train.py".into(),
        input_bytes: 0,
        lease_bytes: Some(8 << 30),
        ..job_info()
    };
    events.push(Event::Submitted(Submitted { job, at_ms: 1_720_000_000_123 }));
    events
}

/// Events of a worker that takes host programs, and of one that waits.
pub(crate) fn events_takes_programs() -> Vec<Event> {
    let mut events = events_weights();
    events.retain(|event| !matches!(event, Event::AttemptFinished(_)));
    for event in &mut events {
        if let Event::WorkerSeen(seen) = event {
            let pool = PoolPrograms {
                pool: "default".parse().unwrap(),
                taken_max: 2,
                running: 1,
                waiting: 1,
                environments: vec!["science".into(), "torch".into()],
                images: Vec::new(),
            };
            seen.programs = Some(ProgramsSeen { pools: vec![pool] });
            seen.devices[0].pools[0].program = Some(DeviceProgram { job_id: id(8), label: "python train.py".into() });
        }
    }
    let job = JobInfo {
        job_id: id(8),
        program: "host".into(),
        kernel: "python train.py".into(),
        host_program: Some(Box::new(HostProgramInfo {
            command: vec!["python".into(), "train.py".into()],
            is_cut: false,
            environment: Some("torch".into()),
            image: None,
            network: true,
            variables: vec!["SEED".into()],
        })),
        ..job_info()
    };
    events.push(Event::Submitted(Submitted { job, at_ms: 1_720_000_000_123 }));
    events
}

/// Events of a job whose producer is traced.
pub(crate) fn events_traceparent() -> Vec<Event> {
    let mut events = events_blobs();
    for event in &mut events {
        match event {
            Event::Submitted(Submitted { job, .. }) => job.traceparent = Some(trace_context()),
            Event::AttemptFinished(AttemptFinished { job: Some(job), .. }) => job.traceparent = Some(trace_context()),
            Event::Started(_)
            | Event::AttemptFinished(_)
            | Event::WorkerSeen(_)
            | Event::Action(_)
            | Event::SessionProgress(_)
            | Event::Later(_) => {}
        }
    }
    events
}

/// What a session did whose program failed.
fn session_use() -> SessionUse {
    SessionUse {
        processes: 2,
        calls: 18_432,
        waits: 512,
        sent_bytes: 96 << 20,
        received_bytes: 4 << 20,
        busy_us: 12_300_000,
        memory_bytes: 8 << 30,
        memory_bytes_peak: 6 << 30,
        exit_code: Some(3),
        signal: None,
    }
}

/// Events of a session whose program failed.
pub(crate) fn events_session() -> Vec<Event> {
    let mut events = events_started_ms();
    events.retain(|event| matches!(event, Event::AttemptFinished(_)));
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            let code = FailureCode::ProgramFailed;
            finished.failure = Some(Failure::new(Verdict::User, code, "the program exited with 3"));
            finished.printf_output = None;
            finished.job = Some(Box::new(JobInfo {
                program: "session".into(),
                kernel: "python train.py".into(),
                input_bytes: 0,
                ..job_info()
            }));
            finished.session = Some(Box::new(session_use()));
        }
    }
    events
}

/// What a session has done so far.
pub(crate) fn events_session_progress() -> Vec<Event> {
    let job = JobInfo {
        program: "session".into(),
        kernel: "python train.py".into(),
        input_bytes: 0,
        lease_bytes: Some(8 << 30),
        ..job_info()
    };
    let started = Started {
        job,
        attempt: 1,
        worker: "w1".parse().unwrap(),
        device: 0,
        ran_on: Some(ran_on()),
        at_ms: 1_720_000_000_125,
    };
    vec![Event::SessionProgress(Box::new(SessionProgress {
        started,
        sequence: 2,
        at_ms: 1_720_000_020_125,
        charged_us: 4_200_000,
        session: SessionUse { exit_code: None, ..session_use() },
    }))]
}

/// An action of a person through a program.
pub(crate) fn events_action() -> Vec<Event> {
    vec![Event::Action(Action {
        action_id: "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e60".parse().unwrap(),
        at_ms: 1_720_000_000_150,
        who: "anna".into(),
        action: "cancel".into(),
        target: "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e5f".into(),
        from: Some("10.0.0.7".into()),
        reported_by: Some("console".into()),
    })]
}
