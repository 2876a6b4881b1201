//! One pool as the scheduler sees it: its weight, what it has used, and what of it waits.

use super::{PoolId, backlog::Backlog, placement::Claim};

/// What a pool was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Its share of device time next to other pools that have work.
    pub weight: u32,
    /// Parts in a thousand of every device's memory that are its own. With such a budget comes a place of its own on every device.
    pub memory_permille: u32,
}

impl Default for Promise {
    fn default() -> Self {
        Self { weight: 1, memory_permille: 0 }
    }
}

impl Promise {
    /// The bytes that are its own on a device with so many.
    pub fn bytes(self, device_bytes: u64) -> u64 {
        (u128::from(device_bytes) * u128::from(self.memory_permille.min(PERMILLE)) / u128::from(PERMILLE)) as u64
    }
}

const PERMILLE: u32 = 1000;

/// What a pool's first job is taken for, until one has been measured.
const FIRST_GUESS_US: u64 = 1_000;

/// A new measurement moves the expectation by one part in so many.
const SMOOTHING: u64 = 8;

/// A whole tick without a job's end, wherever in a tick the last one came.
const QUIET_TICKS: u32 = 2;

/// The device time that a pool may be owed. What it could not use because its jobs did not fit would else add up for hours, and the others
/// would start nothing until all of it was made up for.
const OWED_US_MAX: u64 = 5_000_000;

/// Virtual time per microsecond at weight 1: fine enough that whole numbers do for every weight.
const SCALE: u128 = 1 << 20;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) promise: Promise,
    pub(super) backlog: Backlog,
    pub(super) running: u32,
    /// Device time used, by weight: whoever has the least is next. Stride scheduling over measured time.
    time: u128,
    /// What its jobs take, by experience.
    expected_us: u64,
    /// What its last job took of a device, for as long as the next one may follow soon.
    recent: Option<u64>,
    /// Ticks since then.
    quiet: u32,
}

impl Pool {
    pub(super) fn new(id: PoolId, promise: Promise) -> Self {
        Self {
            id,
            promise,
            backlog: Backlog::default(),
            running: 0,
            time: 0,
            expected_us: FIRST_GUESS_US,
            recent: None,
            quiet: 0,
        }
    }

    pub(super) fn time(&self) -> u128 {
        self.time
    }

    pub(super) fn claim(&self) -> Claim {
        let (running, wanted, recent) = (self.running > 0, self.backlog.least(), self.recent);
        Claim { pool: self.id, promise: self.promise, running, wanted, recent }
    }

    pub(super) fn is_awake(&self) -> bool {
        self.running > 0 || self.backlog.len() > 0
    }

    /// A pool that comes back from a pause starts where the others are: time not used is not saved up.
    pub(super) fn wake(&mut self, now: u128) {
        self.time = self.time.max(now);
    }

    /// Another pool that is at `time` was given what this one could not use, although it was this one's turn.
    pub(super) fn pass(&mut self, time: u128) {
        self.time = self.time.max(time.saturating_sub(self.virtual_time(OWED_US_MAX)));
    }

    /// A job starts; what it is expected to use is charged now, so that the next choice already knows of it. Returns the charge.
    pub(super) fn start(&mut self) -> u64 {
        self.running += 1;
        self.charge(self.expected_us);
        self.expected_us
    }

    /// Time passes. What runs or waits claims memory for itself.
    pub(super) fn tick(&mut self) {
        self.quiet += 1;
        if self.quiet >= QUIET_TICKS {
            self.recent = None;
        }
    }

    /// A job of so many bytes that was charged `charged_us` has used `used_us`.
    pub(super) fn end(&mut self, bytes: u64, charged_us: u64, used_us: u64) {
        self.running -= 1;
        (self.recent, self.quiet) = (Some(bytes), 0);
        if used_us >= charged_us {
            self.charge(used_us - charged_us);
        } else {
            self.time = self.time.saturating_sub(self.virtual_time(charged_us - used_us));
        }
        let sum = self.expected_us.saturating_mul(SMOOTHING - 1).saturating_add(used_us);
        self.expected_us = sum.div_ceil(SMOOTHING).max(1);
    }

    fn charge(&mut self, used_us: u64) {
        self.time = self.time.saturating_add(self.virtual_time(used_us));
    }

    fn virtual_time(&self, used_us: u64) -> u128 {
        u128::from(used_us) * SCALE / u128::from(self.promise.weight.max(1))
    }
}
