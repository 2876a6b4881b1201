//! Test of the command that tests a device.

use std::process::Command;

use crate::harness::executable;

fn selftest(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(executable())
        .arg("selftest")
        .args(arguments)
        .output()
        .expect("the worker was built for this test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_emulated_device_passes_every_check_and_survives_its_faults() {
    let (code, out, err) = selftest(&["--cuda", "emulated"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for part in [
        "emulated",
        "saxpy",
        "kernel_fault: kernel write_nowhere",
        "time_limit",
        "p50",
        "from the memory cache",
        "0 failed",
    ] {
        assert!(out.contains(part), "{part:?} in {out}");
    }
    assert!(!out.contains("FAILED"), "{out}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let (code, _, err) = selftest(&["--cuda", "emulated", "--device", "9"]);
    assert_eq!(code, Some(10), "{err}");
    assert!(err.contains("device 9 does not exist; the driver reports 1"), "{err}");
}
