//! The exported functions: one for each row of the table of calls, around the body with the row's name.

use std::{
    collections::HashMap,
    ffi::{c_char, c_void},
};

use gpufleet_surface::{
    argument::{In, InOut, New, Out, Text, TextRoom},
    callback::{Callback, HostFunction, SharedOfBlock},
    every_row,
    image::Image,
    kinds::{
        Address, Array, Context, Device, Event, Function, Graph, GraphExec, GraphNode, GreenContext, HostAddress,
        Kernel, Library, Link, MipmappedArray, Module, PhysicalMemory, Pool, Stream, SurfaceObject, SurfaceReference,
        TextureObject, TextureReference, UserObject,
    },
    roles::{
        Allocated, Always, AttributeId, AttributeIn, AttributeOut, Bytes, ContextFlags, Count, Count32, Extra,
        FreeBytes, Freed, FromHost, Frontier, FrontierCount, FrontierData, Given, Global, GlobalBytes, Gone, HostData,
        HostVolume, JitCount, JitInputs, JitKeys, JitValues, LinkedBytes, LinkedImage, ListRoom, Listed, Many, Metered,
        MeteredBytes, MeteredHeight, MeteredWidth, Parameters, PointerAttribute, Reserved, ReservedBytes, Room,
        RoomCount, ToHost, TotalBytes, Unsent, UnsentCount,
    },
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

use super::boundary::boundary;
use crate::driver::{
    status::{Answer, Status},
    stream::with_own_default,
};

/// Exports the functions of an area.
macro_rules! export {
    ($addresses:ident $area:ident: $(
        $class:ident $($since:literal)? $name:ident $(($($arguments:tt)*))? $(twin $suffix:ident)? $(old $old:ident)?;
    )+) => {
        $(export_row! { $addresses $area $name $(($($arguments)*))? $(twin $suffix)? $(old $old)? })+
    };
}

macro_rules! export_row {
    ($addresses:ident $area:ident $name:ident) => {
        // The C calling convention lets a function ignore its arguments.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            Status::NotSupported.code()
        }
        $addresses.insert(stringify!($name), $name as *const () as usize);
    };
    ($addresses:ident $area:ident $name:ident $arguments:tt $(twin $suffix:ident)? $(old $old:ident)?) => {
        function! { $area $name $arguments }
        $addresses.insert(stringify!($name), $name as *const () as usize);
        $(twin! { $addresses $name $suffix $arguments })?
        $(old! { $name $old $arguments })?
    };
}

macro_rules! function {
    ($area:ident $name:ident ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            // The type of this constant refuses a body with other arguments.
            const BODY: fn($($type),*) -> Answer = super::$area::$name;
            boundary(stringify!($name), move || BODY($($argument),*))
        }
    };
}

/// Exports a function for programs with a default stream per thread.
macro_rules! twin {
    ($addresses:ident $name:ident $suffix:ident ($($argument:ident: $type:ty),*)) => {
        $addresses.insert(concat!(stringify!($name), "_", stringify!($suffix)), {
            #[unsafe(export_name = concat!(stringify!($name), "_", stringify!($suffix)))]
            extern "C" fn twin($($argument: $type),*) -> i32 {
                with_own_default(|| $name($($argument),*))
            }
            twin as *const () as usize
        });
    };
}

macro_rules! old {
    ($name:ident $old:ident ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $old($($argument: $type),*) -> i32 {
            $name($($argument),*)
        }
    };
}

/// Returns the addresses of the functions by their symbols.
pub(super) fn addresses() -> HashMap<&'static str, usize> {
    let mut addresses = HashMap::new();
    every_row!(export! addresses);
    addresses
}
