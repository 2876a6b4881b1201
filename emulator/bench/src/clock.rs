//! Two clocks at a time: the wall's, and the CPU's as this thread used it. Other work on the machine disturbs the second less.

use std::time::Instant;

/// How long something took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    pub wall: f64,
    pub cpu: f64,
}

/// Runs `work` and says how long it took, on this thread and by the wall.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Time) {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let result = work();
    let cpu = thread_cpu() - cpu;
    (result, Time { wall: start.elapsed().as_secs_f64(), cpu })
}

/// Seconds of CPU that the calling thread has used.
fn thread_cpu() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes into the place that it is given.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(answer, 0, "every Linux has this clock");
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
