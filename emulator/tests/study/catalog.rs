//! Every kernel of the catalog, compiled from its source and run on its samples.

use std::collections::HashMap;

use gpufleet_kernels::sample::{Sample, compare, samples};
use gpufleet_kernels::{Tolerance, catalog, resolve};
use gpufleet_schema::{Arg, Block, Buffer, Data, Dtype, Grid, Number, Task};

use super::builds::{Build, EVERY, check};
use super::device::{self, Device};

/// Threads of a block if a launch leaves it open.
const THREADS: u32 = 256;

/// Tolerance for fast math. Fast functions are accurate to about 2^-21, and some kernels subtract two such results or
/// add up many. Relative to the largest values, CUDA's error tables allow a few in 10^4.
const FAST: Tolerance = Tolerance { ulp: 64, abs: 2e-3, rel: 2e-4 };

macro_rules! kernels {
    ($($test:ident: $name:literal;)*) => { $(#[test] fn $test() { kernel($name); })* };
}

kernels! {
    black_scholes_is_right_from_its_source: "black_scholes";
    convolve_2d_is_right_from_its_source: "convolve_2d";
    histogram_is_right_from_its_source: "histogram";
    mandelbrot_is_right_from_its_source: "mandelbrot";
    matmul_tiled_is_right_from_its_source: "matmul_tiled";
    monte_carlo_pi_is_right_from_its_source: "monte_carlo_pi";
    nbody_step_is_right_from_its_source: "nbody_step";
    reduce_sum_is_right_from_its_source: "reduce_sum";
    saxpy_is_right_from_its_source: "saxpy";
    scan_inclusive_is_right_from_its_source: "scan_inclusive";
    sobel_is_right_from_its_source: "sobel";
    transpose_is_right_from_its_source: "transpose";
    vector_add_is_right_from_its_source: "vector_add";
}

#[test]
fn no_kernel_of_the_catalog_is_left_out() {
    let text = include_str!("catalog.rs");
    assert!(catalog().iter().all(|kernel| text.contains(&format!(": \"{}\";", kernel.name))));
}

fn kernel(name: &str) {
    let source = catalog().get(name).unwrap().source();
    let file = format!("{name}.cu");
    check(&file, source, &EVERY, |device, build| samples(name).iter().for_each(|sample| run(device, build, sample)));
}

fn run(device: &Device, build: &Build, sample: &Sample) {
    let task = resolve(sample.task.clone()).unwrap();
    let buffers: HashMap<&str, _> =
        task.buffers.iter().map(|buffer| (buffer.name.as_str(), device.upload(&contents(buffer)))).collect();
    launch(device, &task, |name| buffers[name].address);
    for expected in &sample.expected {
        let mut expected = expected.clone();
        if build.fast && matches!(expected.dtype, Dtype::F32) {
            expected.tolerance = FAST;
        }
        let got = device.download(&buffers[expected.name.as_str()]);
        compare(&expected, &got).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

fn contents(buffer: &Buffer) -> Vec<u8> {
    let bytes = buffer.bytes().unwrap() as usize;
    match &buffer.data {
        Data::Zeros => vec![0; bytes],
        Data::Fill(number) => encoded(*number, buffer.dtype).repeat(bytes / buffer.dtype.size()),
        Data::Inline(inline) => inline.resolve(buffer.dtype).unwrap().into_owned(),
        Data::Blob(_) | Data::Output(_) => panic!("the catalog's samples carry their bytes"),
    }
}

fn encoded(number: Number, dtype: Dtype) -> Vec<u8> {
    let mut bytes = Vec::new();
    number.write(dtype, &mut bytes).unwrap();
    bytes
}

fn launch(device: &Device, task: &Task, address: impl Fn(&str) -> u64) {
    for launch in &task.launches {
        let dimensions = match &launch.grid {
            Grid::Cover(extents) => extents.len(),
            Grid::Blocks(blocks) => blocks.len(),
        };
        let block = match &launch.block {
            Block::Threads(threads) => three(threads),
            Block::Auto if dimensions > 1 => [32, THREADS / 32, 1],
            Block::Auto => [THREADS, 1, 1],
        };
        let grid = match &launch.grid {
            Grid::Blocks(blocks) => three(blocks),
            Grid::Cover(extents) => {
                let mut grid = [1; 3];
                for ((blocks, extent), threads) in grid.iter_mut().zip(extents).zip(block) {
                    *blocks = extent.div_ceil(threads.into()) as u32;
                }
                grid
            }
        };
        let args: Vec<Vec<u8>> = launch
            .args
            .iter()
            .map(|arg| match arg {
                Arg::Buffer(name) => device::Argument::bytes(&address(name)),
                Arg::Scalar(dtype, number) => encoded(*number, *dtype),
                Arg::BufferAt { .. } | Arg::Bytes { .. } | Arg::Progress(_) => {
                    unreachable!("no kernel of the catalog takes them")
                }
            })
            .collect();
        for _ in 0..launch.repeat {
            device
                .try_run(&launch.entry, grid, block, launch.shared_bytes, &args)
                .unwrap_or_else(|fault| panic!("{}", fault.report));
        }
    }
}

fn three(extents: &[u32]) -> [u32; 3] {
    let mut all = [1; 3];
    all.iter_mut().zip(extents).for_each(|(to, from)| *to = *from);
    all
}
