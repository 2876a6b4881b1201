//! A device with one loaded module, to which tests copy data and on which they launch kernels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::Fault;
use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, LoadError, Module};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch};

/// The kernels of `programs.cu`.
pub const PROGRAMS: &str = include_str!("../../cases/programs.ptx");

const MEMORY_BYTES: u64 = 64 << 20;

pub struct Device {
    pub memory: Arc<Memory>,
    pub module: Module,
    pub vector: bool,
    pub threads: usize,
    pub instructions_max: Option<u64>,
    pub limits: RunLimits<'static>,
    pub cancel: AtomicBool,
    pub printed: Mutex<String>,
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub enum Arg {
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
}

impl Device {
    pub fn new(ptx: &str) -> Device {
        Device::checked(ptx, Checks::default())
    }

    /// Makes a device with optional checks.
    pub fn checked(ptx: &str, checks: Checks) -> Device {
        let memory = Arc::new(Memory::checked(MEMORY_BYTES, checks).unwrap());
        // A text has only the instructions of its target.
        let ptx = ptx.replace(".target sm_80", ".target sm_90");
        let module = Module::load(&ptx, &memory, ComputeCapability { major: 9, minor: 0 }).unwrap();
        Device {
            memory,
            module,
            vector: true,
            threads: 2,
            instructions_max: Some(200_000_000),
            limits: RunLimits::default(),
            cancel: AtomicBool::new(false),
            printed: Mutex::new(String::new()),
        }
    }

    /// Loads a text; the error is the reason why it is refused.
    pub fn try_new(ptx: &str) -> Result<Module, LoadError> {
        let memory = Arc::new(Memory::new(MEMORY_BYTES).unwrap());
        Module::load(ptx, &memory, ComputeCapability { major: 8, minor: 6 })
    }

    pub fn programs() -> Device {
        Device::new(PROGRAMS)
    }

    /// Allocates exactly the bytes of the values and copies them there.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = size_of_val(values) as u64;
        let address = self.memory.alloc(bytes).unwrap();
        // SAFETY: the slice is readable for its size.
        unsafe { self.memory.copy_in(address, values.as_ptr().cast(), bytes).unwrap() };
        address
    }

    pub fn download<T: Copy + Default>(&self, address: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(values.as_slice()) as u64;
        // SAFETY: the vector is writable for its size.
        unsafe { self.memory.copy_out(values.as_mut_ptr().cast(), address, bytes).unwrap() };
        values
    }

    pub fn launch(&self, name: &str, grid: [u32; 3], block: [u32; 3], args: &[Arg]) -> Result<(), Fault> {
        self.launch_bytes(name, grid, block, 0, &self.params(name, args))
    }

    pub fn params(&self, name: &str, args: &[Arg]) -> Vec<u8> {
        let entry = self.module.entry(name).unwrap();
        assert_eq!(entry.params.len(), args.len());
        let mut bytes = vec![0; entry.params_bytes as usize];
        for (param, arg) in entry.params.iter().zip(args) {
            let value = match *arg {
                Arg::U32(value) => value.to_le_bytes().to_vec(),
                Arg::I32(value) => value.to_le_bytes().to_vec(),
                Arg::F32(value) => value.to_le_bytes().to_vec(),
                Arg::U64(value) => value.to_le_bytes().to_vec(),
            };
            assert_eq!(param.bytes as usize, value.len());
            bytes[param.offset as usize..][..value.len()].copy_from_slice(&value);
        }
        bytes
    }

    pub fn launch_bytes(
        &self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        params: &[u8],
    ) -> Result<(), Fault> {
        let print = |text: &[u8]| self.printed.lock().unwrap().push_str(&String::from_utf8_lossy(text));
        let options = RunOptions {
            threads: self.threads,
            cancel: &self.cancel,
            instructions_max: self.instructions_max,
            print: &print,
            vector: self.vector,
            limits: self.limits,
        };
        let entry = self.module.entry(name).unwrap();
        launch(&entry, &LaunchConfig { grid, block, shared_bytes, params }, &self.memory, &options)
    }

    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
}

/// Returns a module with one kernel `kernel` of the given body, whose only parameter is `out`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry kernel(.param .u64 out)\n{{\n\
         .reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<64>;\n.reg .b64 %d<64>;\n\
         ld.param.u64 %d0, [out];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\n{body}\nret;\n}}\n"
    )
}

/// Runs such a kernel in one block; returns what each thread wrote to its word of `out`.
pub fn words(body: &str, threads: u32) -> Vec<u32> {
    let device = Device::new(&kernel(body));
    let out = device.upload(&vec![0u32; threads as usize]);
    device.launch("kernel", [1; 3], [threads, 1, 1], &[Arg::U64(out)]).unwrap();
    device.download(out, threads as usize)
}

/// Returns the fault in which such a kernel ends.
pub fn fault(body: &str, threads: u32) -> Fault {
    let device = Device::new(&kernel(body));
    let out = device.upload(&vec![0u32; threads as usize]);
    device.launch("kernel", [1; 3], [threads, 1, 1], &[Arg::U64(out)]).unwrap_err()
}
