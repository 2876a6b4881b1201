//! Pinned memory, which is plain memory here, and attributes of addresses.

use std::ffi::c_void;

use gpufleet_remote::{
    kinds::{Address, HostAddress},
    roles::{AttributeOut, PointerAttribute},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use crate::{
    host_memory::{self, Block},
    rows,
    session::DEVICE,
};

/// `CU_MEMORYTYPE_HOST`.
const MEMORY_TYPE_HOST: u64 = 1;

pub(crate) fn cuMemHostAlloc(pointer: Out<HostAddress>, bytes: usize, flags: u32) -> Answer {
    pointer.fill(|| host_memory::allocate(bytes, flags).map(HostAddress))
}

pub(crate) fn cuMemAllocHost_v2(pointer: Out<HostAddress>, bytes: usize) -> Answer {
    cuMemHostAlloc(pointer, bytes, 0)
}

pub(crate) fn cuMemFreeHost(pointer: HostAddress) -> Answer {
    host_memory::free(pointer.0)
}

pub(crate) fn cuMemHostRegister_v2(pointer: Out<u8>, bytes: usize, flags: u32) -> Answer {
    host_memory::register(pointer.pointer().expose_provenance(), bytes, flags)
}

pub(crate) fn cuMemHostUnregister(pointer: HostAddress) -> Answer {
    host_memory::unregister(pointer.0)
}

pub(crate) fn cuMemHostGetFlags(flags: Out<u32>, pointer: HostAddress) -> Answer {
    flags.fill(|| {
        let block = host_memory::find(pointer.0).ok_or(Status::InvalidValue)?;
        block.layout.map(|_| block.flags).ok_or(Status::InvalidValue)
    })
}

pub(crate) fn cuPointerGetAttribute(value: AttributeOut, attribute: PointerAttribute, address: Address) -> Answer {
    if value.0.is_null() {
        return Err(Status::InvalidValue);
    }
    store(value, attribute.0, self::attribute(attribute, address)?);
    Ok(())
}

/// An attribute that an address does not have is 0 in this call, not an error.
pub(crate) fn cuPointerGetAttributes(
    count: u32,
    attributes: In<u32>,
    values: In<Out<c_void>>,
    address: Address,
) -> Answer {
    for index in 0..count as usize {
        let (attribute, value) = (attributes.at(index)?, values.at(index)?);
        let known = self::attribute(PointerAttribute(attribute), address);
        // Without a device its ordinal is one that does not exist.
        let unknown = if attribute == 9 { u64::from(u32::MAX - 1) } else { 0 };
        store(AttributeOut(value.cast()), attribute, known.unwrap_or(unknown));
    }
    Ok(())
}

fn attribute(attribute: PointerAttribute, address: Address) -> Answer<u64> {
    if let Some(block) = host_memory::find(address.0 as usize) {
        return attribute_of_host(attribute.0, address.0, &block);
    }
    let mut value = 0;
    // SAFETY: the place lives until the call has ended.
    rows::cuPointerGetAttribute(AttributeOut(unsafe { Out::from_pointer(&raw mut value) }), attribute, address)?;
    Ok(value)
}

/// Pinned memory is not mapped, so it has no address on the device.
fn attribute_of_host(attribute: u32, address: u64, block: &Block) -> Answer<u64> {
    Ok(match attribute {
        1 => block.context,
        2 => MEMORY_TYPE_HOST,
        4 => address,
        7 | 11 | 19 | 20 => block.base as u64,
        9 => DEVICE.0 as u64,
        12 | 18 => block.bytes as u64,
        6 | 8 | 10 | 14 | 15 | 17 => 0,
        13 => 1,
        16 => 3,
        _ => return Err(Status::InvalidValue),
    })
}

/// Stores a value in the width that the C headers say for its attribute.
fn store(place: AttributeOut, attribute: u32, value: u64) {
    match attribute {
        6 | 8 | 10 | 13 | 15 => place.0.cast::<u8>().set(value as u8),
        2 | 9 | 16 => place.0.cast::<u32>().set(value as u32),
        _ => place.0.set(value),
    }
}
