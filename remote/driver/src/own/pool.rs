//! Attributes of memory pools, whose sizes depend on the attribute.

use gpufleet_remote::{
    kinds::Pool,
    roles::{AttributeIn, AttributeOut},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use crate::rows;

/// `CU_MEMPOOL_ATTR_REUSE_*`, which have 32 bits; the others have 64.
const NARROW: std::ops::RangeInclusive<u32> = 1..=3;

pub(crate) fn cuMemPoolGetAttribute(pool: Pool, attribute: u32, value: AttributeOut) -> Answer {
    if value.0.is_null() {
        return Err(Status::InvalidValue);
    }
    let mut whole = 0;
    // SAFETY: the place lives until the call has ended.
    rows::cuMemPoolGetAttribute(pool, attribute, AttributeOut(unsafe { Out::from_pointer(&raw mut whole) }))?;
    if NARROW.contains(&attribute) {
        value.0.cast::<u32>().set(whole as u32);
    } else {
        value.0.set(whole);
    }
    Ok(())
}

pub(crate) fn cuMemPoolSetAttribute(pool: Pool, attribute: u32, value: AttributeIn) -> Answer {
    let whole = if value.0.is_null() {
        None
    } else if NARROW.contains(&attribute) {
        Some(u64::from(value.0.cast::<u32>().get()?))
    } else {
        Some(value.0.get()?)
    };
    let place = whole.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the value lives until the call has ended.
    rows::cuMemPoolSetAttribute(pool, attribute, AttributeIn(unsafe { In::from_pointer(place) }))
}
