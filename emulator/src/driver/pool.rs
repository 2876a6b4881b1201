//! Memory pools: who drew how much. The memory itself is the device's; nothing is kept back, so there is nothing to
//! trim and a release threshold has nothing to release.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    driver,
    handle::{Handle, fresh},
    status::{Answer, Status},
};

/// The reuse policies, numbered 1 to 3 in the C headers.
const POLICIES: usize = 3;
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const USED_HIGH: u32 = 8;

/// A memory pool of a device.
#[derive(Debug)]
pub struct Pool {
    pub device: i32,
    policies: [AtomicU64; POLICIES],
    threshold: AtomicU64,
    used: AtomicU64,
    high: AtomicU64,
}

/// The value of an attribute, in the width that the caller's memory has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAttribute {
    Word(i32),
    Double(u64),
}

impl Pool {
    pub fn new(device: i32) -> Self {
        Self {
            device,
            policies: [const { AtomicU64::new(1) }; POLICIES],
            threshold: AtomicU64::new(0),
            used: AtomicU64::new(0),
            high: AtomicU64::new(0),
        }
    }

    pub fn take(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.high.fetch_max(used, Ordering::Relaxed);
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
            6 | 8 => Ok(PoolAttribute::Double(self.high.load(Ordering::Relaxed))),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Sets a policy or the threshold, or starts a high-water mark anew, which takes only 0.
    pub fn set_attribute(&self, number: u32, value: u64) -> Answer {
        match number {
            1..=3 => self.policies[number as usize - 1].store(u64::from(value != 0), Ordering::Relaxed),
            RELEASE_THRESHOLD => self.threshold.store(value, Ordering::Relaxed),
            RESERVED_CURRENT..=USED_HIGH if value == 0 && number.is_multiple_of(2) => {
                self.high.store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    /// Is an attribute of this number four bytes wide?
    pub fn is_narrow(number: u32) -> bool {
        (1..=3).contains(&number)
    }
}

/// Makes a pool on a device.
pub fn create(ordinal: i32) -> Answer<Handle> {
    let driver = driver()?;
    let pool = Pool::new(driver.device(ordinal)?.ordinal);
    let handle = fresh();
    driver.pools.insert(handle, Arc::new(pool));
    Ok(handle)
}

/// Ends a pool that was created; a device's default pool stays.
pub fn destroy(pool: Handle) -> Answer {
    let driver = driver()?;
    let device = driver.device(driver.pools.get(pool)?.device)?;
    if device.default_pool == pool {
        return Err(Status::InvalidValue);
    }
    if device.current_pool() == pool {
        device.set_current_pool(device.default_pool);
    }
    driver.pools.remove(pool).map(drop)
}
