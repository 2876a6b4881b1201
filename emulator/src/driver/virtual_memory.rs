//! Virtual memory management: programs reserve addresses, create physical memory, and map it at the addresses.
//!
//! Memory counts as used from `cuMemCreate` until all references to its handle are released and its last mapping is
//! gone. None of this belongs to a context. Calls do not wait for work in flight, because CUDA does not promise it: a
//! kernel that uses memory while it is unmapped faults or reads zeros.

mod table;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::{
    current,
    device::Device,
    driver,
    faults::Site,
    handle::Handle,
    injection,
    status::{Answer, Status},
};
use crate::memory::{
    Protection,
    physical::{Physical, TakeError},
};
use table::Table;

/// Granularity of mappings in bytes: sizes, offsets and addresses are multiples of it. It is the size of a large page,
/// as on GPUs.
pub const GRANULARITY: u64 = 2 << 20;
/// Granularity of reservations in bytes: a page of the host.
const PAGE_BYTES: u64 = 4096;

/// `cuMemAddressReserve`.
pub fn reserve(bytes: u64, alignment: u64, hint: u64) -> Answer<u64> {
    let driver = driver()?;
    let is_aligned = alignment == 0 || alignment.is_power_of_two();
    if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || !hint.is_multiple_of(PAGE_BYTES) || !is_aligned {
        return Err(Status::InvalidValue);
    }
    driver.reservations.reserve(bytes, alignment.max(GRANULARITY), hint).map_err(|_| Status::OutOfMemory)
}

/// `cuMemAddressFree`.
pub fn free(address: u64, bytes: u64) -> Answer {
    let driver = driver()?;
    let table = table();
    if table.is_mapped(address, bytes) || !driver.reservations.free(address, bytes) {
        return Err(Status::InvalidValue);
    }
    Ok(())
}

/// `cuMemCreate`.
pub fn create(ordinal: i32, bytes: u64) -> Answer<Handle> {
    let device = driver()?.device(ordinal)?;
    device.check()?;
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Status::InvalidValue);
    }
    if let Ok(context) = current::context()
        && context.device.ordinal == ordinal
    {
        injection::call(&context, Site::Allocation)?;
    }
    let physical = Physical::take(&device.memory, bytes).map_err(|error| match error {
        TakeError::OutOfMemory(_) => Status::OutOfMemory,
        TakeError::Host { .. } => Status::OperatingSystem,
    })?;
    Ok(table().add(device, physical))
}

/// `cuMemRelease`.
pub fn release(handle: Handle) -> Answer {
    driver()?;
    table().release(handle)
}

/// `cuMemRetainAllocationHandle`.
pub fn retain(address: u64) -> Answer<Handle> {
    driver()?;
    table().retain(address)
}

/// Returns the device whose memory a handle stands for.
pub fn device_of(handle: Handle) -> Answer<&'static Device> {
    driver()?;
    table().device_of(handle)
}

/// `cuMemMap`.
pub fn map(address: u64, bytes: u64, offset: u64, handle: Handle) -> Answer {
    let driver = driver()?;
    // The lock is held from here on, so that the addresses stay reserved.
    let mut table = table();
    let is_whole = [address, bytes, offset].iter().all(|value| value.is_multiple_of(GRANULARITY));
    let reserved = driver.reservations.find(address).ok_or(Status::InvalidValue)?;
    if bytes == 0 || !is_whole || bytes > reserved.bytes - (address - reserved.base) {
        return Err(Status::InvalidValue);
    }
    table.map(address, bytes, offset, handle)
}

/// `cuMemUnmap`.
pub fn unmap(address: u64, bytes: u64) -> Answer {
    driver()?;
    table().unmap(address, bytes)
}

/// `cuMemSetAccess` for one device. No device reaches another device's memory.
pub fn set_access(address: u64, bytes: u64, ordinal: i32, flags: u32) -> Answer {
    let device = driver()?.device(ordinal)?;
    table().set_access(address, bytes, device, protection(flags)?)
}

/// Returns the `CUmemAccess_flags` of a device for a mapping.
pub fn access(device: &Device, address: u64) -> u32 {
    match device.memory.protection(address) {
        None | Some(Protection::None) => 0,
        Some(Protection::Read) => 1,
        Some(Protection::ReadWrite) => 3,
    }
}

/// Returns the handle of the memory that is mapped at an address, even if the program has released it.
pub fn mapping(address: u64) -> Option<Handle> {
    table().at(address)
}

fn protection(flags: u32) -> Answer<Protection> {
    match flags {
        0 => Ok(Protection::None),
        1 => Ok(Protection::Read),
        3 => Ok(Protection::ReadWrite),
        _ => Err(Status::InvalidValue),
    }
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}
