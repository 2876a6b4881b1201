//! A device with one loaded module, typed buffers, and launches.

use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::Fault;
use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch, launch_cooperative};

const MEMORY_BYTES: u64 = 256 << 20;

/// Instruction budget of a launch: far more than any check needs, so a kernel that does not end fails its test.
const INSTRUCTIONS_MAX: u64 = 400_000_000;

pub struct Device {
    memory: Arc<Memory>,
    module: Module,
    vector: bool,
    pub printed: Mutex<String>,
}

/// An array in the memory of a device.
pub struct Buffer<T> {
    pub address: u64,
    count: usize,
    element: PhantomData<T>,
}

/// A type that buffers contain.
pub trait Element: Copy + Default {}

/// A value that can be a kernel's argument.
pub trait Argument {
    fn bytes(&self) -> Vec<u8>;
}

macro_rules! plain {
    ($($t:ty),*) => {
        $(impl Element for $t {}
        impl Argument for $t {
            fn bytes(&self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        })*
    };
}

plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, u128, i128, half::f16, half::bf16);

impl<T> Argument for Buffer<T> {
    fn bytes(&self) -> Vec<u8> {
        self.address.to_le_bytes().to_vec()
    }
}

/// A structure, in the layout of C.
impl Argument for [u8] {
    fn bytes(&self) -> Vec<u8> {
        self.to_vec()
    }
}

/// Makes the arguments of a launch.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { &[$($crate::device::Argument::bytes(&$argument)),*] };
}
pub(crate) use args;

/// A number of blocks or threads in up to three dimensions.
pub trait Shape {
    fn shape(self) -> [u32; 3];
}

impl Shape for u32 {
    fn shape(self) -> [u32; 3] {
        [self, 1, 1]
    }
}

impl Shape for [u32; 2] {
    fn shape(self) -> [u32; 3] {
        [self[0], self[1], 1]
    }
}

impl Shape for [u32; 3] {
    fn shape(self) -> [u32; 3] {
        self
    }
}

impl Device {
    pub fn new(ptx: &str, capability: ComputeCapability, vector: bool, checks: Checks) -> Device {
        let memory = Arc::new(Memory::checked(MEMORY_BYTES, checks).unwrap());
        let module = Module::load(ptx, &memory, capability).unwrap_or_else(|error| panic!("{error}"));
        Device { memory, module, vector, printed: Mutex::default() }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Allocates exactly the bytes of the values and copies them there.
    pub fn upload<T: Element>(&self, values: &[T]) -> Buffer<T> {
        let address = self.memory.alloc(size_of_val(values) as u64).unwrap();
        self.write(address, values);
        Buffer { address, count: values.len(), element: PhantomData }
    }

    pub fn zeros<T: Element>(&self, count: usize) -> Buffer<T> {
        self.upload(&vec![T::default(); count])
    }

    pub fn download<T: Element>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut values = vec![T::default(); buffer.count];
        let bytes = size_of_val(values.as_slice()) as u64;
        // SAFETY: the vector is writable for its size, and every pattern of bits is an element.
        unsafe { self.memory.copy_out(values.as_mut_ptr().cast(), buffer.address, bytes).unwrap() };
        values
    }

    /// Sets a variable of the module.
    pub fn set<T: Element>(&self, name: &str, values: &[T]) {
        let (address, bytes) = self.module.global(name).unwrap();
        assert_eq!(bytes, size_of_val(values) as u64);
        self.write(address, values);
    }

    fn write<T: Element>(&self, address: u64, values: &[T]) {
        // SAFETY: the slice is readable for its size.
        unsafe { self.memory.copy_in(address, values.as_ptr().cast(), size_of_val(values) as u64).unwrap() };
    }

    pub fn run(&self, name: &str, blocks: impl Shape, threads: impl Shape, args: &[Vec<u8>]) {
        self.try_run(name, blocks, threads, 0, args).unwrap_or_else(|fault| panic!("{}", fault.report));
    }

    /// Runs a kernel like `run`, with blocks that may wait for each other.
    pub fn run_cooperative(&self, name: &str, blocks: impl Shape, threads: impl Shape, args: &[Vec<u8>]) {
        self.start(name, blocks, threads, 0, args, true).unwrap_or_else(|fault| panic!("{}", fault.report));
    }

    pub fn try_run(
        &self,
        name: &str,
        blocks: impl Shape,
        threads: impl Shape,
        shared_bytes: u32,
        args: &[Vec<u8>],
    ) -> Result<(), Fault> {
        self.start(name, blocks, threads, shared_bytes, args, false)
    }

    fn start(
        &self,
        name: &str,
        blocks: impl Shape,
        threads: impl Shape,
        shared_bytes: u32,
        args: &[Vec<u8>],
        cooperative: bool,
    ) -> Result<(), Fault> {
        let entry = self.module.entry(name).unwrap_or_else(|| panic!("there is no kernel `{name}`"));
        assert_eq!(entry.params.len(), args.len());
        let mut params = vec![0; entry.params_bytes as usize];
        for (param, arg) in entry.params.iter().zip(args) {
            assert_eq!(param.bytes as usize, arg.len(), "a parameter of `{name}`");
            params[param.offset as usize..][..arg.len()].copy_from_slice(arg);
        }
        let cancel = AtomicBool::new(false);
        let print = |text: &[u8]| self.printed.lock().unwrap().push_str(&String::from_utf8_lossy(text));
        let options = RunOptions {
            threads: 2,
            cancel: &cancel,
            instructions_max: Some(INSTRUCTIONS_MAX),
            print: &print,
            vector: self.vector,
            limits: RunLimits::default(),
        };
        let config = LaunchConfig { grid: blocks.shape(), block: threads.shape(), shared_bytes, params: &params };
        let run = if cooperative { launch_cooperative } else { launch };
        run(&entry, &config, &self.memory, &options)
    }

    pub fn take_printed(&self) -> String {
        std::mem::take(&mut self.printed.lock().unwrap())
    }
}
