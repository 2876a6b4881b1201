//! What the numbers in the rows are: handles by their kind, devices and addresses.

use crate::handle::Handle;

pub type Array = Handle;
pub type Context = Handle;
pub type Event = Handle;
pub type Function = Handle;
pub type Graph = Handle;
pub type GraphExec = Handle;
pub type GraphNode = Handle;
pub type GreenContext = Handle;
pub type Kernel = Handle;
pub type Library = Handle;
/// `CUlinkState`.
pub type Link = Handle;
pub type MipmappedArray = Handle;
pub type Module = Handle;
/// `CUmemoryPool`.
pub type Pool = Handle;
pub type Stream = Handle;
pub type SurfaceReference = Handle;
pub type TextureReference = Handle;
pub type UserObject = Handle;

/// `CUmemGenericAllocationHandle`.
pub type PhysicalMemory = u64;
/// Objects that kernels get as arguments.
pub type SurfaceObject = u64;
pub type TextureObject = u64;

/// `CUdevice`, the number of a device.
pub type Device = i32;
/// `CUdeviceptr`, an address in device memory or in host memory that a device can reach.
pub type Address = u64;
/// An address in the memory of the caller's process.
pub type HostAddress = usize;
