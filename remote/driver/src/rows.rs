//! The calls that are sent as they are, and waited for or not: each function has the name and the arguments of its row in the table.

#![expect(clippy::too_many_arguments, reason = "functions have the names and arguments of their rows")]

use std::{ffi::c_char, sync::LazyLock};

use gpufleet_remote::{
    argument::{Argument, Sizes},
    calls::index,
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
use gpufleet_surface::{
    argument::{In, Out, Text},
    callback::{Callback, HostFunction},
    every_row,
    image::Image,
    status::Answer,
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

use crate::link::{ask, post};

macro_rules! rows {
    ($area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($arguments:tt)*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(row! { $class $symbol $($($arguments)*)? })+
    };
}

macro_rules! row {
    (local $($rest:tt)*) => {};
    (refuse $($rest:tt)*) => {};
    (post $($rest:tt)*) => { send! { post $($rest)* } };
    (own_post $($rest:tt)*) => { send! { post $($rest)* } };
    ($class:ident $($rest:tt)*) => { send! { ask $($rest)* } };
}

/// Sends a call in this way.
macro_rules! send {
    ($way:ident $symbol:ident $($argument:ident: $type:ty),*) => {
        pub(crate) fn $symbol($($argument: $type),*) -> Answer {
            static CALL: LazyLock<u16> = LazyLock::new(|| index(stringify!($symbol)));
            let sizes = Sizes::of(|_sizes| {
                $(Argument::announce($argument, _sizes);)*
            });
            let send = |_to: &mut Vec<u8>| {
                $(Argument::send($argument, &sizes, _to)?;)*
                Ok(())
            };
            $way(*CALL, send, |ok, _from| {
                let _sizes = Sizes { ok, ..sizes };
                $(Argument::receive($argument, &_sizes, _from)?;)*
                Ok(())
            })
        }
    };
}

every_row!(rows!);
