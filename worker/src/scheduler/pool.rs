//! The scheduler's view of one pool: its weight, its device time and its waiting jobs.

use super::{Demand, PoolId, Ticket, backlog::Backlog, placement::Claim};

/// The guarantees of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolGuarantee {
    /// The weight with which the pool shares device time with other pools that have work.
    pub weight: u32,
    /// The guaranteed part of every device's memory, in thousandths. A pool with guaranteed memory also has a slot of its own on every
    /// device.
    pub memory_permille: u32,
}

impl Default for PoolGuarantee {
    fn default() -> Self {
        Self { weight: 1, memory_permille: 0 }
    }
}

impl PoolGuarantee {
    /// Returns the guaranteed memory on a device of this size, in bytes.
    pub fn bytes(self, device_bytes: u64) -> u64 {
        permille_of(device_bytes, self.memory_permille)
    }
}

/// Returns so many thousandths of these bytes.
pub(super) fn permille_of(bytes: u64, permille: u32) -> u64 {
    (u128::from(bytes) * u128::from(permille.min(PERMILLE)) / u128::from(PERMILLE)) as u64
}

const PERMILLE: u32 = 1000;

/// Expected device time of a pool's jobs before the first one was measured, in microseconds.
const FIRST_GUESS_US: u64 = 1_000;

/// Inverse weight of a new measurement in the expected device time.
const SMOOTHING: u64 = 8;

/// Number of ticks without work after which a pool lends its memory. Two, so that at least one whole interval passes wherever in a tick the
/// last job ended.
const QUIET_TICKS: u32 = 2;

/// Maximum device time that a pool can be owed, in microseconds. Otherwise the debt from the time in which its jobs did not fit would grow
/// to hours, and the other pools could start nothing until the pool had caught up.
const OWED_US_MAX: u64 = 5_000_000;

/// Units of virtual time per microsecond at weight 1, so that integers are precise enough at every weight.
const SCALE: u128 = 1 << 20;

/// A pool with its waiting jobs.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) guarantee: PoolGuarantee,
    pub(super) backlog: Backlog,
    /// Jobs with a slot. Sessions are not among them: a session claims no more memory than it holds.
    pub(super) running: u32,
    /// Device time used, divided by weight. The pool with the least is next (stride scheduling over measured time).
    time: u128,
    /// The expected device time of a job, in microseconds, from measurements.
    expected_us: u64,
    /// The memory of the last job, in bytes, as long as the next one may follow soon.
    recent: Option<u64>,
    /// Number of ticks since the last job ended.
    quiet: u32,
}

impl Pool {
    pub(super) fn new(id: PoolId, guarantee: PoolGuarantee) -> Self {
        Self {
            id,
            guarantee,
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
        // Only guaranteed memory is claimed, so other pools need no search for the smallest demand.
        let wanted = if self.guarantee.memory_permille > 0 { self.backlog.bytes_min() } else { None };
        let (running, recent) = (self.running > 0, self.recent);
        Claim { pool: self.id, guarantee: self.guarantee, running, wanted, recent }
    }

    /// Adds a waiting job. A pool that was idle continues from the virtual time of the others, so that it does not save up unused time.
    pub(super) fn arrive(&mut self, ticket: Ticket, demand: Demand, now: u128) {
        if self.running == 0 && self.backlog.is_empty() {
            self.time = self.time.max(now);
        }
        self.backlog.push(ticket, demand);
    }

    /// Records that another pool, at virtual time `time`, got this pool's turn because no job of this pool fitted.
    pub(super) fn pass(&mut self, time: u128) {
        self.time = self.time.max(time.saturating_sub(self.virtual_time(OWED_US_MAX)));
    }

    /// Charges the expected time of a job at its start, so that the next choice takes it into account. Returns the charge in microseconds.
    pub(super) fn start(&mut self) -> u64 {
        self.running += 1;
        self.charge(self.expected_us);
        self.expected_us
    }

    /// Counts a tick. It only affects the claim of the last job, because running and waiting jobs claim memory themselves.
    pub(super) fn tick(&mut self) {
        self.quiet += 1;
        if self.quiet >= QUIET_TICKS {
            self.recent = None;
        }
    }

    /// Replaces the charge of a job that has ended by its measured time.
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

    /// Charges device time.
    pub(super) fn charge(&mut self, used_us: u64) {
        self.time = self.time.saturating_add(self.virtual_time(used_us));
    }

    fn virtual_time(&self, used_us: u64) -> u128 {
        u128::from(used_us) * SCALE / u128::from(self.guarantee.weight.max(1))
    }
}
