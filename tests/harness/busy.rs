//! Jobs that run for a known time, or until the test ends them, without occupying the CPU: one thread polls the device's clock and sleeps.

use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use gpufleet::{Array, Job};
use gpufleet_schema::Dtype;
use tempfile::NamedTempFile;

use crate::Ground;

const WAITS: &str = include_str!("ptx/waits.ptx");
/// The value that the kernel writes at its end.
const DONE: u32 = 42;
/// The time that the clock of a released device shows. No clock reaches it by itself.
const RELEASED: Duration = Duration::from_secs(1_000_000_000);

/// The clock of a ground's devices: a file from which they read the time.
#[derive(Debug)]
pub(crate) struct Clock(NamedTempFile);

pub fn for_millis(millis: u64) -> Job {
    job("waits", Duration::from_millis(millis))
}

pub fn for_seconds(seconds: u64) -> Job {
    for_millis(seconds * 1000)
}

/// Returns a job that runs until [`Ground::release_jobs`].
pub fn until_released() -> Job {
    job("waits_for_release", RELEASED)
}

fn job(entry: &str, time: Duration) -> Job {
    Job::ptx(WAITS)
        .zeros("y", Dtype::U32, [1])
        .entry(entry)
        .blocks([1])
        .block([1])
        .arg_buffer("y")
        .arg(u64::try_from(time.as_nanos()).expect("centuries fit"))
        .output("y")
}

impl Ground {
    /// Ends the jobs of [`until_released`], including those that start later.
    pub fn release_jobs(&self) {
        self.clock.set(RELEASED);
    }
}

impl Clock {
    pub(crate) const VARIABLE: &str = "GPUFLEET_EMULATOR_CLOCK";

    pub(crate) fn new() -> Self {
        // Executors may run as another user, so everyone may read the file.
        let file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile().unwrap();
        let clock = Self(file);
        clock.set(Duration::ZERO);
        clock
    }

    /// Returns the value of the environment variable for the devices.
    pub(crate) fn file(&self) -> &Path {
        self.0.path()
    }

    fn set(&self, ahead: Duration) {
        let nanos = u64::try_from(ahead.as_nanos()).expect("centuries fit");
        // A single write, so that readers never see half of the new time.
        self.0.as_file().write_all_at(&nanos.to_ne_bytes(), 0).unwrap();
    }
}

/// Returns whether the job ran to its end.
pub fn is_done(outputs: &[(String, Array)]) -> bool {
    matches!(outputs, [(name, array)] if name == "y" && array.to_vec::<u32>().is_ok_and(|values| values == [DONE]))
}

pub fn assert_done(outputs: &[(String, Array)]) {
    assert!(is_done(outputs), "the waiting job did not run to its end: {outputs:?}");
}
