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
    status::Status,
};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`: the only kind that there is.
const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;
const NO_HANDLES: u32 = 0;

/// The start of `CUmemPoolProps`; the rest has no meaning here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
}

exports! {
    fn cuMemPoolCreate(pool: Out<Handle>, properties: In<Properties>) {
        let properties = properties.get()?;
        if properties.allocation_type != PINNED || properties.location_type != ON_DEVICE {
            return Err(Status::InvalidValue);
        }
        if properties.handle_types != NO_HANDLES {
            return Err(Status::NotSupported);
        }
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
