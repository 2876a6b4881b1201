//! Kernels with common mistakes, and whether the report names the line.

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::fault::Fault;
use gpufleet_emulator::module::ComputeCapability;

use super::device::{Device, args};
use super::nvrtc::compile;

const FILE: &str = "mistake.cu";
const CAPABILITY: ComputeCapability = ComputeCapability { major: 8, minor: 0 };
const ALL: Checks = Checks { races: true, uninitialised: true };

/// A kernel in which comments mark the lines that reports have to name.
const SUM: &str = r#"extern "C" __global__ void sum(const int* values, int* result) {
    __shared__ int partial[256];
    partial[threadIdx.x] = values[threadIdx.x];  // first
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] +=  // adds
            partial[threadIdx.x + half];
        __syncthreads();  // between
    }
    if (threadIdx.x == 0) result[0] = partial[0];  // last
}
"#;

/// Returns the line with a mark.
fn line(source: &str, mark: &str) -> String {
    let mark = format!("// {mark}");
    let line = source.lines().position(|line| line.ends_with(&mark)).expect("the source has the mark");
    format!("{FILE}:{}", line + 1)
}

/// Returns the faults of a kernel, compiled with line information and for the debugger.
fn faults(source: &str, run: impl Fn(&Device) -> Result<(), Fault>) -> Vec<String> {
    let fault = |mode: &&str| {
        let options = ["--gpu-architecture=compute_80", *mode];
        let ptx = compile(source, FILE, &options).unwrap_or_else(|log| panic!("{log}"));
        run(&Device::new(&ptx, CAPABILITY, true, ALL)).unwrap_err().report
    };
    ["-lineinfo", "-G"].iter().map(fault).collect()
}

fn sum(source: &str, result: usize) -> Vec<String> {
    let values: Vec<i32> = (0..256).collect();
    faults(source, |device| {
        let (values, result) = (device.upload(&values), device.zeros::<i32>(result));
        device.try_run("sum", 1, 256, 0, args![values, result])
    })
}

fn assert_names(report: &str, parts: &[&str]) {
    for part in parts {
        assert!(report.contains(part), "{part} is missing in: {report}");
    }
    assert!(report.lines().count() <= 6, "{report}");
}

#[test]
fn a_barrier_that_was_forgotten_is_found_with_both_lines() {
    let source = SUM.replace("__syncthreads();  // between", "// between");
    for report in sum(&source, 1) {
        assert_names(&report, &["race in shared memory", "kernel `sum`", "of shared memory", "into `partial`", FILE]);
        let named = [line(&source, "adds"), line(&source, "first")];
        let count = named.iter().map(|line| report.matches(line.as_str()).count()).sum::<usize>();
        assert!(count >= 1, "{report}");
    }
}

#[test]
fn shared_memory_that_was_not_filled_is_found() {
    let source = SUM.replace("partial[threadIdx.x] = values[threadIdx.x];  // first", "// first");
    for report in sum(&source, 1) {
        let place = line(&source, "adds");
        assert_names(&report, &["uninitialised bytes in shared memory", &place[..FILE.len()], "into `partial`"]);
    }
}

#[test]
fn a_result_without_room_is_found() {
    let source = SUM.replace("result[0] =", "result[1] =");
    for report in sum(&source, 1) {
        let place = line(&source, "last");
        assert_names(&report, &["illegal access of 4 bytes", &place, "directly past the end of the 4-byte allocation"]);
    }
}

#[test]
fn sound_code_has_no_findings() {
    let ptx = compile(SUM, FILE, &["--gpu-architecture=compute_80", "-lineinfo"]).unwrap();
    let device = Device::new(&ptx, CAPABILITY, true, ALL);
    let values: Vec<i32> = (0..256).collect();
    let (values, result) = (device.upload(&values), device.zeros::<i32>(1));
    device.try_run("sum", 1, 256, 0, args![values, result]).unwrap();
    assert_eq!(device.download(&result), [255 * 128]);
}
