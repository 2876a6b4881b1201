//! C functions for memory pools (`cuMemPool*`).

use std::ffi::c_void;

use gpufleet_surface::{
    argument::{In, Out},
    structs::memory::{Access, Location, PoolProperties},
};

use crate::driver::{
    driver,
    handle::Handle,
    memory::pools,
    pool::pools,
    pool::{Pool, PoolAttribute},
    status::{Answer, Status},
};

pub(super) fn cuMemPoolCreate(pool: Out<Handle>, properties: In<PoolProperties>) -> Answer {
    let properties = properties.get()?;
    let device = properties.device()?;
    pool.fill(|| pools::create(device, properties.bytes_max))
}

pub(super) fn cuMemPoolDestroy(pool: Handle) -> Answer {
    pools::destroy(pool)
}

/// Does nothing, because pools cache nothing.
pub(super) fn cuMemPoolTrimTo(pool: Handle, bytes: usize) -> Answer {
    let _ = bytes;
    pools()?.get(pool).map(drop)
}

pub(super) fn cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, location: In<Location>) -> Answer {
    flags.fill(|| Ok(pools()?.get(pool)?.access(device_at(location.get()?)?)))
}

pub(super) fn cuMemPoolSetAccess(pool: Handle, accesses: In<Access>, count: usize) -> Answer {
    let pool = pools()?.get(pool)?;
    for index in 0..count {
        let Access { location, flags } = accesses.at(index)?;
        pool.set_access(device_at(location)?, flags)?;
    }
    Ok(())
}

pub(super) fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: Out<c_void>) -> Answer {
    if value.is_null() {
        return Err(Status::InvalidValue);
    }
    match pools()?.get(pool)?.attribute(attribute)? {
        PoolAttribute::Word(word) => value.cast().set(word),
        PoolAttribute::Double(double) => value.cast().set(double),
    }
    Ok(())
}

pub(super) fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<c_void>) -> Answer {
    let pool = pools()?.get(pool)?;
    let value = if Pool::is_narrow(attribute) { value.cast::<u32>().get()?.into() } else { value.cast().get()? };
    pool.set_attribute(attribute, value)
}

/// Returns the device of a location, if it exists.
pub(super) fn device_at(location: Location) -> Answer<i32> {
    Ok(driver()?.device(location.device()?)?.ordinal)
}
