//! What a session has done so far. Other threads can read it while the session runs.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpufleet_surface::status::Status;

/// Counters of a session.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls that were begun. It is more than `calls` while one is being made.
    begun: AtomicU64,
    calls: AtomicU64,
    posts: AtomicU64,
    memory_bytes: AtomicU64,
    memory_bytes_peak: AtomicU64,
    busy: Mutex<Stopwatch>,
    /// The first code that made the context unusable; 0 if there is none.
    fault: AtomicI32,
}

/// The values of [`Counters`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that were made.
    pub calls: u64,
    /// Calls for whose answer the program waited.
    pub waits: u64,
    /// Device memory that the program has, in bytes.
    pub memory_bytes: u64,
    /// The most device memory that the program had after a call, in bytes.
    pub memory_bytes_peak: u64,
    /// Time in which the device worked for the program, in microseconds.
    pub busy_us: u64,
    /// A call is being made, or the device works.
    pub is_active: bool,
    /// The first code that made the context unusable; 0 if there is none. [`fault_name`] returns its name.
    pub fault: i32,
}

impl Counters {
    pub fn read(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Other threads go on counting, so the counters that count last are read first.
        let (posts, calls, begun) = (load(&self.posts), load(&self.calls), load(&self.begun));
        let busy = self.busy();
        Counts {
            calls,
            waits: calls.saturating_sub(posts),
            memory_bytes: load(&self.memory_bytes),
            memory_bytes_peak: load(&self.memory_bytes_peak),
            busy_us: busy.read(Instant::now()).as_micros() as u64,
            is_active: begun > calls || busy.since.is_some(),
            fault: self.fault.load(Ordering::Relaxed),
        }
    }

    /// A call is about to be made.
    pub(crate) fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The call was made, with this code.
    pub(crate) fn made(&self, is_post: bool, code: i32) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if is_post {
            self.posts.fetch_add(1, Ordering::Relaxed);
        }
        if fault_name(code).is_some() {
            // Every later call fails with the same code.
            let _ = self.fault.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The program has this much device memory now.
    pub(crate) fn memory(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
        self.memory_bytes_peak.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The device works from now on, or no longer.
    pub(crate) fn works(&self, is_working: bool) {
        self.busy().turn(is_working, Instant::now());
    }

    fn busy(&self) -> MutexGuard<'_, Stopwatch> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a code after which the context is unusable until the process ends, because of a kernel.
pub fn fault_name(code: i32) -> Option<&'static str> {
    let status = Status::from_code(code)?;
    let is_fault = matches!(
        status,
        Status::IllegalAddress
            | Status::LaunchTimeout
            | Status::Assert
            | Status::HardwareStackError
            | Status::IllegalInstruction
            | Status::MisalignedAddress
            | Status::InvalidAddressSpace
            | Status::InvalidPc
            | Status::LaunchFailed
    );
    status.name().to_str().ok().filter(|_| is_fault)
}

/// Adds up the time in which something goes on.
#[derive(Debug, Default)]
struct Stopwatch {
    since: Option<Instant>,
    total: Duration,
}

impl Stopwatch {
    fn turn(&mut self, is_on: bool, now: Instant) {
        if !is_on {
            self.total = self.read(now);
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(now);
        }
    }

    fn read(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Counters, Counts, Stopwatch, fault_name};

    #[test]
    fn time_counts_while_something_goes_on() {
        let mut watch = Stopwatch::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        watch.turn(false, at(1));
        watch.turn(true, at(10));
        watch.turn(true, at(20));
        assert_eq!(watch.read(at(30)), Duration::from_millis(20));
        watch.turn(false, at(40));
        watch.turn(false, at(50));
        watch.turn(true, at(100));
        assert_eq!(watch.read(at(101)), Duration::from_millis(31));
    }

    #[test]
    fn calls_are_counted_when_they_have_been_made() {
        let counters = Counters::default();
        counters.begun();
        assert!(counters.read().is_active);
        counters.made(false, 0);
        counters.begun();
        counters.made(true, 700);
        counters.begun();
        counters.made(false, 716);
        counters.memory(2048);
        counters.memory(512);
        let expected =
            Counts { calls: 3, waits: 2, memory_bytes: 512, memory_bytes_peak: 2048, fault: 700, ..Counts::default() };
        assert_eq!(counters.read(), expected);
    }

    #[test]
    fn only_faults_of_kernels_are_faults() {
        assert_eq!(fault_name(700), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert!([0, 1, 2, 701, 709, 720, 999, 12_345].iter().all(|code| fault_name(*code).is_none()));
    }
}
