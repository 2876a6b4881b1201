//! Examples of every kind of body, which are kept for ever. Programs in other languages test against the same files.
//!
//! Each example must decode to the value in this file. `GPUFLEET_GOLDEN=write` adds the files of new examples; a file
//! that exists is never rewritten, because released producers send such messages.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use gpufleet_schema::{
    Announcement, Arg, AttemptFinished, AttemptState, Batch, BlobDigest, Block, Buffer, Command, Data, DeviceClass,
    DeviceSeen, Dtype, Encoding, Event, Failure, FailureCode, Grid, Inline, JobId, JobInfo, KeptData, KeptOutput,
    KeptOutputs, LargeOutputs, Launch, Limits, Number, Order, Output, OutputData, PoolUse, PrintfOutput, Priority,
    Program, RanOn, Reply, Requires, Selection, SigningKey, Started, Submitted, Task, Timings, TraceContext,
    UtilizationBy, Verdict, WorkerSeen, encoding,
};

fn id(last: u8) -> JobId {
    format!("0190a5b8-7c00-7000-8000-0000000000{last:02x}").parse().unwrap()
}

fn file(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(format!("{name}.{extension}"))
}

/// The bytes of a golden file. `GPUFLEET_GOLDEN=write` creates a missing file.
fn golden(name: &str, extension: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = file(name, extension);
    if !path.exists() && std::env::var("GPUFLEET_GOLDEN").as_deref() == Ok("write") {
        fs::write(&path, make()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; GPUFLEET_GOLDEN=write adds it", path.display()))
}

fn little_endian(values: [f32; 3]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn catalog_task() -> Task<'static> {
    let array = |values| Data::Inline(Inline::from(little_endian(values)));
    let buffer = |name: &str, data| Buffer::new(name, Dtype::F32, vec![3], data);
    Task {
        job_id: id(1),
        arguments: BTreeMap::from([("a".to_owned(), Number::Float(2.5))]),
        buffers: vec![buffer("x", array([1.0, 2.0, 3.0])), buffer("y", array([0.5, -0.5, 0.0]))],
        ..Task::new(Program::Catalog("saxpy".into()))
    }
}

fn source_task() -> Task<'static> {
    Task {
        job_id: id(2),
        name: Some("edges of a picture".into()),
        labels: BTreeMap::from([("team".to_owned(), "vision".to_owned())]),
        buffers: vec![
            Buffer::new("picture", Dtype::U8, vec![2, 3], Data::Fill(Number::Signed(7))),
            Buffer::new("edges", Dtype::U8, vec![2, 3], Data::Zeros),
        ],
        launches: vec![Launch {
            block: Block::Threads(vec![16, 16]),
            shared_bytes: 1024,
            args: vec![
                Arg::Buffer("picture".into()),
                Arg::Buffer("edges".into()),
                Arg::Scalar(Dtype::U32, Number::Signed(3)),
                Arg::Scalar(Dtype::F64, Number::Float(0.5)),
                Arg::Scalar(Dtype::U64, Number::from(u64::MAX)),
            ],
            repeat: 2,
            ..Launch::new("edges", Grid::Cover(vec![3, 2]))
        }],
        outputs: vec!["edges".into()],
        limits: Limits {
            time_limit_ms: Some(30_000),
            queue_limit_ms: Some(60_000),
            attempts_max: Some(2),
            memory_bytes_max: Some(1 << 20),
        },
        requires: Requires {
            compute_capability_min: Some([8, 0]),
            memory_bytes_min: Some(1 << 30),
            device: Some("H200".into()),
        },
        reply: Some("golden-client".parse().unwrap()),
        submitted_ms: Some(1_720_000_000_123),
        ..Task::new(Program::Source {
            code: "extern \"C\" __global__ void edges() {}\n".into(),
            options: vec!["--use_fast_math".into()],
        })
    }
}

fn trace_context() -> TraceContext {
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap()
}

/// A task of a producer that is traced.
fn traced_task() -> Task<'static> {
    Task { traceparent: Some(trace_context()), ..catalog_task() }
}

fn ptx_task() -> Task<'static> {
    Task {
        job_id: id(3),
        launches: vec![Launch::new("nothing", Grid::Blocks(vec![1]))],
        ..Task::new(Program::Ptx(".version 8.0\n".into()))
    }
}

/// A task with offsets, structures, clusters and cooperative launches.
fn launches_task() -> Task<'static> {
    let point = [1.5_f32, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let args = vec![
        Arg::Buffer("x".into()),
        Arg::BufferAt { name: "x".into(), offset: 16 },
        Arg::Bytes { bytes: point, align: 4 },
        Arg::Bytes { bytes: vec![7, 8, 9], align: 1 },
    ];
    Task {
        job_id: id(6),
        buffers: vec![Buffer::new("x", Dtype::F32, vec![64], Data::Zeros)],
        launches: vec![
            Launch { args, ..Launch::new("shift<float, 2>", Grid::Cover(vec![48])) },
            Launch { block: Block::Threads(vec![32]), cooperative: true, ..Launch::new("all", Grid::Blocks(vec![8])) },
            Launch { cluster: vec![2, 1], ..Launch::new("pairs", Grid::Blocks(vec![8, 2])) },
        ],
        outputs: vec!["x".into()],
        ..Task::new(Program::Source {
            code: "template <typename T, int N> __global__ void shift(T*, T*, Point, Tail) {}\n".into(),
            options: vec!["--maxrregcount=64".into()],
        })
    }
}

fn signed_task() -> Task<'static> {
    let key = SigningKey::from_seed([7; 32]).unwrap();
    let task = Task { job_id: id(4), ..source_task() };
    Task { signature: key.sign(&task.program), ..task }
}

/// A task with one input in the blob store, which may return outputs through the store.
fn blob_task() -> Task<'static> {
    let buffer = |name: &str, data| Buffer::new(name, Dtype::F32, vec![3], data);
    Task {
        job_id: id(5),
        arguments: BTreeMap::from([("a".to_owned(), Number::Float(2.5))]),
        buffers: vec![
            buffer("x", Data::Blob(BlobDigest::of(&little_endian([1.0, 2.0, 3.0])))),
            buffer("y", Data::Inline(Inline::from(little_endian([0.5, -0.5, 0.0])))),
        ],
        outputs: vec!["y".into(), "x".into()],
        large_outputs: LargeOutputs::Blob,
        ..Task::new(Program::Catalog("saxpy".into()))
    }
}

/// A task whose kernels only read an input.
fn sharing_task() -> Task<'static> {
    let mut task = blob_task();
    task.buffers[0].share = true;
    task.outputs.truncate(1);
    task
}

/// A task whose outputs are kept for a day.
fn kept_task() -> Task<'static> {
    Task { keep_ms: Some(86_400_000), ..catalog_task() }
}

fn ran_on() -> RanOn {
    RanOn { worker: "w1".parse().unwrap(), device: 0, device_name: "a device".into(), emulated: true }
}

fn succeeded() -> Reply<'static> {
    Reply {
        version: 1,
        job_id: Some(id(1)),
        attempt: 1,
        state: AttemptState::Succeeded,
        failure: None,
        outputs: vec![Output {
            name: "y".into(),
            dtype: Dtype::I16,
            shape: vec![2, 1],
            data: Inline::from(vec![1, 0, 255, 255]).into(),
        }],
        timings: Timings {
            queue_us: 1500,
            wait_us: 20,
            fetch_us: 0,
            compile_us: 0,
            load_us: 44,
            copy_in_us: 9,
            launches_us: vec![5, 6],
            copy_out_us: 7,
            total_us: 120,
            device_bytes_peak: 24,
            module_cached: true,
        },
        ran_on: Some(ran_on()),
        printf_output: None,
    }
}

fn failed() -> Reply<'static> {
    Reply {
        job_id: Some(id(2)),
        attempt: 3,
        state: AttemptState::Failed,
        failure: Some(
            Failure::new(Verdict::User, FailureCode::CompileError, "identifier \"x\" is undefined")
                .with_detail("kernel.cu(3): error: identifier \"x\" is undefined")
                .at_line(Some(3)),
        ),
        outputs: vec![],
        timings: Timings::default(),
        ran_on: None,
        ..succeeded()
    }
}

/// The reply to [`blob_task`]: one output is in the blob store, and one in the reply.
fn blob_reply() -> Reply<'static> {
    let output =
        |name: &str, data: OutputData<'static>| Output { name: name.into(), dtype: Dtype::F32, shape: vec![3], data };
    Reply {
        job_id: Some(id(5)),
        outputs: vec![
            output("y", OutputData::Blob(BlobDigest::of(&little_endian([3.0, 4.5, 7.5])))),
            output("x", Inline::from(little_endian([1.0, 2.0, 3.0])).into()),
        ],
        timings: Timings { fetch_us: 3100, ..succeeded().timings },
        ..succeeded()
    }
}

fn printed() -> PrintfOutput {
    PrintfOutput { text: "thread 0:\tx=1.5 µm\nthread 1:\n".into(), dropped_bytes: 70_000 }
}

/// The reply to a job whose kernels printed.
fn printed_reply() -> Reply<'static> {
    Reply { printf_output: Some(printed()), ..succeeded() }
}

/// The reply to a truncated body.
fn unreadable() -> Reply<'static> {
    let message = "the body is not JSON: EOF while parsing a string at line 1 column 40";
    Reply {
        job_id: None,
        state: AttemptState::Dead,
        attempt: 1,
        failure: Some(Failure::new(Verdict::User, FailureCode::MalformedTask, message)),
        ..failed()
    }
}

fn job_info() -> JobInfo {
    JobInfo {
        job_id: id(1),
        pool: "default".parse().unwrap(),
        priority: Priority::High,
        name: Some("a name".into()),
        labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        program: "catalog".into(),
        kernel: "saxpy".into(),
        input_bytes: 24,
        client: Some("golden-client".into()),
        submitted_ms: Some(1_720_000_000_123),
        user_id: None,
        blobs: Vec::new(),
        traceparent: None,
    }
}

fn events() -> Vec<Event> {
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
            printf_output: None,
            kept: None,
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
            leaving: false,
        }),
    ]
}

/// Events of a worker that reports its device with each attempt.
fn events_ran_on() -> Vec<Event> {
    let mut events = events();
    for event in &mut events {
        match event {
            Event::Started(started) => started.ran_on = Some(ran_on()),
            Event::AttemptFinished(finished) => finished.ran_on = Some(ran_on()),
            Event::Submitted(_) | Event::WorkerSeen(_) => {}
        }
    }
    events
}

/// Events with the user that the broker validated.
fn events_user() -> Vec<Event> {
    let mut events = events_ran_on();
    for event in &mut events {
        if let Event::Started(started) = event {
            started.job.user_id = Some("anna".into());
        }
    }
    events
}

/// Events of a worker that reports the state of its devices, and the description of a job that never started.
fn events_devices() -> Vec<Event> {
    let mut events = events_user();
    for event in &mut events {
        match event {
            Event::WorkerSeen(seen) => {
                let device = seen.devices[0].clone();
                let pool = "default".parse().unwrap();
                seen.devices[0] = DeviceSeen {
                    jobs_running: Some(1),
                    pools: vec![PoolUse { pool, jobs_running: 1, memory_bytes: 1 << 20, weight: None }],
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
            Event::Submitted(_) | Event::Started(_) => {}
        }
    }
    events
}

/// Events of a worker that reports the `printf` output of an attempt.
fn events_printf() -> Vec<Event> {
    let mut events = events_devices();
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            finished.printf_output = Some(printed());
        }
    }
    events
}

/// Events of a worker that reports the start and the description of a job in its final event.
fn events_started_ms() -> Vec<Event> {
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
fn events_kept() -> Vec<Event> {
    let mut events = events_started_ms();
    for event in &mut events {
        if let Event::AttemptFinished(finished) = event {
            let output =
                |name: &str, data| KeptOutput { name: name.into(), dtype: Dtype::F32, shape: vec![1, 3], data };
            let blob = KeptData::Blob(BlobDigest::of(&little_endian([1.0, 2.0, 3.0])));
            let inline = KeptData::Inline(little_endian([0.5, -0.5, 0.0]));
            let outputs = vec![output("y", inline), output("x", blob)];
            (finished.state, finished.failure) = (AttemptState::Succeeded, None);
            finished.kept = Some(Box::new(KeptOutputs { expires_ms: 1_720_086_400_130, outputs }));
        }
    }
    events
}

/// Events of a client and a worker that name the blobs of a job.
fn events_blobs() -> Vec<Event> {
    let blobs = vec![BlobDigest::of(&little_endian([1.0, 2.0, 3.0])), BlobDigest::of(b"")];
    let mut events = events_kept();
    for event in &mut events {
        match event {
            Event::Submitted(Submitted { job, .. }) | Event::Started(Started { job, .. }) => {
                job.blobs.clone_from(&blobs)
            }
            Event::AttemptFinished(AttemptFinished { job: Some(job), .. }) => job.blobs.clone_from(&blobs),
            Event::AttemptFinished(_) | Event::WorkerSeen(_) => {}
        }
    }
    events
}

/// Events of a worker that reports the weights of its pools.
fn events_weights() -> Vec<Event> {
    let mut events = events_blobs();
    for event in &mut events {
        if let Event::WorkerSeen(seen) = event {
            seen.devices.iter_mut().flat_map(|device| &mut device.pools).for_each(|pool| pool.weight = Some(3));
        }
    }
    events
}

/// Events of a job whose producer is traced.
fn events_traceparent() -> Vec<Event> {
    let mut events = events_blobs();
    for event in &mut events {
        match event {
            Event::Submitted(Submitted { job, .. }) => job.traceparent = Some(trace_context()),
            Event::AttemptFinished(AttemptFinished { job: Some(job), .. }) => job.traceparent = Some(trace_context()),
            Event::Started(_) | Event::AttemptFinished(_) | Event::WorkerSeen(_) => {}
        }
    }
    events
}

fn check_tasks(name: &str, tasks: &Batch<Task<'static>>) {
    for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
        let body = golden(name, extension, || match encoding {
            // One field on each line, for people.
            Encoding::Json => serde_json::to_vec_pretty(tasks).unwrap(),
            Encoding::MessagePack => encoding.encode_tasks(tasks).unwrap(),
        });
        let decoded = encoding.decode_tasks(&body).unwrap();
        assert_eq!(&decoded, tasks, "{name}.{extension}");
        for task in decoded.iter() {
            task.check().unwrap();
        }
    }
}

fn check_replies(name: &str, replies: &Batch<Reply<'static>>) {
    for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
        let body = golden(name, extension, || match encoding {
            Encoding::Json => serde_json::to_vec_pretty(replies).unwrap(),
            Encoding::MessagePack => encoding.encode_replies(replies).unwrap(),
        });
        assert_eq!(&encoding.decode_replies(&body).unwrap(), replies, "{name}.{extension}");
    }
}

#[test]
fn golden_tasks_of_version_1_decode_to_their_values() {
    check_tasks("task-catalog", &Batch::One(catalog_task()));
    check_tasks("task-source", &Batch::One(source_task()));
    check_tasks("task-ptx", &Batch::One(ptx_task()));
    check_tasks("task-signed", &Batch::One(signed_task()));
    check_tasks("task-blob", &Batch::One(blob_task()));
    check_tasks("task-keep", &Batch::One(kept_task()));
    check_tasks("task-share", &Batch::One(sharing_task()));
    check_tasks("task-traceparent", &Batch::One(traced_task()));
    check_tasks("task-launches", &Batch::One(launches_task()));
    check_tasks("task-list", &Batch::Many(vec![catalog_task(), ptx_task()]));
}

/// An old reader has [`Grid`] alone, without clusters and cooperative launches.
#[test]
fn an_old_reader_refuses_clusters_and_does_not_ignore_them() {
    for more in [r#""cluster": [2]"#, r#""cooperative": true"#] {
        let whole: serde_json::Value = serde_json::from_str(&format!(r#"{{"blocks": [8], {more}}}"#)).unwrap();
        assert!(serde_json::from_value::<Grid>(whole.clone()).is_err(), "{whole}");
        let packed = rmp_serde::to_vec_named(&whole).unwrap();
        assert!(rmp_serde::from_slice::<Grid>(&packed).is_err(), "{whole}");
    }
    assert_eq!(serde_json::from_str::<Grid>(r#"{"blocks": [8]}"#).unwrap(), Grid::Blocks(vec![8]));
}

#[test]
fn golden_replies_of_version_1_decode_to_their_values() {
    check_replies("reply-succeeded", &Batch::One(succeeded()));
    check_replies("reply-failed", &Batch::One(failed()));
    check_replies("reply-blob", &Batch::One(blob_reply()));
    check_replies("reply-printf", &Batch::One(printed_reply()));
    check_replies("reply-unreadable", &Batch::One(unreadable()));
    check_replies("reply-list", &Batch::Many(vec![succeeded(), failed()]));
}

/// The body with an id as 16 bytes in place of text, as most MessagePack libraries write a UUID.
fn with_binary_id(body: &[u8], id: JobId) -> Vec<u8> {
    let text = [&[0xd9, 36], id.to_string().as_bytes()].concat();
    let at = body.windows(text.len()).position(|window| window == text).expect("ids are written as text");
    [&body[..at], &[0xc4, 16], id.as_uuid().as_bytes(), &body[at + text.len()..]].concat()
}

#[test]
fn messagepack_ids_of_sixteen_bytes_are_read_like_text() {
    let task = Batch::One(catalog_task());
    let encoded = || Encoding::MessagePack.encode_tasks(&task).unwrap();
    let body = golden("task-binary-id", "msgpack", || with_binary_id(&encoded(), id(1)));
    assert_eq!(Encoding::MessagePack.decode_tasks(&body).unwrap(), task);
    assert_eq!(Encoding::MessagePack.decode_heads(&body)[0].job_id, Some(id(1)));
    let reply = Batch::One(succeeded());
    let encoded = || Encoding::MessagePack.encode_replies(&reply).unwrap();
    let body = golden("reply-binary-id", "msgpack", || with_binary_id(&encoded(), id(1)));
    assert_eq!(Encoding::MessagePack.decode_replies(&body).unwrap(), reply);
}

#[test]
fn golden_events_of_version_1_decode_to_their_values() {
    for (name, events) in [
        ("events", events()),
        ("events-ran-on", events_ran_on()),
        ("events-user", events_user()),
        ("events-devices", events_devices()),
        ("events-printf", events_printf()),
        ("events-started-ms", events_started_ms()),
        ("events-kept", events_kept()),
        ("events-blobs", events_blobs()),
        ("events-weights", events_weights()),
        ("events-traceparent", events_traceparent()),
    ] {
        let body = golden(name, "msgpack", || encoding::encode_events(&events).unwrap());
        assert_eq!(encoding::decode_events(&body).unwrap(), events, "{name}");
    }
}

#[test]
fn a_task_by_hand_may_have_numbers_and_leave_out_defaults() {
    let body = golden("task-by-hand", "json", || panic!("this one is written by hand"));
    let batch = Encoding::Json.decode_tasks(&body).unwrap();
    let task = &batch.as_slice()[0];
    task.check().unwrap();
    let Data::Inline(numbers) = &task.buffers[0].data else { panic!("{:?}", task.buffers[0]) };
    assert_eq!(numbers, &Inline::from(vec![Number::Signed(1), Number::Float(2.5), Number::Signed(-3)]));
    let bytes: Vec<u8> = [1.0_f32, 2.5, -3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(*numbers.resolve(Dtype::F32).unwrap(), *bytes);
    assert_eq!(task.buffers[1].data, Data::Zeros);
    let Arg::Scalar(Dtype::F32, special) = task.launches[0].args[2] else { panic!("{:?}", task.launches) };
    assert_eq!(special, Number::Float(f64::INFINITY));
}

fn announcement() -> Announcement {
    let small = DeviceClass::new("NVIDIA L4", [8, 9], 24 << 30, false);
    let large = DeviceClass::new("NVIDIA H200", [9, 0], 141 << 30, true);
    Announcement { pools: vec!["default".parse().unwrap(), "team-a".parse().unwrap()], classes: vec![small, large] }
}

#[test]
fn golden_orders_of_version_1_decode_to_their_values() {
    let labels = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
    let orders = [
        ("order-cancel", Command::Cancel(Selection { jobs: vec![id(1), id(2)], labels })),
        ("order-drain", Command::Drain { worker: "golden-worker".parse().unwrap() }),
        ("order-announce", Command::Announce(announcement())),
        ("order-mark", Command::Mark { id: "0190a5b8-7c00-7000-8000-0000000000ff".parse().unwrap() }),
    ];
    for (name, command) in orders {
        let order = Order::new(1_700_000_000_000, Some("anna@laptop".into()), command);
        let body = golden(name, "json", || encoding::encode_order(&order).unwrap());
        assert_eq!(encoding::decode_order(&body).unwrap(), order, "{name}");
    }
}
