//! C functions for device, managed and pinned host memory, and for pointer attributes.

use std::ffi::c_void;

use gpufleet_surface::{
    argument::{In, Out},
    structs::memory::Location,
};

use crate::driver::{
    handle::Handle,
    memory, pinned,
    pointer::{self, PointerAttribute},
    status::{Answer, Status},
    stream,
};

pub(super) fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> Answer {
    address.fill(|| memory::alloc(bytes))
}

pub(super) fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) -> Answer {
    address.fill(|| memory::alloc_managed(bytes, flags))
}

pub(super) fn cuMemAllocPitch_v2(
    address: Out<u64>,
    pitch: Out<usize>,
    width_bytes: usize,
    height: usize,
    element_bytes: u32,
) -> Answer {
    if pitch.is_null() {
        return Err(Status::InvalidValue);
    }
    address.fill(|| {
        let pitched = memory::alloc_pitch(width_bytes, height, element_bytes)?;
        pitch.set(pitched.pitch);
        Ok(pitched.address)
    })
}

pub(super) fn cuMemFree_v2(address: u64) -> Answer {
    memory::free(address)
}

pub(super) fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Answer {
    let (free_bytes, total_bytes) = memory::info()?;
    free.fill(|| Ok(free_bytes))?;
    total.fill(|| Ok(total_bytes))
}

pub(super) fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) -> Answer {
    let (start, length) = memory::range(address)?;
    base.set(start);
    bytes.set(length);
    Ok(())
}

pub(super) fn cuMemHostAlloc(pointer: Out<usize>, bytes: usize, flags: u32) -> Answer {
    pointer.fill(|| pinned::alloc(bytes, flags))
}

pub(super) fn cuMemAllocHost_v2(pointer: Out<usize>, bytes: usize) -> Answer {
    pointer.fill(|| pinned::alloc(bytes, 0))
}

pub(super) fn cuMemFreeHost(pointer: usize) -> Answer {
    pinned::free(pointer)
}

pub(super) fn cuMemHostRegister_v2(pointer: Out<u8>, bytes: usize, flags: u32) -> Answer {
    pinned::register(pointer.pointer(), bytes, flags)
}

pub(super) fn cuMemHostUnregister(pointer: usize) -> Answer {
    pinned::unregister(pointer)
}

pub(super) fn cuMemHostGetDevicePointer_v2(address: Out<u64>, pointer: usize, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    address.fill(|| pinned::block(pointer).map(|_| pointer as u64))
}

pub(super) fn cuMemHostGetFlags(flags: Out<u32>, pointer: usize) -> Answer {
    // Registered memory has no flags.
    flags.fill(|| {
        let block = pinned::block(pointer)?;
        block.layout.map(|_| block.flags).ok_or(Status::InvalidValue)
    })
}

pub(super) fn cuPointerGetAttribute(value: Out<c_void>, attribute: u32, address: u64) -> Answer {
    if value.is_null() {
        return Err(Status::InvalidValue);
    }
    store(value, pointer::attribute(attribute, address)?);
    Ok(())
}

/// An attribute that an address does not have is 0 in this call, not an error.
pub(super) fn cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<c_void>>, address: u64) -> Answer {
    for index in 0..count as usize {
        let (attribute, value) = (attributes.at(index)?, values.at(index)?);
        match pointer::attribute(attribute, address) {
            Ok(known) => store(value, known),
            Err(_) => store(value, unknown(attribute)),
        }
    }
    Ok(())
}

/// Only checks that the range is managed: host and device share one memory, so hints about its location have no
/// effect.
pub(super) fn cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32) -> Answer {
    let _ = (advice, device);
    memory::check_managed(address, bytes)
}

pub(super) fn cuMemAdvise_v2(address: u64, bytes: usize, advice: u32, location: Location) -> Answer {
    let _ = (advice, location.kind, location.id);
    memory::check_managed(address, bytes)
}

pub(super) fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) -> Answer {
    address.fill(|| memory::alloc_async(bytes, None, stream))
}

pub(super) fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Answer {
    address.fill(|| memory::alloc_async(bytes, Some(pool), stream))
}

pub(super) fn cuMemFreeAsync(address: u64, stream: Handle) -> Answer {
    memory::free_async(address, stream)
}

pub(super) fn cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: Handle) -> Answer {
    let _ = device;
    stream::find(stream)?;
    memory::check_managed(address, bytes)
}

pub(super) fn cuMemPrefetchAsync_v2(
    address: u64,
    bytes: usize,
    location: Location,
    flags: u32,
    stream: Handle,
) -> Answer {
    let _ = (location.kind, location.id, flags);
    stream::find(stream)?;
    memory::check_managed(address, bytes)
}

pub(super) fn cuStreamAttachMemAsync(stream: Handle, address: u64, bytes: usize, flags: u32) -> Answer {
    let _ = flags;
    stream::find(stream)?;
    memory::check_managed(address, bytes)
}

fn store(place: Out<c_void>, value: PointerAttribute) {
    match value {
        PointerAttribute::Byte(value) => place.cast().set(value),
        PointerAttribute::Word(value) => place.cast().set(value),
        PointerAttribute::Double(value) => place.cast().set(value),
    }
}

fn unknown(attribute: u32) -> PointerAttribute {
    match attribute {
        6 | 8 | 10 | 13 | 15 => PointerAttribute::Byte(0),
        // A device ordinal that does not exist.
        9 => PointerAttribute::Word(u32::MAX - 1),
        2 | 16 => PointerAttribute::Word(0),
        _ => PointerAttribute::Double(0),
    }
}
