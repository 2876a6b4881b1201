//! The body of the fuzz target. A test also runs it on every text that was once a finding.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Entry, Module, Reuse};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch};
use gpufleet_emulator::texture::Texture;
use gpufleet_emulator::texture::format::{Channel, Format};
use gpufleet_emulator::texture::image::{Extent, Image};
use gpufleet_emulator::texture::registry::Object;
use gpufleet_emulator::texture::sampler::{Filter, Sampler};

/// Device memory in bytes, enough for a module's variables and a buffer. A text that needs more is refused.
const MEMORY_BYTES: u64 = 1 << 20;

/// Bytes of the buffer that the pointers of kernels point to.
const BUFFER_BYTES: u64 = 4096;

/// Maximum number of kernels of a text that run; more would add little.
const ENTRIES_MAX: usize = 3;

/// Threads of a launch: two warps, one of them partial.
const THREADS: u32 = 37;

/// Instruction budget of a launch: loops run a few iterations, and endless ones end soon.
const INSTRUCTIONS_MAX: u64 = 3000;

/// Loads a text and runs its kernels for a moment.
pub fn exercise(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let memory = Arc::new(Memory::new(MEMORY_BYTES).expect("the host reserves a megabyte of addresses"));
    let Ok(buffer) = memory.alloc(BUFFER_BYTES) else { return };
    let values = values(&memory, buffer);
    for reuse in [Reuse::Large, Reuse::Always] {
        let target = ComputeCapability { major: 9, minor: 0 };
        let Ok(module) = Module::load_reusing(&text, &memory, target, reuse) else { return };
        run_some(&module, &memory, values);
    }
}

fn run_some(module: &Module, memory: &Memory, values: [u64; 3]) {
    let mut entries: Vec<_> = module.entries().collect();
    // Sorted, so that a text always behaves alike.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries.into_iter().take(ENTRIES_MAX) {
        for vector in [true, false] {
            run(entry, memory, values, vector);
        }
    }
}

/// Returns the values that 8-byte parameters get in turn: a buffer, and a texture and a surface over it.
fn values(memory: &Memory, buffer: u64) -> [u64; 3] {
    let format = Format { channel: Channel::U8, channels: 4 };
    let extent = Extent { width: 16, height: 16, depth: 0, is_layered: false, is_cube: false };
    let image = Image::array(format, extent, 3, buffer);
    let surface = Object::Surface(Arc::new(image.level(0)));
    let sampler = Sampler { filter: Filter::Linear, level_max: 2.0, ..Sampler::default() };
    let texture = Object::Texture(Arc::new(Texture { image, sampler }));
    [buffer, memory.textures().add(texture), memory.textures().add(surface)]
}

fn run(entry: &Entry, memory: &Memory, values: [u64; 3], vector: bool) {
    let mut params = vec![0u8; entry.params_bytes as usize];
    let mut wide = values.into_iter().cycle();
    for param in &entry.params {
        let value = if param.bytes == 8 { wide.next().unwrap_or_default() } else { u64::from(THREADS) };
        let bytes = (param.bytes as usize).min(8);
        params[param.offset as usize..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }
    let cancel = AtomicBool::new(false);
    let print = |_: &[u8]| {};
    let options = RunOptions {
        threads: 1,
        cancel: &cancel,
        instructions_max: Some(INSTRUCTIONS_MAX),
        print: &print,
        vector,
        limits: RunLimits::default(),
    };
    let block = entry.required_block.unwrap_or([THREADS.min(entry.max_threads), 1, 1]);
    let config = LaunchConfig { grid: [2, 1, 1], block, shared_bytes: 256, params: &params };
    // Ending in a fault is fine.
    let _ = launch(entry, &config, memory, &options);
}
