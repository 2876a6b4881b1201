//! C functions for memory pools (`cuMemPool*`).

use std::ffi::c_void;

use gpufleet_surface::argument::{In, Out};

use super::exports;
use crate::driver::{
    driver,
    handle::Handle,
    memory::pools,
    pool::pools,
    pool::{Pool, PoolAttribute},
    status::{Answer, Status},
};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`, the only supported kind; and
/// `CU_MEM_HANDLE_TYPE_NONE`.
pub(super) const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;
pub(super) const NO_HANDLES: u32 = 0;

/// `CUmemPoolProps`; the fields after the location have no effect here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
    security: usize,
    bytes_max: u64,
    rest: [u64; 7],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub location: Location,
    pub flags: u32,
}

impl Properties {
    /// Returns the properties of memory on a device.
    pub(super) fn on(location_id: i32) -> Self {
        let (allocation_type, handle_types, location_type) = (PINNED, NO_HANDLES, ON_DEVICE);
        Self { allocation_type, handle_types, location_type, location_id, security: 0, bytes_max: 0, rest: [0; 7] }
    }

    pub(super) fn check(&self) -> Answer {
        if self.allocation_type != PINNED || self.location_type != ON_DEVICE {
            return Err(Status::InvalidValue);
        }
        if self.handle_types == NO_HANDLES { Ok(()) } else { Err(Status::NotSupported) }
    }

    pub(super) fn device(&self) -> i32 {
        self.location_id
    }
}

exports! {
    fn cuMemPoolCreate(pool: Out<Handle>, properties: In<Properties>) {
        let properties = properties.get()?;
        properties.check()?;
        pool.fill(|| pools::create(properties.location_id, properties.bytes_max))
    }

    fn cuMemPoolDestroy(pool: Handle) {
        pools::destroy(pool)
    }

    /// Does nothing, because pools cache nothing.
    fn cuMemPoolTrimTo(pool: Handle, bytes: usize) {
        let _ = bytes;
        pools()?.get(pool).map(drop)
    }

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, location: In<Location>) {
        flags.fill(|| Ok(pools()?.get(pool)?.access(location.get()?.device()?)))
    }

    fn cuMemPoolSetAccess(pool: Handle, accesses: In<Access>, count: usize) {
        let pool = pools()?.get(pool)?;
        for index in 0..count {
            let Access { location, flags } = accesses.at(index)?;
            pool.set_access(location.device()?, flags)?;
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: Out<c_void>) {
        if value.is_null() {
            return Err(Status::InvalidValue);
        }
        match pools()?.get(pool)?.attribute(attribute)? {
            PoolAttribute::Word(word) => value.cast().set(word),
            PoolAttribute::Double(double) => value.cast().set(double),
        }
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<c_void>) {
        let pool = pools()?.get(pool)?;
        let value = if Pool::is_narrow(attribute) { value.cast::<u32>().get()?.into() } else { value.cast().get()? };
        pool.set_attribute(attribute, value)
    }
}

impl Location {
    pub(super) fn on(device: i32) -> Self {
        Self { kind: ON_DEVICE, id: device }
    }

    /// Returns the device; other kinds of location are not supported.
    pub(super) fn device(self) -> Answer<i32> {
        if self.kind != ON_DEVICE {
            return Err(Status::InvalidValue);
        }
        Ok(driver()?.device(self.id)?.ordinal)
    }
}
