//! Memory pools: who drew how much, and how much at most. The memory itself is the device's; nothing is kept back, so
//! there is nothing to trim, a release threshold has nothing to release, and what is reserved is what is used.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use super::{
    handle::Registry,
    started,
    status::{Answer, Status},
};

/// The reuse policies, numbered 1 to 3 in the C headers.
const POLICIES: usize = 3;
const RELEASE_THRESHOLD: u32 = 4;
/// High-water marks, each with what it is the mark of before it.
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
    /// The most that may be drawn at a time; 0 for no limit of its own.
    bytes_max: u64,
    used: AtomicU64,
    reserved_high: AtomicU64,
    used_high: AtomicU64,
}

/// The value of an attribute, in the width that the caller's memory has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAttribute {
    Word(i32),
    Double(u64),
}

/// The memory pools under their handles. A device makes its default pool while the driver starts.
pub static POOLS: LazyLock<Registry<Pool>> = LazyLock::new(Registry::default);

/// The same for callers, once the driver has started.
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

    /// Draws so many bytes.
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

    /// The attribute by its number in the C headers. Reserved and used are the same.
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

    /// Sets a policy or the threshold, or starts a high-water mark anew, which takes only 0.
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

    /// What kernels of a device may do with its memory.
    pub fn access(&self, device: i32) -> u32 {
        if device == self.device { READ_WRITE } else { 0 }
    }

    /// The own device always has access, and no other can have it.
    pub fn set_access(&self, device: i32, access: u32) -> Answer {
        match (device == self.device, access) {
            (true, READ_WRITE) | (false, 0) => Ok(()),
            (false, READ_WRITE) => Err(Status::PeerAccessUnsupported),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Is an attribute of this number four bytes wide?
    pub fn is_narrow(number: u32) -> bool {
        (1..=3).contains(&number)
    }
}
