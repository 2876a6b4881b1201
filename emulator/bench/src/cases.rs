//! The measured cases: kernels with inputs and launches, and the plain kernel that does equal work.

use gpufleet_bench_plain::Span;
use gpufleet_bench_plain::array::SAXPY_FACTOR;
use gpufleet_bench_plain::simulation::{RATE, SEED, SOFTENING, STEPS_MAX, VOLATILITY};

/// One kernel, or a few that belong together.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub size: String,
    /// Initial contents of the buffers for every run.
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Symbol of the plain kernel, its buffers, and its two numbers. For some kernels the second number selects a loop
    /// order.
    pub plain: &'static str,
    pub plain_buffers: Vec<usize>,
    pub plain_numbers: [u32; 2],
    /// The two numbers for the vectorised build, which differ if another loop order vectorises better.
    pub vectorised_numbers: [u32; 2],
    /// The buffers whose results have to agree.
    pub results: Vec<(usize, Likeness)>,
}

#[derive(Debug)]
pub struct Launch {
    pub kernel: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone, Copy)]
pub enum Argument {
    Buffer(usize),
    Word(u32),
    Float(f32),
}

/// Allowed difference between two results.
#[derive(Debug, Clone, Copy)]
pub enum Likeness {
    Bits,
    /// Maximum error of floats: relative to the plain result, or absolute if that is below one.
    Near(f32),
}

/// Bytes that are aligned to a cache line.
#[derive(Debug, Clone)]
pub struct Buffer {
    lines: Vec<[u64; 8]>,
    bytes: usize,
}

impl Buffer {
    pub fn zeroed(bytes: usize) -> Buffer {
        Buffer { lines: vec![[0; 8]; bytes.div_ceil(64)], bytes }
    }

    fn of_words(words: impl ExactSizeIterator<Item = u32>) -> Buffer {
        let mut buffer = Buffer::zeroed(words.len() * 4);
        for (place, word) in buffer.bytes_mut().chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        buffer
    }

    fn of_floats(floats: impl ExactSizeIterator<Item = f32>) -> Buffer {
        Buffer::of_words(floats.map(f32::to_bits))
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the lines contain at least this many bytes, and any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.bytes) }
    }

    pub fn span(&mut self) -> Span {
        Span { start: self.bytes_mut().as_mut_ptr(), bytes: self.bytes }
    }
}

/// A linear congruential generator (Knuth), equal in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.word() >> 8) as f32 / 16_777_216.0
    }

    fn floats(&mut self, count: usize, low: f32, high: f32) -> Buffer {
        let floats: Vec<f32> = (0..count).map(|_| self.between(low, high)).collect();
        Buffer::of_floats(floats.into_iter())
    }
}

/// Sizes of the cases.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub elements: u32,
    /// Side of the matrices that are multiplied; transposed matrices have four times that.
    pub side: u32,
    pub bodies: u32,
    pub picture_side: u32,
}

/// Sizes for measurements: long enough to be timed, short enough to be repeated.
pub const MEASURED: Sizes = Sizes { elements: 1 << 21, side: 256, bodies: 2048, picture_side: 512 };

pub fn all(sizes: Sizes) -> Vec<Case> {
    let mut random = Random(1);
    let Sizes { elements, side, bodies, picture_side } = sizes;
    vec![
        saxpy(&mut random, elements),
        saxpy_float4(&mut random, elements),
        multiply(&mut random, "matmul_naive", side),
        multiply(&mut random, "matmul_tiled", side),
        multiply_halves(&mut random, "matmul_mma", side, 64),
        multiply_halves(&mut random, "matmul_wmma", side, 32),
        reduce(&mut random, elements),
        scan(&mut random, elements / 2),
        histogram(&mut random, elements),
        transpose(&mut random, 4 * side),
        nbody(&mut random, bodies),
        mandelbrot(picture_side),
        philox_pi(elements / 128, 8),
        black_scholes(&mut random, elements / 32),
    ]
}

fn saxpy(random: &mut Random, n: u32) -> Case {
    Case {
        name: "saxpy",
        size: format!("{n} floats"),
        buffers: vec![random.floats(n as usize, -1.0, 1.0), random.floats(n as usize, -1.0, 1.0)],
        launches: vec![Launch {
            kernel: "saxpy",
            grid: [n.div_ceil(256), 1, 1],
            block: [256, 1, 1],
            arguments: vec![Argument::Float(SAXPY_FACTOR), Argument::Buffer(0), Argument::Buffer(1), Argument::Word(n)],
        }],
        plain: "plain_saxpy",
        plain_buffers: vec![0, 1],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        results: vec![(1, Likeness::Bits)],
    }
}

/// The saxpy case with four elements per thread.
fn saxpy_float4(random: &mut Random, n: u32) -> Case {
    let mut case = saxpy(random, n);
    case.name = "saxpy float4";
    let launch = &mut case.launches[0];
    (launch.kernel, launch.grid) = ("saxpy_float4", [n / 4096, 1, 1]);
    launch.arguments[3] = Argument::Word(n / 4);
    case
}

fn multiply(random: &mut Random, kernel: &'static str, n: u32) -> Case {
    let elements = (n * n) as usize;
    let mut arguments = [0, 1, 2].map(Argument::Buffer).to_vec();
    arguments.push(Argument::Word(n));
    Case {
        name: kernel,
        size: format!("{n} x {n} floats"),
        buffers: vec![
            random.floats(elements, -1.0, 1.0),
            random.floats(elements, -1.0, 1.0),
            Buffer::zeroed(elements * 4),
        ],
        launches: vec![Launch { kernel, grid: [n.div_ceil(16), n.div_ceil(16), 1], block: [16, 16, 1], arguments }],
        plain: "plain_multiply",
        plain_buffers: vec![0, 1, 2],
        plain_numbers: [n, 0],
        vectorised_numbers: [n, 1],
        results: vec![(2, Likeness::Bits)],
    }
}

/// Multiples of 1/16, whose products and sums are exact in a float, so that the order of additions does not matter. A
/// block computes a tile of `tile` by `tile` elements.
fn multiply_halves(random: &mut Random, kernel: &'static str, n: u32, tile: u32) -> Case {
    let mut halves = || {
        let pairs = (0..n * n / 2).map(|_| [random.word() % 33, random.word() % 33].map(sixteenths));
        let words: Vec<u32> = pairs.map(|[low, high]| u32::from(low) | u32::from(high) << 16).collect();
        Buffer::of_words(words.into_iter())
    };
    let mut arguments = [0, 1, 2].map(Argument::Buffer).to_vec();
    arguments.push(Argument::Word(n));
    Case {
        name: kernel,
        size: format!("{n} x {n} halves"),
        buffers: vec![halves(), halves(), Buffer::zeroed((n * n) as usize * 4)],
        launches: vec![Launch { kernel, grid: [n / tile, n / tile, 1], block: [128, 1, 1], arguments }],
        plain: "plain_multiply_halves",
        plain_buffers: vec![0, 1, 2],
        plain_numbers: [n, 0],
        vectorised_numbers: [n, 1],
        results: vec![(2, Likeness::Bits)],
    }
}

/// Returns the bits of the half `(count - 16) / 16`, for `count` up to 32.
fn sixteenths(count: u32) -> u16 {
    let value = (count as f32 - 16.0) / 16.0;
    // An f32 has 13 more bits of fraction, and its exponent bias is 112 larger.
    let magnitude = (value.abs().to_bits() >> 13).saturating_sub(112 << 10);
    (magnitude | (value.to_bits() >> 16 & 0x8000)) as u16
}

/// Integers whose sum is exact in a float, so that the order of additions does not matter.
fn reduce(random: &mut Random, n: u32) -> Case {
    const BLOCKS: u32 = 256;
    let values = (0..n).map(|_| (random.word() >> 30) as f32).collect::<Vec<_>>().into_iter();
    let launch = |from, to, n, blocks| Launch {
        kernel: "reduce",
        grid: [blocks, 1, 1],
        block: [256, 1, 1],
        arguments: vec![Argument::Buffer(from), Argument::Buffer(to), Argument::Word(n)],
    };
    Case {
        name: "reduce",
        size: format!("{n} floats"),
        buffers: vec![Buffer::of_floats(values), Buffer::zeroed(4), Buffer::zeroed(BLOCKS as usize * 4)],
        launches: vec![launch(0, 2, n, BLOCKS), launch(2, 1, BLOCKS, 1)],
        plain: "plain_reduce",
        plain_buffers: vec![0, 1],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        results: vec![(1, Likeness::Bits)],
    }
}

fn scan(random: &mut Random, n: u32) -> Case {
    let tiles = n / 4096;
    let values = (0..n).map(|_| random.word()).collect::<Vec<_>>().into_iter();
    let launch = |kernel, blocks, arguments| Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments };
    let both = vec![Argument::Buffer(0), Argument::Buffer(1)];
    Case {
        name: "scan",
        size: format!("{n} words"),
        buffers: vec![Buffer::of_words(values), Buffer::zeroed(tiles as usize * 4)],
        launches: vec![
            launch("scan_tiles", tiles, both.clone()),
            launch("scan_sums", 1, vec![Argument::Buffer(1), Argument::Word(tiles)]),
            launch("scan_add", tiles, both),
        ],
        plain: "plain_scan",
        plain_buffers: vec![0],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        results: vec![(0, Likeness::Bits)],
    }
}

fn histogram(random: &mut Random, n: u32) -> Case {
    let data = (0..n / 4).map(|_| random.word()).collect::<Vec<_>>().into_iter();
    Case {
        name: "histogram",
        size: format!("{n} bytes"),
        buffers: vec![Buffer::of_words(data), Buffer::zeroed(1024)],
        launches: vec![Launch {
            kernel: "histogram",
            grid: [256, 1, 1],
            block: [256, 1, 1],
            arguments: vec![Argument::Buffer(0), Argument::Buffer(1), Argument::Word(n)],
        }],
        plain: "plain_histogram",
        plain_buffers: vec![0, 1],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        results: vec![(1, Likeness::Bits)],
    }
}

fn transpose(random: &mut Random, n: u32) -> Case {
    let elements = (n * n) as usize;
    Case {
        name: "transpose",
        size: format!("{n} x {n} floats"),
        buffers: vec![random.floats(elements, -1.0, 1.0), Buffer::zeroed(elements * 4)],
        launches: vec![Launch {
            kernel: "transpose",
            grid: [n.div_ceil(32), n.div_ceil(32), 1],
            block: [32, 8, 1],
            arguments: vec![Argument::Buffer(0), Argument::Buffer(1), Argument::Word(n)],
        }],
        plain: "plain_transpose",
        plain_buffers: vec![0, 1],
        plain_numbers: [n, 0],
        vectorised_numbers: [n, 0],
        results: vec![(1, Likeness::Bits)],
    }
}

fn nbody(random: &mut Random, n: u32) -> Case {
    Case {
        name: "n-body",
        size: format!("{n} bodies"),
        buffers: vec![random.floats(n as usize * 4, 0.1, 1.0), Buffer::zeroed(n as usize * 16)],
        launches: vec![Launch {
            kernel: "nbody",
            grid: [n / 128, 1, 1],
            block: [128, 1, 1],
            arguments: vec![Argument::Buffer(0), Argument::Buffer(1), Argument::Float(SOFTENING), Argument::Word(n)],
        }],
        plain: "plain_nbody",
        plain_buffers: vec![0, 1],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        // The kernel's square root is approximate, and pulls from opposite sides cancel.
        results: vec![(1, Likeness::Near(1e-4))],
    }
}

fn mandelbrot(side: u32) -> Case {
    Case {
        name: "mandelbrot",
        size: format!("{side} x {side}, {STEPS_MAX} steps"),
        buffers: vec![Buffer::zeroed((side * side) as usize * 4)],
        launches: vec![Launch {
            kernel: "mandelbrot",
            grid: [side / 16, side / 16, 1],
            block: [16, 16, 1],
            arguments: vec![Argument::Buffer(0), Argument::Word(side), Argument::Word(side), Argument::Word(STEPS_MAX)],
        }],
        plain: "plain_mandelbrot",
        plain_buffers: vec![0],
        plain_numbers: [side, 0],
        vectorised_numbers: [side, 0],
        results: vec![(0, Likeness::Bits)],
    }
}

fn philox_pi(threads: u32, rounds: u32) -> Case {
    Case {
        name: "Philox pi",
        size: format!("{} points", threads * rounds * 2),
        buffers: vec![Buffer::zeroed(8)],
        launches: vec![Launch {
            kernel: "philox_pi",
            grid: [threads / 256, 1, 1],
            block: [256, 1, 1],
            arguments: vec![Argument::Buffer(0), Argument::Word(SEED), Argument::Word(rounds)],
        }],
        plain: "plain_philox_pi",
        plain_buffers: vec![0],
        plain_numbers: [threads, rounds],
        vectorised_numbers: [threads, rounds],
        results: vec![(0, Likeness::Bits)],
    }
}

fn black_scholes(random: &mut Random, n: u32) -> Case {
    let count = n as usize;
    let mut arguments = [0, 1, 2, 3, 4].map(Argument::Buffer).to_vec();
    arguments.extend([Argument::Float(RATE), Argument::Float(VOLATILITY), Argument::Word(n)]);
    Case {
        name: "Black-Scholes",
        size: format!("{n} options"),
        buffers: vec![
            random.floats(count, 5.0, 30.0),
            random.floats(count, 1.0, 100.0),
            random.floats(count, 0.25, 10.0),
            Buffer::zeroed(count * 4),
            Buffer::zeroed(count * 4),
        ],
        launches: vec![Launch {
            kernel: "black_scholes",
            grid: [n.div_ceil(256), 1, 1],
            block: [256, 1, 1],
            arguments,
        }],
        plain: "plain_black_scholes",
        plain_buffers: vec![0, 1, 2, 3, 4],
        plain_numbers: [0; 2],
        vectorised_numbers: [0; 2],
        // Prices are differences of numbers up to a hundred, each with a rounding error.
        results: vec![(3, Likeness::Near(1e-4)), (4, Likeness::Near(1e-4))],
    }
}
