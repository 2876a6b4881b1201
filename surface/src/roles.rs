//! Names for what arguments are for, where the types of C do not say it. They are the plain types for a library that
//! runs the calls itself; one that sends them elsewhere has types of its own under these names.

use std::ffi::c_void;

use crate::{
    argument::{In, Out},
    handle::Handle,
    kinds::{Address, HostAddress},
    structs::copy::Volume,
};

/// The handle of an object that the call destroys.
pub type Gone<T> = T;

/// A place for a result that is stored after a failure too.
pub type Always<T> = Out<T>;

/// The number of an attribute of a launch.
pub type AttributeId = u32;
/// Flags of a context.
pub type ContextFlags = u32;

/// An array, whose length is the call's [`Count`].
pub type Many<T> = In<T>;
pub type Count = usize;
pub type Count32 = u32;

/// Room for an array. [`RoomCount`] is its length, and then the number of results.
pub type Room<T> = Out<T>;
pub type RoomCount = Out<usize>;

/// Room for an array, whose length is [`ListRoom`].
pub type Listed<T> = Out<T>;
pub type ListRoom = u32;

/// Memory of the program that the call reads or writes; [`Bytes`] is its length.
pub type FromHost = HostAddress;
pub type ToHost = HostAddress;
/// Bytes in the program's memory, of which the call keeps a copy.
pub type Given = In<u8>;
pub type Bytes = usize;

/// Options of a compilation, and their values: numbers, and buffers for logs.
pub type JitCount = u32;
pub type JitKeys = In<u32>;
pub type JitValues = Out<usize>;
pub type JitInputs = In<usize>;

/// Options without a meaning outside the program.
pub type Unsent<T> = In<T>;
pub type UnsentCount = u32;

/// Arguments of a kernel, by pointers or as a buffer.
pub type Parameters = In<*const u8>;
pub type Extra = In<usize>;

/// The value of an attribute, whose size depends on the attribute.
pub type AttributeOut = Out<c_void>;
pub type AttributeIn = In<c_void>;
/// An attribute of an address. Some are handles.
pub type PointerAttribute = u32;

/// New device memory, and its size.
pub type Allocated = Out<Address>;
pub type MeteredBytes = usize;
/// The rows of new device memory.
pub type MeteredWidth = usize;
pub type MeteredHeight = usize;
/// The description of a new array.
pub type Metered<T> = In<T>;
/// Addresses without memory.
pub type Reserved = Out<Address>;
pub type ReservedBytes = usize;
/// Device memory, or addresses, that the call frees.
pub type Freed = Address;
/// A variable of a module, and its size.
pub type Global = Out<Address>;
pub type GlobalBytes = Out<usize>;
/// How much device memory is free, and how much there is.
pub type FreeBytes = Out<usize>;
pub type TotalBytes = Out<usize>;

/// The linked image and its size. It belongs to the linking.
pub type LinkedImage = Out<*const u8>;
pub type LinkedBytes = Out<usize>;

/// What the program passes to a function of its own.
pub type HostData = *mut c_void;
/// The nodes on which the next node of a capture will depend, in memory of the driver.
pub type Frontier = Out<*const Handle>;
pub type FrontierData = Out<*const u64>;
pub type FrontierCount = Out<usize>;

/// A copy of which one side may be in the program's memory.
pub type HostVolume = In<Volume>;
