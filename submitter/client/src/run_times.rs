//! Expected run times of jobs, learned from the replies to similar jobs.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    num::NonZero,
    sync::{Mutex, MutexGuard},
};

use gpufleet_schema::{Arg, AttemptState, Grid, Inline, Number, Program, Reply, Task};
use lru::LruCache;

/// Maximum number of kinds that are remembered. The least recently used kind is evicted first.
const KINDS_MAX: NonZero<usize> = NonZero::new(1024).expect("the constant is not zero");
/// The weight of a new value in the moving average.
const NEWEST: f64 = 0.125;
/// A new value counts as at most this multiple of the average, so one slow run on a busy machine hardly changes it.
const RISE_MAX: f64 = 4.0;
/// A value up to this always counts in full, so an average of zero can rise.
const ALWAYS_COUNTED_US: f64 = 100.0;

/// A hash of the program and of the magnitudes of its arguments, launches and buffers. Jobs of one kind run the same
/// program on sizes within a factor of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobKind(u64);

#[derive(Debug)]
pub(crate) struct RunTimes(Mutex<LruCache<JobKind, f64>>);

impl JobKind {
    pub(crate) fn of(task: &Task<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        match &task.program {
            Program::Catalog(name) => name.hash(&mut hasher),
            Program::Source { code, options } => (code, options).hash(&mut hasher),
            Program::Ptx(text) => text.hash(&mut hasher),
            Program::Cubin(Inline::Bytes(bytes)) => bytes.hash(&mut hasher),
            // Workers refuse a cubin that is not bytes. Nothing is learned from sessions and host programs.
            Program::Cubin(_) | Program::Session { .. } | Program::Host(_) => {}
        }
        for (name, number) in &task.arguments {
            (name, magnitude(*number)).hash(&mut hasher);
        }
        for launch in &task.launches {
            (&launch.entry, launch.repeat).hash(&mut hasher);
            match &launch.grid {
                Grid::Cover(threads) => threads.iter().for_each(|count| count.checked_ilog2().hash(&mut hasher)),
                Grid::Blocks(blocks) => blocks.iter().for_each(|count| count.checked_ilog2().hash(&mut hasher)),
            }
            for arg in &launch.args {
                if let Arg::Scalar(_, number) = arg {
                    magnitude(*number).hash(&mut hasher);
                }
            }
        }
        task.device_bytes().and_then(u64::checked_ilog2).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The binary exponent. An argument such as an iteration count changes the run time, so its magnitude belongs to the
/// kind. A random seed changes nothing, but its magnitudes are few.
fn magnitude(number: Number) -> u64 {
    let value = match number {
        Number::Signed(value) => value as f64,
        Number::Unsigned(value) => value as f64,
        Number::Float(value) | Number::Decimal(value, _) => value,
        Number::Bool(value) => f64::from(u8::from(value)),
    };
    value.abs().to_bits() >> (f64::MANTISSA_DIGITS - 1)
}

impl Default for RunTimes {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(KINDS_MAX)))
    }
}

impl RunTimes {
    /// The expected device time of a job of this kind, in microseconds. `None` until a job of this kind has succeeded.
    pub(crate) fn expected_us(&self, kind: JobKind) -> Option<u64> {
        self.lock().get(&kind).map(|us| *us as u64)
    }

    /// Learns from a reply, if the job succeeded. Copies and kernels count; compiling and loading don't, because many
    /// jobs share them.
    pub(crate) fn learn(&self, kind: JobKind, reply: &Reply<'_>) {
        if reply.state != AttemptState::Succeeded {
            return;
        }
        let timings = &reply.timings;
        let us = (timings.copy_in_us + timings.kernel_us() + timings.copy_out_us) as f64;
        let mut known = self.lock();
        let mean = known.get_or_insert_mut(kind, || us);
        let counted = us.min((RISE_MAX * *mean).max(ALWAYS_COUNTED_US));
        *mean += NEWEST * (counted - *mean);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<JobKind, f64>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{JobId, Timings, VERSION};

    use super::*;
    use crate::Job;

    fn kind(job: Job) -> JobKind {
        JobKind::of(&job.build().unwrap().task)
    }

    fn saxpy(elements: usize) -> Job {
        let values = vec![1.0_f32; elements];
        Job::catalog("saxpy").scalar("a", 2.0).input("x", &values).input("y", &values)
    }

    fn reply(state: AttemptState, kernel_us: u64) -> Reply<'static> {
        Reply {
            version: VERSION,
            job_id: Some(JobId::new()),
            attempt: 1,
            state,
            failure: None,
            outputs: Vec::new(),
            timings: Timings { launches_us: vec![kernel_us], compile_us: 1_000_000, ..Timings::default() },
            ran_on: None,
            printf_output: None,
            session: None,
        }
    }

    #[test]
    fn jobs_of_one_program_and_similar_size_have_one_kind() {
        assert_eq!(kind(saxpy(100)), kind(saxpy(101)));
        assert_ne!(kind(saxpy(100)), kind(saxpy(1000)));
        let repeated = |times: u32| kind(Job::source("code").entry("f").cover([1]).arg(times));
        assert_eq!(repeated(1000), repeated(1001));
        assert_ne!(repeated(1), repeated(1000));
        let source = |code: &str, entry| kind(Job::source(code).entry(entry).cover([1]));
        assert_ne!(source("code", "f"), source("code", "g"));
        assert_ne!(source("code", "f"), source("other", "f"));
    }

    #[test]
    fn the_run_time_follows_the_replies_of_successful_jobs() {
        let times = RunTimes::default();
        let kind = kind(saxpy(1));
        assert_eq!(times.expected_us(kind), None);
        times.learn(kind, &reply(AttemptState::Failed, 9));
        assert_eq!(times.expected_us(kind), None);
        times.learn(kind, &reply(AttemptState::Succeeded, 800));
        assert_eq!(times.expected_us(kind), Some(800));
        times.learn(kind, &reply(AttemptState::Succeeded, 0));
        assert_eq!(times.expected_us(kind), Some(700));
        (0..100).for_each(|_| times.learn(kind, &reply(AttemptState::Succeeded, 50)));
        assert_eq!(times.expected_us(kind), Some(50));
    }

    #[test]
    fn one_slow_run_hardly_changes_the_expected_run_time_and_many_do() {
        let times = RunTimes::default();
        let kind = kind(saxpy(1));
        (0..100).for_each(|_| times.learn(kind, &reply(AttemptState::Succeeded, 0)));
        (0..100).for_each(|_| times.learn(kind, &reply(AttemptState::Succeeded, 80)));
        times.learn(kind, &reply(AttemptState::Succeeded, 2_000_000));
        assert_eq!(times.expected_us(kind), Some(109));
        (0..100).for_each(|_| times.learn(kind, &reply(AttemptState::Succeeded, 2_000_000)));
        assert!(times.expected_us(kind) > Some(1_900_000));
    }
}
