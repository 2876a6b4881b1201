//! Examples of tasks.

use std::collections::BTreeMap;

use gpufleet_schema::{
    Arg, BlobDigest, Block, Buffer, Data, Dtype, Grid, HostProgram, Inline, LargeOutputs, Launch, Limits, Number,
    Program, Requires, SigningKey, Task, TraceContext,
};

use crate::id;

/// The name of the blob with [1.0, 2.0, 3.0]. These examples are older than [`BlobDigest::of`], which has BLAKE3 now.
pub(crate) const X_BLOB: &str = "sha256:8e628779e6a74ee0b36991c10158f63cafec7d340ad4e075592502c8708524dd";

pub(crate) fn little_endian(values: [f32; 3]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn catalog_task() -> Task<'static> {
    let array = |values| Data::Inline(Inline::from(little_endian(values)));
    let buffer = |name: &str, data| Buffer::new(name, Dtype::F32, vec![3], data);
    Task {
        job_id: id(1),
        arguments: BTreeMap::from([("a".to_owned(), Number::Float(2.5))]),
        buffers: vec![buffer("x", array([1.0, 2.0, 3.0])), buffer("y", array([0.5, -0.5, 0.0]))],
        ..Task::new(Program::Catalog("saxpy".into()))
    }
}

pub(crate) fn source_task() -> Task<'static> {
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

pub(crate) fn trace_context() -> TraceContext {
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap()
}

/// A task of a producer that is traced.
pub(crate) fn traced_task() -> Task<'static> {
    Task { traceparent: Some(trace_context()), ..catalog_task() }
}

pub(crate) fn ptx_task() -> Task<'static> {
    Task {
        job_id: id(3),
        launches: vec![Launch::new("nothing", Grid::Blocks(vec![1]))],
        ..Task::new(Program::Ptx(".version 8.0\n".into()))
    }
}

/// A lease of device memory for a program on another machine.
pub(crate) fn session_task() -> Task<'static> {
    Task {
        job_id: id(7),
        limits: Limits {
            time_limit_ms: Some(3_600_000),
            queue_limit_ms: Some(600_000),
            attempts_max: Some(1),
            memory_bytes_max: Some(8 << 30),
        },
        reply: Some("golden-client".parse().unwrap()),
        ..Task::new(Program::Session { label: "python train.py".into(), idle_limit_ms: Some(600_000) })
    }
}

/// A command that runs on a worker's machine, with its files.
pub(crate) fn host_task() -> Task<'static> {
    let upload = Data::Inline(Inline::from(b"a tar archive".to_vec()));
    Task {
        job_id: id(8),
        buffers: vec![Buffer::new("upload", Dtype::U8, vec![13], upload)],
        limits: Limits { time_limit_ms: Some(14_400_000), attempts_max: Some(1), ..Limits::default() },
        keep_ms: Some(604_800_000),
        reply: Some("golden-client".parse().unwrap()),
        ..Task::new(Program::Host(HostProgram {
            command: vec!["python".into(), "train.py".into()],
            environment: Some("torch".into()),
            image: None,
            variables: BTreeMap::from([("SEED".to_owned(), "7".to_owned())]),
            download: vec!["out/**".into()],
            network: true,
        }))
    }
}

/// A command that runs in a container on a worker's machine.
pub(crate) fn container_task() -> Task<'static> {
    Task {
        job_id: id(9),
        limits: Limits { attempts_max: Some(1), ..Limits::default() },
        reply: Some("golden-client".parse().unwrap()),
        ..Task::new(Program::Host(HostProgram {
            command: vec!["python".into(), "train.py".into()],
            environment: None,
            image: Some("registry.example.com/torch:2.9".into()),
            variables: BTreeMap::new(),
            download: Vec::new(),
            network: false,
        }))
    }
}

/// A task with offsets, structures, clusters and cooperative launches.
pub(crate) fn launches_task() -> Task<'static> {
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

pub(crate) fn signed_task() -> Task<'static> {
    let key = SigningKey::from_seed([7; 32]).unwrap();
    let task = Task { job_id: id(4), ..source_task() };
    Task { signature: key.sign(&task.program), ..task }
}

/// A task with one input in the blob store, which may return outputs through the store.
pub(crate) fn blob_task() -> Task<'static> {
    let buffer = |name: &str, data| Buffer::new(name, Dtype::F32, vec![3], data);
    Task {
        job_id: id(5),
        arguments: BTreeMap::from([("a".to_owned(), Number::Float(2.5))]),
        buffers: vec![
            buffer("x", Data::Blob(X_BLOB.parse().unwrap())),
            buffer("y", Data::Inline(Inline::from(little_endian([0.5, -0.5, 0.0])))),
        ],
        outputs: vec!["y".into(), "x".into()],
        large_outputs: LargeOutputs::Blob,
        ..Task::new(Program::Catalog("saxpy".into()))
    }
}

/// The same task with the BLAKE3 digest of its input.
pub(crate) fn blake3_task() -> Task<'static> {
    let mut task = blob_task();
    task.buffers[0].data = Data::Blob(BlobDigest::of(&little_endian([1.0, 2.0, 3.0])));
    task
}

/// A task whose kernels only read an input.
pub(crate) fn sharing_task() -> Task<'static> {
    let mut task = blob_task();
    task.buffers[0].share = true;
    task.outputs.truncate(1);
    task
}

/// A task whose outputs are kept for a day.
pub(crate) fn kept_task() -> Task<'static> {
    Task { keep_ms: Some(86_400_000), ..catalog_task() }
}
