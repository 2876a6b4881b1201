//! C functions for virtual memory management (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and so on).

use gpufleet_surface::argument::{In, Out};

use super::{
    exports,
    pool::{Access, Location, NO_HANDLES, PINNED},
};
use crate::driver::{
    driver,
    handle::Handle,
    status::{Answer, Status},
    virtual_memory::{self, GRANULARITY},
};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location: Location,
    security: usize,
    /// Requests compression; the properties of the handle say whether it was granted.
    compression: u8,
    is_for_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl Properties {
    fn of(handle: Handle) -> Answer<Self> {
        let location = Location::on(virtual_memory::device_of(handle)?.ordinal);
        let (allocation_type, handle_types, security) = (PINNED, NO_HANDLES, 0);
        let (compression, is_for_rdma, usage, reserved) = (0, 0, 0, [0; 4]);
        Ok(Self { allocation_type, handle_types, location, security, compression, is_for_rdma, usage, reserved })
    }

    /// Returns the device, or an error for memory that can be shared, accessed remotely or used for sparse arrays.
    fn device(&self) -> Answer<i32> {
        if self.allocation_type != PINNED {
            return Err(Status::InvalidValue);
        }
        if self.handle_types != NO_HANDLES || self.is_for_rdma != 0 || self.usage != 0 {
            return Err(Status::NotSupported);
        }
        self.location.device()
    }
}

exports! {
    fn cuMemAddressReserve(address: Out<u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) {
        no_flags(flags)?;
        address.fill(|| virtual_memory::reserve(bytes as u64, alignment as u64, hint))
    }

    fn cuMemAddressFree(address: u64, bytes: usize) {
        virtual_memory::free(address, bytes as u64)
    }

    fn cuMemCreate(handle: Out<u64>, bytes: usize, properties: In<Properties>, flags: u64) {
        no_flags(flags)?;
        handle.fill(|| virtual_memory::create(properties.get()?.device()?, bytes as u64).map(|handle| handle as u64))
    }

    fn cuMemRelease(handle: u64) {
        virtual_memory::release(handle as Handle)
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) {
        handle.fill(|| virtual_memory::retain(address).map(|handle| handle as u64))
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        no_flags(flags)?;
        virtual_memory::map(address, bytes as u64, offset as u64, handle as Handle)
    }

    fn cuMemUnmap(address: u64, bytes: usize) {
        virtual_memory::unmap(address, bytes as u64)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, accesses: In<Access>, count: usize) {
        for index in 0..count {
            let Access { location, flags } = accesses.at(index)?;
            virtual_memory::set_access(address, bytes as u64, location.device()?, flags)?;
        }
        if count == 0 { Err(Status::InvalidValue) } else { Ok(()) }
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) {
        flags.fill(|| {
            let device = driver()?.device(location.get()?.device()?)?;
            virtual_memory::mapping(address).ok_or(Status::InvalidValue)?;
            Ok(virtual_memory::access(device, address).into())
        })
    }

    fn cuMemGetAllocationGranularity(bytes: Out<usize>, properties: In<Properties>, option: u32) {
        /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM` and `_RECOMMENDED`, which are equal here.
        const OPTIONS: std::ops::RangeInclusive<u32> = 0..=1;
        if !OPTIONS.contains(&option) {
            return Err(Status::InvalidValue);
        }
        bytes.fill(|| properties.get()?.device().map(|_| GRANULARITY as usize))
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: u64) {
        properties.fill(|| Properties::of(handle as Handle))
    }
}

fn no_flags(flags: u64) -> Answer {
    driver()?;
    if flags == 0 { Ok(()) } else { Err(Status::InvalidValue) }
}
