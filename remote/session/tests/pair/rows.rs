//! Every row of the table with arguments that are null, stale, or places for results.

use std::ffi::{c_char, c_void};

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

use crate::pair::{Mode, Pair, pair};

/// What arguments are in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Everything is null or 0.
    Null,
    /// Pointers are places that are 0, and everything else is null or 0.
    Places,
    /// Places, and handles that no driver gave out.
    Stale,
    /// Places, and addresses that no driver gave out.
    Lost,
}

const STALE: u64 = 0xDEAD_0000;

/// An argument of a round.
trait Made {
    fn made(round: Round, place: *mut u8) -> Self;
}

macro_rules! zeros {
    ($($type:ty)+) => {$(
        impl Made for $type {
            fn made(_: Round, _: *mut u8) -> Self {
                // SAFETY: these are numbers.
                unsafe { std::mem::zeroed() }
            }
        }
    )+};
}

zeros! {
    u8 u16 u32 u64 usize i32 f32
    Bytes Count Count32 JitCount ListRoom MeteredBytes MeteredHeight MeteredWidth PointerAttribute ReservedBytes
    UnsentCount Device AttributeId ContextFlags HostAddress FromHost ToHost HostData
}

macro_rules! handles {
    ($($type:ident)+) => {$(
        impl Made for $type {
            fn made(round: Round, _: *mut u8) -> Self {
                $type(if round == Round::Stale { STALE } else { 0 })
            }
        }
    )+};
}

handles! {
    Array Context Event Function Graph GraphExec GraphNode GreenContext Kernel Library Link MipmappedArray Module
    PhysicalMemory Pool Stream SurfaceObject SurfaceReference TextureObject TextureReference UserObject
}

impl<T: Made> Made for Gone<T> {
    fn made(round: Round, place: *mut u8) -> Self {
        Self(T::made(round, place))
    }
}

impl Made for Address {
    fn made(round: Round, _: *mut u8) -> Self {
        Self(if round == Round::Lost { STALE } else { 0 })
    }
}

impl Made for Freed {
    fn made(round: Round, place: *mut u8) -> Self {
        Self(Address::made(round, place))
    }
}

macro_rules! pointers {
    ($($type:ty $(, $parameter:ident)?;)+) => {$(
        impl$(<$parameter>)? Made for $type {
            fn made(round: Round, place: *mut u8) -> Self {
                let place = if round != Round::Null { place } else { std::ptr::null_mut() };
                // SAFETY: each of these types is a pointer, and the place has room for what any of them points to.
                unsafe { std::mem::transmute_copy(&place) }
            }
        }
    )+};
}

pointers! {
    In<T>, T;
    Out<T>, T;
    InOut<T>, T;
    Always<T>, T;
    Many<T>, T;
    Room<T>, T;
    Listed<T>, T;
    Metered<T>, T;
    Unsent<T>, T;
    Text;
    TextRoom;
    Image;
    Given;
    RoomCount;
    JitKeys;
    JitValues;
    JitInputs;
    Parameters;
    Extra;
    AttributeOut;
    AttributeIn;
    Allocated;
    Reserved;
    Global;
    GlobalBytes;
    FreeBytes;
    TotalBytes;
    LinkedImage;
    LinkedBytes;
    Frontier;
    FrontierData;
    FrontierCount;
    HostVolume;
}

macro_rules! functions {
    ($($type:ty)+) => {$(
        impl Made for Option<$type> {
            fn made(_: Round, _: *mut u8) -> Self {
                None
            }
        }
    )+};
}

functions! { HostFunction Callback SharedOfBlock }

/// Calls that may answer differently, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("cuCtxGetId", "the emulator says that a context is no handle, and not that it is no context"),
    ("cuGraphExecNodeSetParams", "two arguments are wrong"),
    ("cuGraphKernelNodeGetParams", "sessions lack it"),
    ("cuGraphKernelNodeGetParams_v2", "sessions lack it"),
    ("cuMemPoolGetAccess", "two arguments are wrong"),
    ("cuMemGetAddressRange_v2", "an address of others is null for the driver"),
    ("cuMemcpyAtoA_v2", "a session looks for the array, even if there is nothing to copy"),
    ("cuMemcpyAtoD_v2", "a session looks for the array, even if there is nothing to copy"),
    ("cuMemcpyAtoH_v2", "a session looks for the array, even if there is nothing to copy"),
    ("cuMemcpyDtoA_v2", "a session looks for the array, even if there is nothing to copy"),
    ("cuMemcpyHtoA_v2", "a session looks for the array, even if there is nothing to copy"),
    ("cuStreamBatchMemOp_v2", "a session looks for the stream, even if there is nothing to do"),
    ("cuStreamBeginCaptureToGraph", "two arguments are wrong"),
];

macro_rules! compare {
    ($pair:ident $round:ident $place:ident $different:ident $area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($argument:ident: $type:ty),*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(row! { $pair $round $place $different $class $symbol ($($($argument: $type),*)?) })+
    };
}

macro_rules! row {
    ($pair:ident $round:ident $place:ident $different:ident refuse $($rest:tt)*) => {};
    ($pair:ident $round:ident $place:ident $different:ident $class:ident $symbol:ident
        ($($argument:ident: $type:ty),*)
    ) => {
        // A stale address of the program's own memory is the program's crash.
        // Calls of earlier rows may have ended the context.
        start(&$pair);
        let codes = [$pair.here, $pair.there].map(|library| {
            $place.fill(0);
            let symbol = concat!(stringify!($symbol), "\0").as_bytes();
            // SAFETY: the symbol has these arguments in the C headers.
            let function = unsafe { library.get::<extern "C" fn($($type),*) -> i32>(symbol) }.unwrap();
            function($(<$type as Made>::made($round, $place.as_mut_ptr().cast())),*)
        });
        if codes[0] != codes[1] && !DIFFERENT.iter().any(|(symbol, _)| *symbol == stringify!($symbol)) {
            $different.push(format!(
                "{} ({:?}): {} here, {} there", stringify!($symbol), $round, codes[0], codes[1]
            ));
        }
    };
}

#[test]
fn every_call_answers_wrong_arguments_as_in_process() {
    let (pair, _one) = pair(Mode::Asks);
    let mut different = Vec::new();
    let mut room = vec![0_u64; 4096];
    for round in [Round::Null, Round::Places, Round::Stale, Round::Lost] {
        let place = &mut room;
        every_row!(compare! pair round place different);
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// Starts both drivers with a current context.
fn start(pair: &Pair) {
    for library in [pair.here, pair.there] {
        // SAFETY: the types of the functions in the C headers.
        unsafe {
            let init: extern "C" fn(u32) -> i32 = *library.get(b"cuInit\0").unwrap();
            let retain: extern "C" fn(*mut u64, i32) -> i32 = *library.get(b"cuDevicePrimaryCtxRetain\0").unwrap();
            let set: extern "C" fn(u64) -> i32 = *library.get(b"cuCtxSetCurrent\0").unwrap();
            let mut context = 0;
            assert_eq!(init(0), 0);
            assert_eq!(retain(&raw mut context, 0), 0);
            assert_eq!(set(context), 0);
        }
    }
}
