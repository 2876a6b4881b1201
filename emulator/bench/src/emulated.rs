//! Runs the cases in the emulator.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Entry, Module};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch};

use crate::cases::{Argument, Buffer, Case, Launch};

pub const KERNELS: &str = include_str!("../kernels.ptx");

/// Device memory in bytes, enough for the buffers of all cases.
const MEMORY_BYTES: u64 = 1 << 28;

const TARGET: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// Device memory and the loaded kernels.
#[derive(Debug)]
pub struct Machine {
    memory: Arc<Memory>,
    module: Module,
}

/// How launches are run.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub threads: usize,
    /// True if the machine's vector instructions may be used.
    pub vector: bool,
}

/// A case with its buffers in device memory and its launches prepared.
#[derive(Debug)]
pub struct Prepared<'a> {
    machine: &'a Machine,
    case: &'a Case,
    addresses: Vec<u64>,
    launches: Vec<(Arc<Entry>, &'a Launch, Vec<u8>)>,
}

impl Machine {
    pub fn new() -> anyhow::Result<Machine> {
        let memory = Arc::new(Memory::new(MEMORY_BYTES).context("failed to reserve device memory")?);
        let module = Machine::load(&memory)?;
        Ok(Machine { memory, module })
    }

    pub fn load(memory: &Arc<Memory>) -> anyhow::Result<Module> {
        Module::load(KERNELS, memory, TARGET).context("failed to load the kernels")
    }

    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub fn prepare<'a>(&'a self, case: &'a Case) -> anyhow::Result<Prepared<'a>> {
        let addresses = case.buffers.iter().map(|buffer| self.memory.alloc(buffer.bytes().len() as u64));
        let addresses = addresses.collect::<Result<Vec<u64>, _>>().context("failed to make room for the buffers")?;
        let mut launches = Vec::new();
        for launch in &case.launches {
            let entry =
                self.module.entry(launch.kernel).with_context(|| format!("failed to find {}", launch.kernel))?;
            let params = parameters(&entry, launch, &addresses);
            launches.push((entry, launch, params));
        }
        Ok(Prepared { machine: self, case, addresses, launches })
    }
}

/// Returns the parameter block of a launch.
fn parameters(entry: &Entry, launch: &Launch, addresses: &[u64]) -> Vec<u8> {
    let mut block = vec![0; entry.params_bytes as usize];
    for (param, argument) in entry.params.iter().zip(&launch.arguments) {
        let place = &mut block[param.offset as usize..][..param.bytes as usize];
        match *argument {
            Argument::Buffer(index) => place.copy_from_slice(&addresses[index].to_le_bytes()),
            Argument::Word(word) => place.copy_from_slice(&word.to_le_bytes()),
            Argument::Float(float) => place.copy_from_slice(&float.to_le_bytes()),
        }
    }
    block
}

impl Prepared<'_> {
    /// Restores the inputs.
    pub fn reset(&self) -> anyhow::Result<()> {
        for (buffer, address) in self.case.buffers.iter().zip(&self.addresses) {
            let bytes = buffer.bytes();
            // SAFETY: the source is a slice of that length.
            unsafe { self.machine.memory.copy_in(*address, bytes.as_ptr(), bytes.len() as u64) }?;
        }
        Ok(())
    }

    pub fn run(&self, way: Way) -> anyhow::Result<()> {
        let cancel = AtomicBool::new(false);
        let options = RunOptions {
            threads: way.threads,
            cancel: &cancel,
            instructions_max: None,
            print: &|_| {},
            vector: way.vector,
            limits: RunLimits::default(),
        };
        for (entry, shape, params) in &self.launches {
            let config = LaunchConfig { grid: shape.grid, block: shape.block, shared_bytes: 0, params };
            launch(entry, &config, &self.machine.memory, &options)?;
        }
        Ok(())
    }

    /// Returns the contents of a buffer.
    pub fn result(&self, index: usize) -> anyhow::Result<Buffer> {
        let mut buffer = Buffer::zeroed(self.case.buffers[index].bytes().len());
        let bytes = buffer.bytes_mut();
        // SAFETY: the target is a slice of that length.
        unsafe { self.machine.memory.copy_out(bytes.as_mut_ptr(), self.addresses[index], bytes.len() as u64) }?;
        Ok(buffer)
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        for address in &self.addresses {
            self.machine.memory.free(*address).expect("nobody else frees the buffers");
        }
    }
}
