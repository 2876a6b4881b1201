//! The exported functions, one for each row of the table of calls.

use std::{
    collections::HashMap,
    ffi::{c_char, c_void},
    sync::LazyLock,
};

use gpufleet_remote::{
    kinds::{
        Address, Array, Context, Device, Event, Function, Graph, GraphExec, GraphNode, GreenContext, HostAddress,
        Kernel, Library, Link, MipmappedArray, Module, PhysicalMemory, Pool, Stream, SurfaceObject, SurfaceReference,
        TextureObject, TextureReference, UserObject,
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
    argument::{In, Out, Text, TextRoom},
    callback::{Callback, HostFunction, SharedOfBlock},
    every_row,
    image::Image,
    status::Answer,
    structs::{
        array::{FlatArray, MemoryRequirements, SolidArray},
        copy::{Rectangle, Volume},
        device::DeviceProperties,
        graph::{
            AllocateParams, AnyHead, FillParams, FirstKernelParams, HostParams, InstantiateParams, KernelParams,
            UpdateResult,
        },
        launch::LaunchConfig,
        memory::{Access, AllocationProperties, Location, PoolProperties},
        stream::WordOperation,
        texture::{ResourceDescription, Sampling, ViewDescription},
    },
};

use crate::boundary::{boundary, with_own_default};

macro_rules! exports {
    ($addresses:ident $area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($arguments:tt)*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(export! { $addresses $class $area $symbol ($($($arguments)*)?) $(twin $suffix)? $(old $old)? })+
    };
}

macro_rules! export {
    ($addresses:ident $class:ident $area:ident $symbol:ident $arguments:tt $(twin $suffix:ident)? $(old $old:ident)?) => {
        function! { $class $area $symbol $arguments }
        $addresses.insert(stringify!($symbol), $symbol as *const () as usize);
        $(twin! { $addresses $symbol $suffix $arguments })?
        $(old! { $symbol $old $arguments })?
    };
}

macro_rules! function {
    ($class:ident $area:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $symbol($($argument: $type),*) -> i32 {
            boundary(stringify!($symbol), || body! { $class $area $symbol ($($argument: $type),*) })
        }
    };
}

/// Exports a function for programs with a default stream per thread.
macro_rules! twin {
    ($addresses:ident $symbol:ident $suffix:ident ($($argument:ident: $type:ty),*)) => {
        $addresses.insert(concat!(stringify!($symbol), "_", stringify!($suffix)), {
            #[unsafe(export_name = concat!(stringify!($symbol), "_", stringify!($suffix)))]
            extern "C" fn twin($($argument: $type),*) -> i32 {
                with_own_default(|| $symbol($($argument),*))
            }
            twin as *const () as usize
        });
    };
}

macro_rules! old {
    ($symbol:ident $old:ident ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $old($($argument: $type),*) -> i32 {
            $symbol($($argument),*)
        }
    };
}

macro_rules! body {
    (refuse proc_address cuGetExportTable ($table:ident: $out:ty, $id:ident: $in:ty)) => {{
        let _ = $table;
        Err(crate::own::proc_address::no_export_table($id))
    }};
    (refuse $area:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {{
        $(let _ = $argument;)*
        Err(crate::messages::refuse(stringify!($symbol)))
    }};
    (local $area:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {{
        const BODY: fn($($type),*) -> Answer = crate::own::$area::$symbol;
        BODY($($argument),*)
    }};
    (own $area:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {{
        const BODY: fn($($type),*) -> Answer = crate::own::$area::$symbol;
        BODY($($argument),*)
    }};
    (own_post $($rest:tt)*) => { body! { own $($rest)* } };
    ($class:ident $area:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {
        crate::rows::$symbol($($argument),*)
    };
}

/// Returns the address of a function.
pub(crate) fn address(symbol: &str) -> Option<usize> {
    static ADDRESSES: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(addresses);
    ADDRESSES.get(symbol).copied()
}

fn addresses() -> HashMap<&'static str, usize> {
    let mut addresses = HashMap::new();
    every_row!(exports! addresses);
    addresses
}
