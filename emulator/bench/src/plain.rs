//! The plain kernels, from one of their two builds.

use std::path::Path;

use anyhow::Context as _;
use gpufleet_bench_plain::{Kernel, Span};

use crate::cases::{Buffer, Case};

/// A build of the plain kernels.
#[derive(Debug)]
pub struct Library {
    library: libloading::Library,
}

impl Library {
    pub fn open(path: &Path) -> anyhow::Result<Library> {
        // SAFETY: the library is the workspace's own; loading it runs no code.
        let library = unsafe { libloading::Library::new(path) };
        Ok(Library { library: library.with_context(|| format!("failed to load {}", path.display()))? })
    }

    /// Returns the plain kernel of a case.
    pub fn kernel(&self, case: &Case) -> anyhow::Result<Kernel> {
        // SAFETY: the macro that exports the kernels gives all of them this type.
        let found = unsafe { self.library.get::<Kernel>(case.plain.as_bytes()) };
        Ok(*found.with_context(|| format!("failed to find {}", case.plain))?)
    }
}

/// Runs a plain kernel on `buffers`, with its two numbers.
pub fn run(kernel: Kernel, case: &Case, [first, second]: [u32; 2], buffers: &mut [Buffer]) {
    let spans: Vec<Span> = case.plain_buffers.iter().map(|index| buffers[*index].span()).collect();
    // SAFETY: the cases list as many buffers as their kernels take, each once, of whole elements.
    unsafe { kernel(spans.as_ptr(), first, second) };
}
