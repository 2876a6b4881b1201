//! The ways in which sources are compiled, and the function that checks all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::module::ComputeCapability;

use super::device::Device;
use super::nvrtc::compile;

/// One way to compile, and the compute capability that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub options: &'static [&'static str],
    pub capability: ComputeCapability,
    /// True if approximations replace exact functions, and subnormals are flushed.
    pub fast: bool,
}

const fn build(major: u32, minor: u32, fast: bool, options: &'static [&'static str]) -> Build {
    Build { options, capability: ComputeCapability { major, minor }, fast }
}

/// Builds under which every source is checked.
pub const EVERY: [Build; 7] = [
    build(8, 0, false, &["--gpu-architecture=compute_80"]),
    build(9, 0, false, &["--gpu-architecture=compute_90"]),
    build(8, 0, true, &["--gpu-architecture=compute_80", "--use_fast_math"]),
    build(9, 0, true, &["--gpu-architecture=compute_90", "--use_fast_math"]),
    build(8, 0, false, &["--gpu-architecture=compute_80", "-G"]),
    build(9, 0, false, &["--gpu-architecture=compute_90", "-G"]),
    build(8, 6, false, &["--gpu-architecture=compute_80", "-lineinfo"]),
];

/// Other options that change what NVRTC emits.
pub const OTHERS: [Build; 8] = [
    build(7, 5, false, &["--gpu-architecture=compute_75"]),
    build(8, 6, false, &["--gpu-architecture=compute_86", "--fmad=false"]),
    build(8, 9, false, &["--gpu-architecture=compute_89", "--std=c++20", "--device-int128"]),
    build(9, 0, false, &["--gpu-architecture=compute_90a", "--extra-device-vectorization"]),
    build(8, 0, true, &["--gpu-architecture=compute_80", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"]),
    build(8, 0, false, &["--gpu-architecture=compute_80", "-G", "--dopt=on"]),
    build(9, 0, true, &["--gpu-architecture=compute_90", "--use_fast_math", "-G"]),
    build(9, 0, false, &["--gpu-architecture=compute_90", "--relocatable-device-code=true"]),
];

/// Builds for sources whose headers take a second to read.
pub const HEAVY: [Build; 3] = [EVERY[0], EVERY[3], EVERY[4]];

/// Builds for 128-bit integers, which NVRTC supports on demand.
pub const WIDE: [Build; 3] = [
    build(8, 0, false, &["--gpu-architecture=compute_80", "--device-int128"]),
    build(9, 0, true, &["--gpu-architecture=compute_90", "--device-int128", "--use_fast_math"]),
    build(8, 0, false, &["--gpu-architecture=compute_80", "--device-int128", "-G"]),
];

impl Build {
    /// Returns the tolerance: `fast` if the options allow other roundings, otherwise `exact`.
    pub fn choose<T>(&self, exact: T, fast: T) -> T {
        if self.fast { fast } else { exact }
    }
}

/// Number of builds that also run without vector instructions and with all checks, which do not depend on options.
const THOROUGH: usize = 2;

/// Compiles `source` in each way and runs `check` on it. The first builds also run without vector instructions, and
/// with all checks, which must not find anything in correct kernels.
pub fn check(file: &str, source: &str, builds: &[Build], check: impl Fn(&Device, &Build)) {
    let passes = |index: usize, build: &Build| {
        let ptx = compile(source, file, build.options).unwrap_or_else(|log| panic!("{log}"));
        let none = Checks::default();
        // Without optimisation, setting a bit field reads its whole word, even if that is unwritten.
        let all = Checks { races: true, uninitialised: !build.options.contains(&"-G") };
        let runs = [(true, none), (false, none), (true, all)];
        for (vector, checks) in runs.into_iter().take(if index < THOROUGH { 3 } else { 1 }) {
            check(&Device::new(&ptx, build.capability, vector, checks), build);
        }
    };
    // Every build is tried, so that one run shows all failures.
    let fails = |(index, build): &(usize, &Build)| catch_unwind(AssertUnwindSafe(|| passes(*index, build))).is_err();
    let failed: Vec<String> =
        builds.iter().enumerate().filter(fails).map(|(_, build)| build.options.join(" ")).collect();
    assert!(failed.is_empty(), "{file} fails with:\n  {}", failed.join("\n  "));
}

/// Checks a study kernel in all builds.
pub fn study(file: &str, source: &str, run: impl Fn(&Device, &Build)) {
    study_since(0, file, source, run);
}

/// Checks a study kernel that needs a device of this major compute capability.
pub fn study_since(major: u32, file: &str, source: &str, run: impl Fn(&Device, &Build)) {
    let builds: Vec<Build> =
        EVERY.iter().chain(&OTHERS).filter(|build| build.capability.major >= major).copied().collect();
    check(file, source, &builds, run);
}
