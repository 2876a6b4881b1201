//! Measures the cost of CUDA C: compiling, reading from the disk cache, and reading from memory.

use std::{
    env, fs,
    path::Path,
    time::{Duration, Instant},
};

use super::short;
use crate::{
    compiler::{CompileError, CompileRequest, Compiler, Found, ProgramOrigin, ProgramStore},
    executor::DeviceInfo,
};

const CODE: &str = "extern \"C\" __global__ void selftest(float* x, unsigned n) {\n    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n    \
     if (i < n) x[i] = sqrtf(x[i]) + 1.0f;\n}\n";
/// Number of repetitions; enough for a stable median.
const WARM: usize = 1000;
/// Maximum size of the disk cache, in bytes: many times the size of this program.
const STORE_BYTES: u64 = 16 << 20;

/// Prints the measurement, or the reason why there is none: without NVRTC, a worker still runs all jobs without CUDA C.
pub(super) async fn print(device: &DeviceInfo) {
    let folder = env::temp_dir().join(format!("gpufleet-selftest-{}", std::process::id()));
    match measure(device, &folder).await {
        Ok(line) => println!("  {line}"),
        Err(reason) => println!("  CUDA C: not measured, {reason}"),
    }
    // If the folder could not be created, there is nothing to remove.
    drop(fs::remove_dir_all(folder));
}

async fn measure(device: &DeviceInfo, folder: &Path) -> Result<String, String> {
    let worker = || ProgramStore::open(folder, STORE_BYTES).map(|store| Compiler::new(None).with_store(Some(store)));
    let (first, second) = (worker().map_err(|error| error.to_string())?, worker().map_err(|error| error.to_string())?);
    for compiler in [&first, &second] {
        compiler.prepare().await;
    }
    let cold = timed(&first, device, ProgramOrigin::Compiler).await?;
    let on_disk = timed(&second, device, ProgramOrigin::Disk).await?;
    let mut warm = Vec::with_capacity(WARM);
    for _ in 0..WARM {
        warm.push(timed(&second, device, ProgramOrigin::Memory).await?);
    }
    warm.sort_unstable();
    Ok(format!(
        "CUDA C: compiled in {}, from the disk cache in {}, from the memory cache in {} (p50 of {WARM})",
        short(cold),
        short(on_disk),
        short(warm[WARM / 2])
    ))
}

async fn timed(compiler: &Compiler, device: &DeviceInfo, wanted: ProgramOrigin) -> Result<Duration, String> {
    let request = CompileRequest {
        code: CODE.to_owned(),
        options: Vec::new(),
        expressions: Vec::new(),
        target: device.target(),
        nvrtc: None,
    };
    let started = Instant::now();
    let found: Result<Found, CompileError> = compiler.compile(request).await;
    let took = started.elapsed();
    match found {
        Ok(found) if found.origin == wanted => Ok(took),
        Ok(found) => Err(format!("failed to find the program in {wanted:?}: it came from {:?}", found.origin)),
        Err(error) => Err(error.to_string()),
    }
}
