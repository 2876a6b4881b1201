//! Properties of memory pools and of physical memory.

use crate::{
    kinds::{Device, HostAddress},
    status::{Answer, Status},
};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`, the only supported kind; and
/// `CU_MEM_HANDLE_TYPE_NONE`.
const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;
const NO_HANDLES: u32 = 0;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub location: Location,
    pub flags: u32,
}

/// `CUmemPoolProps`; the fields after the location have no effect here.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolProperties {
    pub allocation_type: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: HostAddress,
    pub bytes_max: u64,
    pub rest: [u64; 7],
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocationProperties {
    pub allocation_type: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: HostAddress,
    /// Requests compression; the properties of the handle say whether it was granted.
    pub compression: u8,
    pub is_for_rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

impl Location {
    pub fn on(device: Device) -> Self {
        Self { kind: ON_DEVICE, id: device }
    }

    /// Returns the device; other kinds of location are not supported.
    pub fn device(self) -> Answer<Device> {
        if self.kind == ON_DEVICE { Ok(self.id) } else { Err(Status::InvalidValue) }
    }
}

impl PoolProperties {
    /// Returns the properties of memory on a device.
    pub fn on(device: Device) -> Self {
        let (allocation_type, handle_types, location) = (PINNED, NO_HANDLES, Location::on(device));
        Self { allocation_type, handle_types, location, security: 0, bytes_max: 0, rest: [0; 7] }
    }

    /// Returns the device, or an error for memory that can be shared.
    pub fn device(&self) -> Answer<Device> {
        if self.allocation_type != PINNED {
            return Err(Status::InvalidValue);
        }
        let device = self.location.device()?;
        if self.handle_types == NO_HANDLES { Ok(device) } else { Err(Status::NotSupported) }
    }
}

impl AllocationProperties {
    /// Returns the properties of memory on a device.
    pub fn on(device: Device) -> Self {
        let (allocation_type, handle_types, location) = (PINNED, NO_HANDLES, Location::on(device));
        let (security, compression, is_for_rdma, usage, reserved) = (0, 0, 0, 0, [0; 4]);
        Self { allocation_type, handle_types, location, security, compression, is_for_rdma, usage, reserved }
    }

    /// Returns the device, or an error for memory that can be shared, accessed remotely or used for sparse arrays.
    pub fn device(&self) -> Answer<Device> {
        if self.allocation_type != PINNED {
            return Err(Status::InvalidValue);
        }
        if self.handle_types != NO_HANDLES || self.is_for_rdma != 0 || self.usage != 0 {
            return Err(Status::NotSupported);
        }
        self.location.device()
    }
}
