//! Wall time and CPU time of this thread together. Other work on the machine disturbs the CPU time less.

use std::time::Instant;

/// Durations in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    pub wall: f64,
    pub cpu: f64,
}

/// Runs `work` and measures it, by this thread's CPU time and by the wall clock.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Time) {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let result = work();
    let cpu = thread_cpu() - cpu;
    (result, Time { wall: start.elapsed().as_secs_f64(), cpu })
}

/// Returns the CPU time of the calling thread in seconds.
fn thread_cpu() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes into the place that it is given.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(answer, 0, "every Linux has this clock");
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
