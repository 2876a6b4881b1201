//! Jobs with known behaviour, written in PTX. So only the scenarios about compiling need a compiler.

use std::collections::BTreeMap;

use gpufleet::{Job, StoredArray};
use gpufleet_schema::{Buffer, Data, Dtype, Inline, Program, Task};

pub const DOUBLES: &str = include_str!("ptx/doubles.ptx");
pub const ENDLESS: &str = include_str!("ptx/endless.ptx");
const SAY: &str = include_str!("../../worker/tests/executor/say.ptx");
pub const WILD_WRITE: &str = include_str!("ptx/wild_write.ptx");

/// Returns a job that computes `y[i] = 2 · x[i]`.
pub fn doubles(x: &[f32]) -> Job {
    doubling(Job::ptx(DOUBLES).input("x", x), x.len() as u32)
}

/// Returns a job that doubles the first `n` elements of a stored array. It returns `n` numbers, however large the array
/// is.
pub fn doubles_stored(x: &StoredArray, n: u32) -> Job {
    doubling(Job::ptx(DOUBLES).input_stored("x", x), n)
}

fn doubling(job: Job, n: u32) -> Job {
    let job = job.zeros("y", Dtype::F32, [u64::from(n)]).entry("doubles").cover([u64::from(n)]);
    job.arg_buffer("x").arg_buffer("y").arg(n).output("y")
}

/// Returns a task for the catalog's kernel, for scenarios that write messages themselves.
pub fn saxpy() -> Task<'static> {
    let buffer = |name: &str| Buffer::new(name, Dtype::F32, vec![3], Data::Inline(Inline::from(vec![0; 12])));
    Task {
        arguments: BTreeMap::from([("a".to_owned(), 2.0.into())]),
        buffers: vec![buffer("x"), buffer("y")],
        ..Task::new(Program::Catalog("saxpy".into()))
    }
}

/// The behaviour of [`says`] after it has printed.
#[derive(Debug, Clone, Copy)]
pub enum Then {
    Return = 0,
    Trap = 1,
    Spin = 2,
}

/// Returns a job that prints [`said`].
pub fn says(mark: u32, lines: u32, then: Then) -> Job {
    Job::ptx(SAY).entry("say").blocks([1]).block([1]).arg(mark).arg(lines).arg(then as u32)
}

pub fn said(mark: u32, lines: u32) -> String {
    (0..lines).map(|line| format!("job {mark} line {line}\n")).collect()
}

/// Returns a job whose kernel never ends.
pub fn endless() -> Job {
    Job::ptx(ENDLESS).zeros("y", Dtype::U32, [1]).entry("endless").blocks([1]).block([1]).arg_buffer("y").output("y")
}

/// Returns a job whose kernel writes far beyond its only buffer.
pub fn writes_beyond_its_buffer() -> Job {
    wild_write(WILD_WRITE.to_owned())
}

/// Returns [`writes_beyond_its_buffer`] as a separate program, so that faults of the others do not count against it.
pub fn writes_beyond_its_buffer_as(number: usize) -> Job {
    wild_write(format!("{WILD_WRITE}// {number}\n"))
}

fn wild_write(ptx: String) -> Job {
    Job::ptx(ptx).zeros("y", Dtype::U32, [4]).entry("wild_write").blocks([1]).block([1]).arg_buffer("y").output("y")
}

/// Returns a job with one buffer of this many bytes on the device. The buffer's contents are not in the message.
pub fn with_buffer_of(bytes: u64) -> Job {
    Job::ptx(ENDLESS).zeros("y", Dtype::U8, [bytes]).entry("endless").blocks([1]).block([1]).arg_buffer("y")
}

/// Returns a job that doubles a buffer of zeros, whose contents are not in the message.
pub fn doubles_zeros(n: u64) -> Job {
    Job::ptx(DOUBLES)
        .zeros("x", Dtype::F32, [n])
        .zeros("y", Dtype::F32, [n])
        .entry("doubles")
        .cover([n])
        .arg_buffer("x")
        .arg_buffer("y")
        .arg(n as u32)
        .output("y")
}

/// Returns a job that doubles one number. An unused buffer makes the job take exactly this many bytes of an emulated
/// device.
///
/// # Panics
/// If the module alone needs more.
pub fn doubles_in(bytes: u64) -> Job {
    let module = DOUBLES.len() as u64;
    let scratch = bytes.checked_sub(module + 8).expect("the module and two numbers fit");
    doubles_zeros(1).zeros("scratch", Dtype::U8, [scratch])
}
