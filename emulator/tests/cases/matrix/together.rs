//! Matrix instructions need the whole warp; otherwise the kernel ends with a report.

use gpufleet_emulator::fault::FaultKind;

use super::super::harness::Arg;
use super::{hopper, run, text};

const MOVE: &str = "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;";

#[test]
fn lanes_that_come_late_are_waited_for() {
    // Half of the lanes run a loop first.
    let body = format!(
        "mov.u32 %r1, %r150;\nsetp.lt.u32 %p1, %r150, 16;\nmov.u32 %r2, 0;\n@%p1 bra TOGETHER;\n\
         AGAIN:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 5000;\n@%p2 bra AGAIN;\n\
         TOGETHER:\n{MOVE}\nmad.wide.u32 %d63, %r150, 4, %d61;\nst.global.u32 [%d63], %r0;"
    );
    let mut out = vec![0; 32];
    run(&body, &[0], &mut out).unwrap();
    // The low elements are lane numbers in even columns, and zeros elsewhere.
    let want: Vec<u32> = (0..32)
        .map(|lane| {
            let (group, thread) = (lane / 4, lane % 4);
            let element = |row: u32| if group % 2 == 0 { row * 4 + group / 2 } else { 0 };
            element(thread * 2) | element(thread * 2 + 1) << 16
        })
        .collect();
    assert_eq!(out, want);
}

#[test]
fn a_warp_that_is_split_ends_with_a_report() {
    const SPLIT: &str = "setp.lt.u32 %p1, %r150, 16;\n@%p1";
    for (body, why) in [
        // The others run to their end meanwhile.
        (format!("{SPLIT} {MOVE}"), "with only 16 live threads"),
        (format!("{SPLIT} bra A;\n{MOVE}\nbra B;\nA:\n{MOVE}\nB:"), "waits for lanes"),
        (format!("{SPLIT} bra A;\nbar.sync 0;\nbra B;\nA:\n{MOVE}\nB:"), "waits for lanes"),
    ] {
        let fault = run(&body, &[0], &mut [0; 32]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::LaunchFailed);
        for part in [why, "`movmatrix.sync.aligned.m8n8.trans.b16`", "kernel `kernel`", "PTX line "] {
            assert!(fault.report.contains(part), "{part} is missing in: {}", fault.report);
        }
    }
}

#[test]
fn a_warp_that_lacks_threads_ends_with_a_report() {
    let fault = run(&format!("setp.eq.u32 %p1, %r150, 9;\n@%p1 exit;\n{MOVE}"), &[0], &mut [0; 32]).unwrap_err();
    assert!(fault.report.contains("with only 31 live threads"), "{}", fault.report);
    let device = hopper(&text(MOVE));
    let out = device.upload(&[0u32]);
    let args = [Arg::U64(out), Arg::U64(out)];
    device.launch("kernel", [1; 3], [64, 1, 1], &args).unwrap();
    let fault = device.launch("kernel", [1; 3], [48, 1, 1], &args).unwrap_err();
    assert!(fault.report.contains("with only 16 live threads"), "{}", fault.report);
    assert_eq!(fault.kind, FaultKind::LaunchFailed);
}
