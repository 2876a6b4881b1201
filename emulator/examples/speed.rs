//! How long some kernels take in the emulator and in plain Rust on one thread, in milliseconds:
//! `cargo run --release -p gpufleet-emulator --example speed`

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};
use gpufleet_emulator::simt::{LaunchConfig, RunOptions, launch};

const PROGRAMS: &str = include_str!("../cases/programs.ptx");
const MEMORY_BYTES: u64 = 1 << 30;
/// Each figure is the best of so many.
const ROUNDS: usize = 5;
const ELEMENTS: u32 = 16 << 20;
const SIDE: u32 = 512;
const LIMIT: u32 = 256;

struct Bench {
    memory: Arc<Memory>,
    module: Module,
}

impl Bench {
    fn buffer(&self, words: u32) -> u64 {
        let address = self.memory.alloc(u64::from(words) * 4).expect("the memory is large enough");
        self.memory.fill32(address, 1f32.to_bits(), words.into()).expect("allocated just now");
        address
    }

    fn run(&self, name: &str, grid: [u32; 3], block: [u32; 3], words: &[&[u8]], native: impl Fn()) {
        let entry = self.module.entry(name).expect("a kernel of the programs");
        let mut params = vec![0; entry.params_bytes as usize];
        for (param, bytes) in entry.params.iter().zip(words) {
            params[param.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let cancel = AtomicBool::new(false);
        let emulated = |vector, threads| {
            let options = RunOptions { threads, cancel: &cancel, instructions_max: None, print: &|_| {}, vector };
            let config = LaunchConfig { grid, block, shared_bytes: 0, params: &params };
            best(|| launch(&entry, &config, &self.memory, &options).expect("the kernel has no fault"))
        };
        println!(
            "{name:<12} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
            emulated(true, 1),
            emulated(true, 2),
            emulated(false, 1),
            best(native)
        );
    }
}

fn best(work: impl Fn()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Arc::new(Memory::new(MEMORY_BYTES)?);
    let module = Module::load(PROGRAMS, &memory, ComputeCapability { major: 8, minor: 0 })?;
    let bench = Bench { memory, module };
    println!("{:<12} {:>9} {:>9} {:>9} {:>9}", "kernel", "vector", "2 threads", "portable", "rust");
    let (x, y) = (bench.buffer(ELEMENTS), bench.buffer(ELEMENTS));
    let (a, x_at, y_at, n) = (2f32.to_le_bytes(), x.to_le_bytes(), y.to_le_bytes(), ELEMENTS.to_le_bytes());
    let args: [&[u8]; 4] = [&a, &x_at, &y_at, &n];
    let ones = vec![1f32; ELEMENTS as usize];
    bench.run("scale_add", [ELEMENTS / 256, 1, 1], [256, 1, 1], &args, || {
        let sum: Vec<f32> = ones.iter().zip(&ones).map(|(x, y)| 2f32.mul_add(*x, *y)).collect();
        black_box(sum);
    });
    let one = 1u32.to_le_bytes();
    bench.run("scale_add", [1, 1, 1], [32, 1, 1], &[&a, &x_at, &y_at, &one], || {});
    let side = SIDE.to_le_bytes();
    let args: [&[u8]; 4] = [&x_at, &x_at, &y_at, &side];
    bench.run("matmul", [SIDE / 16, SIDE / 16, 1], [16, 16, 1], &args, || {
        let n = SIDE as usize;
        let mut product = vec![0f32; n * n];
        for (i, row) in product.chunks_mut(n).enumerate() {
            for k in 0..n {
                let factor = ones[i * n + k];
                row.iter_mut().zip(&ones[k * n..]).for_each(|(sum, b)| *sum += factor * b);
            }
        }
        black_box(product);
    });
    let (width, limit) = (1024u32.to_le_bytes(), LIMIT.to_le_bytes());
    bench.run("mandelbrot", [64, 64, 1], [16, 16, 1], &[&y_at, &width, &width, &limit], || {
        let steps = |px: u32, py: u32| {
            let (cx, cy) = (3.0 * px as f32 / 1024.0 - 2.0, 3.0 * py as f32 / 1024.0 - 1.5);
            let (mut x, mut y, mut count) = (0f32, 0f32, 0u32);
            while count < LIMIT && x * x + y * y < 4.0 {
                (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
                count += 1;
            }
            count
        };
        black_box((0..1024 * 1024).map(|i| steps(i % 1024, i / 1024)).collect::<Vec<_>>());
    });
    Ok(())
}
