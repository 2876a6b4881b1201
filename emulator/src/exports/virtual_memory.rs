//! C functions for virtual memory management (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and so on).

use gpufleet_surface::{
    argument::{In, Out},
    structs::memory::{Access, AllocationProperties, Location},
};

use super::pool::device_at;
use crate::driver::{
    driver,
    handle::Handle,
    status::{Answer, Status},
    virtual_memory::{self, GRANULARITY},
};

pub(super) fn cuMemAddressReserve(address: Out<u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) -> Answer {
    no_flags(flags)?;
    address.fill(|| virtual_memory::reserve(bytes as u64, alignment as u64, hint))
}

pub(super) fn cuMemAddressFree(address: u64, bytes: usize) -> Answer {
    virtual_memory::free(address, bytes as u64)
}

pub(super) fn cuMemCreate(handle: Out<u64>, bytes: usize, properties: In<AllocationProperties>, flags: u64) -> Answer {
    no_flags(flags)?;
    handle.fill(|| virtual_memory::create(device_of(properties)?, bytes as u64).map(|handle| handle as u64))
}

pub(super) fn cuMemRelease(handle: u64) -> Answer {
    virtual_memory::release(handle as Handle)
}

pub(super) fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) -> Answer {
    handle.fill(|| virtual_memory::retain(address).map(|handle| handle as u64))
}

pub(super) fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Answer {
    no_flags(flags)?;
    virtual_memory::map(address, bytes as u64, offset as u64, handle as Handle)
}

pub(super) fn cuMemUnmap(address: u64, bytes: usize) -> Answer {
    virtual_memory::unmap(address, bytes as u64)
}

pub(super) fn cuMemSetAccess(address: u64, bytes: usize, accesses: In<Access>, count: usize) -> Answer {
    for index in 0..count {
        let Access { location, flags } = accesses.at(index)?;
        virtual_memory::set_access(address, bytes as u64, device_at(location)?, flags)?;
    }
    if count == 0 { Err(Status::InvalidValue) } else { Ok(()) }
}

pub(super) fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> Answer {
    flags.fill(|| {
        let device = driver()?.device(device_at(location.get()?)?)?;
        virtual_memory::mapping(address).ok_or(Status::InvalidValue)?;
        Ok(virtual_memory::access(device, address).into())
    })
}

pub(super) fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    properties: In<AllocationProperties>,
    option: u32,
) -> Answer {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM` and `_RECOMMENDED`, which are equal here.
    const OPTIONS: std::ops::RangeInclusive<u32> = 0..=1;
    if !OPTIONS.contains(&option) {
        return Err(Status::InvalidValue);
    }
    bytes.fill(|| device_of(properties).map(|_| GRANULARITY as usize))
}

pub(super) fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: u64) -> Answer {
    properties
        .fill(|| virtual_memory::device_of(handle as Handle).map(|device| AllocationProperties::on(device.ordinal)))
}

/// Returns the device on which memory with a caller's properties is.
fn device_of(properties: In<AllocationProperties>) -> Answer<i32> {
    Ok(driver()?.device(properties.get()?.device()?)?.ordinal)
}

fn no_flags(flags: u64) -> Answer {
    driver()?;
    if flags == 0 { Ok(()) } else { Err(Status::InvalidValue) }
}
