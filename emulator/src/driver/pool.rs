//! Memory pools: accounts of the memory that was allocated from each. The memory itself is the device's, and pools
//! cache nothing. So there is nothing to trim, the release threshold has no effect, and reserved bytes equal used
//! bytes.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use super::{
    handle::Registry,
    started,
    status::{Answer, Status},
};

/// Number of reuse policies; they are attributes 1 to 3 in the C headers.
const POLICIES: usize = 3;
const RELEASE_THRESHOLD: u32 = 4;
/// Attribute numbers of the high-water marks; the number before each is the current value.
const RESERVED_HIGH: u32 = 6;
const USED_HIGH: u32 = 8;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// A memory pool of a device.
#[derive(Debug)]
pub struct Pool {
    pub device: i32,
    policies: [AtomicU64; POLICIES],
    threshold: AtomicU64,
    /// Maximum bytes allocated at a time; 0 for no limit.
    bytes_max: u64,
    used: AtomicU64,
    reserved_high: AtomicU64,
    used_high: AtomicU64,
}

/// The value of an attribute, in the width that the C interface uses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAttribute {
    Word(i32),
    Double(u64),
}

/// Memory pools by handle. A device creates its default pool while the driver starts.
pub static POOLS: LazyLock<Registry<Pool>> = LazyLock::new(Registry::default);

/// Returns the registry of pools, once the driver has started.
pub fn pools() -> Answer<&'static Registry<Pool>> {
    started::check().map(|()| &*POOLS)
}

impl Pool {
    pub fn new(device: i32, bytes_max: u64) -> Self {
        Self {
            device,
            policies: [const { AtomicU64::new(1) }; POLICIES],
            threshold: AtomicU64::new(0),
            bytes_max,
            used: AtomicU64::new(0),
            reserved_high: AtomicU64::new(0),
            used_high: AtomicU64::new(0),
        }
    }

    /// Counts `bytes` as allocated; an error if the limit is exceeded.
    pub fn take(&self, bytes: u64) -> Answer {
        let fits = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (self.bytes_max == 0 || sum <= self.bytes_max).then_some(sum)
        };
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        let used = taken.map_err(|_| Status::OutOfMemory)? + bytes;
        self.reserved_high.fetch_max(used, Ordering::Relaxed);
        self.used_high.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns an attribute by its number in the C headers; reserved and used bytes are equal.
    pub fn attribute(&self, number: u32) -> Answer<PoolAttribute> {
        match number {
            1..=3 => Ok(PoolAttribute::Word(self.policies[number as usize - 1].load(Ordering::Relaxed) as i32)),
            RELEASE_THRESHOLD => Ok(PoolAttribute::Double(self.threshold.load(Ordering::Relaxed))),
            5 | 7 => Ok(PoolAttribute::Double(self.used.load(Ordering::Relaxed))),
            RESERVED_HIGH => Ok(PoolAttribute::Double(self.reserved_high.load(Ordering::Relaxed))),
            USED_HIGH => Ok(PoolAttribute::Double(self.used_high.load(Ordering::Relaxed))),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Sets a policy or the threshold, or resets a high-water mark, for which the value has to be 0.
    pub fn set_attribute(&self, number: u32, value: u64) -> Answer {
        match number {
            1..=3 => self.policies[number as usize - 1].store(u64::from(value != 0), Ordering::Relaxed),
            RELEASE_THRESHOLD => self.threshold.store(value, Ordering::Relaxed),
            RESERVED_HIGH | USED_HIGH if value == 0 => {
                let mark = if number == USED_HIGH { &self.used_high } else { &self.reserved_high };
                mark.store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    /// Returns the access of a device's kernels to the pool's memory.
    pub fn access(&self, device: i32) -> u32 {
        if device == self.device { READ_WRITE } else { 0 }
    }

    /// Sets the access of a device: the pool's own device always has access, and no other device can have it.
    pub fn set_access(&self, device: i32, access: u32) -> Answer {
        match (device == self.device, access) {
            (true, READ_WRITE) | (false, 0) => Ok(()),
            (false, READ_WRITE) => Err(Status::PeerAccessUnsupported),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Reports whether the attribute has four bytes.
    pub fn is_narrow(number: u32) -> bool {
        (1..=3).contains(&number)
    }
}
