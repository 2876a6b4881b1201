//! The small programs of the self-test.

use gpufleet_schema::{Block, Buffer, Data, Dtype, Grid, Inline, Launch, Program, Task};

/// Kernels that do nothing, write to an unmapped address, or never end. The PTX version is so old that every driver reads it.
const PTX: &str = include_str!("selftest.ptx");

fn task(entry: &str, repeat: u32, buffers: Vec<Buffer<'static>>, outputs: Vec<String>) -> Task<'static> {
    let launch = Launch { block: Block::Threads(vec![32]), repeat, ..Launch::new(entry, Grid::Blocks(vec![1])) };
    Task { buffers, launches: vec![launch], outputs, ..Task::new(Program::Ptx(PTX.into())) }
}

/// Returns a task that launches an empty kernel `repeat` times.
pub(super) fn nothing(repeat: u32) -> Task<'static> {
    task("nothing", repeat, Vec::new(), Vec::new())
}

pub(super) fn writes_nowhere() -> Task<'static> {
    task("write_nowhere", 1, Vec::new(), Vec::new())
}

pub(super) fn never_ends() -> Task<'static> {
    task("never_end", 1, Vec::new(), Vec::new())
}

/// Returns a task that copies this many bytes in and out, around an empty kernel.
pub(super) fn copies(bytes: usize) -> Task<'static> {
    let data = Data::Inline(Inline::from(vec![0xa5; bytes]));
    let buffer = Buffer::new("bytes", Dtype::U8, vec![bytes as u64], data);
    task("nothing", 1, vec![buffer], vec!["bytes".to_owned()])
}
