//! Memory pools.

use std::ffi::c_void;

use super::{
    call::{In, Out},
    exports,
};
use crate::driver::{
    driver,
    handle::Handle,
    pool::{self, Pool, PoolAttribute},
    status::{Answer, Status},
};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`: the only kind that there is.
const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;
const NO_HANDLES: u32 = 0;

/// `CUmemPoolProps`; what comes after the location has no meaning here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
    rest: [u64; 9],
}

impl Properties {
    /// Those of memory on a device.
    pub(super) fn on(location_id: i32) -> Self {
        let (allocation_type, handle_types, location_type) = (PINNED, NO_HANDLES, ON_DEVICE);
        Self { allocation_type, handle_types, location_type, location_id, rest: [0; 9] }
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
        pool.fill(|| pool::create(properties.location_id))
    }

    fn cuMemPoolDestroy(pool: Handle) {
        pool::destroy(pool)
    }

    /// Nothing is kept back, so there is nothing to give up.
    fn cuMemPoolTrimTo(pool: Handle, bytes: usize) {
        let _ = bytes;
        driver()?.pools.get(pool).map(drop)
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: Out<c_void>) {
        if value.is_null() {
            return Err(Status::InvalidValue);
        }
        match driver()?.pools.get(pool)?.attribute(attribute)? {
            PoolAttribute::Word(word) => value.cast().set(word),
            PoolAttribute::Double(double) => value.cast().set(double),
        }
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<c_void>) {
        let pool = driver()?.pools.get(pool)?;
        let value = if Pool::is_narrow(attribute) { value.cast::<u32>().get()?.into() } else { value.cast().get()? };
        pool.set_attribute(attribute, value)
    }
}
