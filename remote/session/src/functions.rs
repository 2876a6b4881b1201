//! The calls that a session runs: for each row of the table a function that decodes the arguments, calls the driver and
//! encodes the results.

use std::{collections::HashMap, ffi::c_char};

use gpufleet_remote::{
    argument::{Argument, Fault},
    calls::{self, Call},
    codec::Reader,
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
    scope::Scope,
    volume::HostVolume,
};
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

use crate::native::Native;

/// Runs a call: the address of the driver's function, the arguments, and where results go. Returns the driver's code.
type Run = fn(&Native, usize, &mut Reader<'_>, &mut Scope<'_>, &mut Vec<u8>) -> Result<i32, Fault>;

/// A call of the driver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverCall {
    pub(crate) symbol: &'static str,
    run: Run,
    address: usize,
    /// For programs with a default stream per thread.
    twin: usize,
}

impl DriverCall {
    pub(crate) fn call(
        &self,
        native: &Native,
        is_twin: bool,
        from: &mut Reader<'_>,
        scope: &mut Scope<'_>,
        to: &mut Vec<u8>,
    ) -> Result<i32, Fault> {
        (self.run)(native, if is_twin { self.twin } else { self.address }, from, scope, to)
    }
}

macro_rules! list {
    ($all:ident $native:ident $area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($arguments:tt)*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(row! { $all $native $class $symbol ($($($arguments)*)?) $($suffix)? })+
    };
}

macro_rules! row {
    ($all:ident $native:ident local $($rest:tt)*) => {};
    ($all:ident $native:ident refuse $($rest:tt)*) => {};
    ($all:ident $native:ident $class:ident $symbol:ident ($($argument:ident: $type:ty),*) $($suffix:ident)?) => {
        if let Some(address) = $native.address(stringify!($symbol)) {
            fn run(
                native: &Native,
                address: usize,
                from: &mut Reader<'_>,
                scope: &mut Scope<'_>,
                to: &mut Vec<u8>,
            ) -> Result<i32, Fault> {
                let _ = &to;
                $(let mut $argument = <$type as Argument>::hold(from, scope)?;)*
                from.end()?;
                native.before(scope)?;
                scope.begin();
                // SAFETY: the address is that of the symbol, which has these arguments in the C headers.
                let function = unsafe {
                    std::mem::transmute::<usize, extern "C" fn($($type),*) -> i32>(address)
                };
                let code = function($(<$type as Argument>::lend(&mut $argument)),*);
                let code = native.after(scope, code);
                scope.ok = code == 0;
                $(<$type as Argument>::settle(&$argument, scope);)*
                $(<$type as Argument>::reply($argument, scope, to);)*
                Ok(code)
            }
            let twin = None$(.or($native.address(concat!(stringify!($symbol), "_", stringify!($suffix)))))?;
            let twin: usize = twin.unwrap_or(address);
            $all.insert(stringify!($symbol), DriverCall { symbol: stringify!($symbol), run, address, twin });
        }
    };
}

/// Returns the calls that a driver has.
pub(crate) fn functions(native: &Native) -> HashMap<&'static str, DriverCall> {
    let mut all = HashMap::new();
    every_row!(list! all native);
    all
}

/// Returns the call that a program names, if its arguments are ours.
pub(crate) fn known(symbol: &str, signature: u32) -> Option<&'static Call> {
    calls::calls().iter().find(|call| call.symbol == symbol && call.signature == signature)
}
