//! Calls that create and destroy memory pools.

use std::sync::Arc;

use crate::driver::{
    driver,
    handle::{Handle, fresh},
    pool::{Pool, pools},
    status::{Answer, Status},
};

/// Creates a pool on a device.
pub fn create(ordinal: i32, bytes_max: u64) -> Answer<Handle> {
    let driver = driver()?;
    let pool = Pool::new(driver.device(ordinal)?.ordinal, bytes_max);
    let handle = fresh();
    pools()?.insert(handle, Arc::new(pool));
    Ok(handle)
}

/// Destroys a pool; a device's default pool can't be destroyed.
pub fn destroy(pool: Handle) -> Answer {
    let driver = driver()?;
    let device = driver.device(pools()?.get(pool)?.device)?;
    if device.default_pool == pool {
        return Err(Status::InvalidValue);
    }
    if device.current_pool() == pool {
        device.set_current_pool(device.default_pool);
    }
    pools()?.remove(pool).map(drop)
}
