//! Diverging lanes: they meet in functions, and none of them is starved.

use gpufleet_emulator::checks::Checks;
use gpufleet_emulator::module::ComputeCapability;

use super::builds::{EVERY, check, study};
use super::device::{Device, args};
use super::nvrtc::compile;

const LANES: &str = include_str!("../../cases/study/lanes.cu");
const ALIGNMENT: &str = include_str!("../../cases/study/alignment.cu");

#[test]
fn lanes_meet_in_functions_that_they_enter_at_different_times() {
    study("lanes.cu", LANES, |device, _| {
        for m in [0, 8, 100] {
            for kernel in ["called", "plain", "barrier"] {
                let out = device.zeros::<i32>(32);
                device.run(kernel, 1, 32, args![out, m]);
                assert_eq!(device.download(&out), [496; 32], "{kernel} with {m}");
            }
        }
    });
}

#[test]
fn lanes_meet_in_functions_that_they_enter_from_different_places() {
    study("lanes.cu", LANES, |device, _| {
        for m in [0, 8, 100] {
            let out = device.zeros::<i32>(32);
            device.run("two_ways", 1, 32, args![out, m]);
            let expected: Vec<i32> = (0..32).map(|t| if t % 2 == 1 { 496 + t } else { 496 }).collect();
            assert_eq!(device.download(&out), expected, "with {m}");
            let out = device.zeros::<i32>(32);
            device.run("at_depths", 1, 32, args![out, m]);
            let expected: Vec<i32> = (0..32).map(|t| 496 + [0, 1, 3, 6][t % 4]).collect();
            assert_eq!(device.download(&out), expected, "with {m}");
            let out = device.zeros::<i32>(32);
            device.run("by_pointer", 1, 32, args![out, m]);
            assert_eq!(device.download(&out), (0..32).map(|t| 496 + t).collect::<Vec<i32>>(), "with {m}");
        }
    });
}

#[test]
fn lanes_that_spin_let_the_others_on() {
    study("lanes.cu", LANES, |device, _| {
        for threads in [2, 32] {
            for kernel in ["sleepy", "chain"] {
                let out = device.zeros::<i32>(threads);
                device.run(kernel, 1, threads as u32, args![out]);
                assert_eq!(device.download(&out), (1..=threads as i32).collect::<Vec<_>>(), "{kernel}");
            }
        }
        for kernel in ["spin", "depths"] {
            let out = device.zeros::<i32>(1);
            device.run(kernel, 1, 32, args![out]);
            device.run_cooperative(kernel, 1, 32, args![out]);
            assert_eq!(device.download(&out), [64], "{kernel}");
        }
    });
}

#[test]
fn blocks_may_wait_for_later_ones_of_those_that_a_device_runs_at_a_time() {
    check("lanes.cu", LANES, &[EVERY[0], EVERY[4]], |device, _| {
        for sleep in [0, 1] {
            let flags = device.zeros::<i32>(40);
            device.run("later", 40, 64, args![flags, sleep]);
            assert_eq!(device.download(&flags), [1; 40]);
        }
    });
}

#[test]
fn a_kernel_that_makes_no_progress_says_where_its_lanes_wait() {
    let ptx = compile(LANES, "lanes.cu", &["--gpu-architecture=compute_80", "-lineinfo"]).unwrap();
    let capability = ComputeCapability { major: 8, minor: 0 };
    let device = Device::new(&ptx, capability, true, Checks::default());
    // More blocks than the device runs at a time, so the first of them wait forever.
    let flags = device.zeros::<i32>(1000);
    let fault = device.try_run("later", 1000, 32, 0, args![flags, 0]).unwrap_err();
    let place = LANES.lines().position(|line| line.contains("while (!((volatile")).unwrap() + 1;
    assert!(fault.report.contains(&format!("lanes.cu:{place}")), "{}", fault.report);
    assert!(fault.report.contains("waiting at"), "{}", fault.report);
}

#[test]
fn shared_and_local_memory_is_aligned_as_declared() {
    study("alignment.cu", ALIGNMENT, |device, _| {
        let values: Vec<u32> = (0..256u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let out = device.zeros::<u32>(257);
        device.try_run("swizzle", 1, 256, 2048, args![device.upload(&values), out]).unwrap();
        assert_eq!(device.download(&out), [values.as_slice(), &[777]].concat());
        let out = device.zeros::<i32>(64);
        device.run("local_rows", 1, 64, args![out]);
        assert_eq!(device.download(&out), (0..64).map(|t| t + t % 16).collect::<Vec<i32>>());
    });
}
