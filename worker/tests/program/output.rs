//! Output of any length passes through bounded memory, and waits for a supervisor that does not read.

use std::{fs, time::Duration};

use gpufleet_worker::program::HostEvent;

use crate::harness::{Work, next, poll_until, rest};

const OUTPUT_BYTES: u64 = 200 << 20;
const MEMORY_KIB_MAX: u64 = 64 << 10;

/// Returns the most memory that a process has had, in KiB.
fn peak_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_takes_little_memory() {
    let work = Work::sh(&format!("head -c {OUTPUT_BYTES} /dev/zero; read -r x < /dev/tty; sleep 1000"));
    let mut process = work.start().await;
    let mut bytes = 0;
    while bytes < OUTPUT_BYTES {
        match next(&mut process).await {
            HostEvent::Started => {}
            HostEvent::Output(piece) => {
                assert!(piece.len() <= 64 << 10);
                bytes += piece.len() as u64;
            }
            other => panic!("the output is not complete: {bytes}, {other:?}"),
        }
    }
    // The program still runs, and so does its guard.
    let peak = peak_memory(process.pid()).unwrap();
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB");
    process.stop(Duration::ZERO).await;
    let run = rest(&mut process).await;
    assert!(run.signal().is_some(), "{run:?}");
    assert!(fs::metadata(work.in_folder("log")).unwrap().len() >= OUTPUT_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_waits_for_a_supervisor_that_does_not_read_and_can_be_stopped() {
    let work = Work::new(&["yes", "a line that is repeated"]);
    let mut process = work.start().await;
    let log = work.in_folder("log");
    let size = || fs::metadata(&log).map_or(0, |found| found.len());
    let (mut last, mut unchanged) = (0, 0);
    poll_until("the program waits", || {
        let now = size();
        unchanged = if now == last && now > 0 { unchanged + 1 } else { 0 };
        last = now;
        unchanged > 60
    })
    .await;
    assert!(last < 4 << 20, "{last}");
    process.stop(Duration::ZERO).await;
    let run = rest(&mut process).await;
    assert!(run.signal().is_some(), "{:?}", run.last);
    let HostEvent::Ended { log_bytes, log_dropped_bytes: 0, .. } = run.last else { panic!("{:?}", run.last) };
    assert_eq!((log_bytes, run.output.len() as u64), (size(), size()), "nothing is lost");
}
