//! The calls that have a message, with the hash of their arguments. Program and session compare both when they meet, so
//! that a call which only one side has, or whose arguments differ, is a call that does not exist.

use std::{collections::HashMap, ffi::c_char, sync::LazyLock};

use gpufleet_surface::{
    argument::{In, Out, Text},
    callback::{Callback, HostFunction},
    every_row,
    image::Image,
    structs::{
        array::{FlatArray, MemoryRequirements, SolidArray},
        copy::Volume,
        graph::{AllocateParams, FillParams, HostParams, InstantiateParams, KernelParams, UpdateResult},
        launch::LaunchConfig,
        memory::{Access, AllocationProperties, Location, PoolProperties},
        stream::WordOperation,
        texture::{ResourceDescription, Sampling, ViewDescription},
    },
};

use crate::{
    kinds::{
        Address, Array, Context, Device, Event, Function, Graph, GraphExec, GraphNode, GreenContext, Kernel, Library,
        Link, MipmappedArray, Module, PhysicalMemory, Pool, Stream, SurfaceObject, SurfaceReference, TextureObject,
        TextureReference, UserObject,
    },
    roles::{
        Allocated, Always, AttributeId, AttributeIn, AttributeOut, Bytes, ContextFlags, Count, Count32, Extra,
        FreeBytes, Freed, FromHost, Frontier, FrontierCount, FrontierData, Given, Global, GlobalBytes, Gone, HostData,
        InOut, JitCount, JitInputs, JitKeys, JitValues, LinkedBytes, LinkedImage, ListRoom, Listed, Many, Metered,
        MeteredBytes, MeteredHeight, MeteredWidth, New, Parameters, PointerAttribute, Reserved, ReservedBytes, Room,
        RoomCount, ToHost, TotalBytes, Unsent, UnsentCount,
    },
    volume::HostVolume,
};

/// A call with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub symbol: &'static str,
    pub signature: u32,
}

/// Calls with a message that a driver does not have.
pub const OWN: [&str; 4] = [FUNCTION, OWNED, LINK_LOGS, THREAD_ENDED];
/// What a launch needs to know about a function.
pub const FUNCTION: &str = "gpufleet function";
/// Whether the session owns an address.
pub const OWNED: &str = "gpufleet owned";
/// The logs of a linking.
pub const LINK_LOGS: &str = "gpufleet link logs";
/// A thread of the program has ended.
pub const THREAD_ENDED: &str = "gpufleet thread ended";

macro_rules! list {
    ($calls:ident $area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($arguments:tt)*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(list_row! { $calls $class $symbol $($($arguments)*)? })+
    };
}

macro_rules! list_row {
    ($calls:ident local $($rest:tt)*) => {};
    ($calls:ident refuse $($rest:tt)*) => {};
    ($calls:ident $class:ident $symbol:ident $($argument:ident: $type:ty),*) => {
        $calls.push(Call {
            symbol: stringify!($symbol),
            signature: hash(&[$((stringify!($type), size_of::<$type>())),*]),
        });
    };
}

/// Returns all calls with a message.
pub fn calls() -> &'static [Call] {
    static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| {
        let mut calls = OWN.map(|symbol| Call { symbol, signature: 0 }).to_vec();
        every_row!(list! calls);
        calls
    });
    &CALLS
}

/// Returns the place of a call in [`calls`].
pub fn index(symbol: &str) -> u16 {
    static INDICES: LazyLock<HashMap<&'static str, u16>> =
        LazyLock::new(|| calls().iter().enumerate().map(|(index, call)| (call.symbol, index as u16)).collect());
    INDICES[symbol]
}

/// FNV-1a over the names and sizes of the types.
fn hash(types: &[(&str, usize)]) -> u32 {
    let bytes = types.iter().flat_map(|(name, size)| name.bytes().chain(size.to_le_bytes()));
    bytes.fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::{calls, hash, index};

    #[test]
    fn each_call_has_one_place() {
        for (place, call) in calls().iter().enumerate() {
            assert_eq!(usize::from(index(call.symbol)), place, "{}", call.symbol);
        }
        assert!(calls().iter().any(|call| call.symbol == "cuLaunchKernel"));
    }

    #[test]
    fn another_argument_is_another_signature() {
        assert_ne!(hash(&[("u32", 4)]), hash(&[("u32", 8)]));
        assert_ne!(hash(&[("u32", 4)]), hash(&[("f32", 4)]));
    }
}
