//! Loads and stores of whole warps. Every address is checked against what it may reach before the first byte moves.
//!
//! Most warps reach rows: neighbouring lanes reach neighbouring elements, or all the same one. Those are found and
//! checked at once ([`rows`]); anything else, and whatever is wrong, goes lane by lane ([`lanes`]).
//!
//! Blocks on other threads may reach the same memory. What is volatile or has a memory order is atomic by the element,
//! with a fence where the order is acquire or release. Weak accesses are plain ones through pointers that nothing else is
//! known about: a race between them, which CUDA leaves undefined too, gives some mixture of what was and is there.

mod element;
mod lanes;
mod reach;
mod rows;
#[cfg(target_arch = "x86_64")]
mod turn;

use self::element::{Element, Plane};
use crate::lower::code::Access;
use crate::ptx::types::Type;

pub use self::reach::{Local, Range, Refused, View, host_address, portable as resolve, shared_offsets, space_of};

/// A load or a store of one element type, in its two builds.
#[derive(Clone, Copy, Debug)]
pub struct AccessRun {
    pub portable: Move,
    pub vector: Move,
}

/// # Safety
/// The frame and the slots are as for the operations on lanes; the view's pointers are live for its sizes.
pub type Move = unsafe fn(&Access, *mut u8, u32, &mut View, Local) -> Result<(), Refused>;

#[inline(always)]
unsafe fn load<E: Element, P: Plane, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: the caller vouches for frame, slots, view and local memory, and for the machine.
    unsafe {
        let stride = size_of::<E>() as u64 * u64::from(access.count);
        match rows::find(access, stride, frame, mask, view) {
            Some(halves) => {
                match access.count {
                    1 => rows::load::<E, P, 1, VECTOR>(&halves, access, frame),
                    2 => rows::load::<E, P, 2, VECTOR>(&halves, access, frame),
                    _ => rows::load::<E, P, 4, VECTOR>(&halves, access, frame),
                }
                Ok(())
            }
            None => lanes::load::<E, P, VECTOR>(access, frame, mask, view, local),
        }
    }
}

#[inline(always)]
unsafe fn store<E: Element, P: Plane, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: as for loads.
    unsafe {
        let stride = size_of::<E>() as u64 * u64::from(access.count);
        match rows::find(access, stride, frame, mask, view) {
            Some(halves) => {
                match access.count {
                    1 => rows::store::<E, P, 1, VECTOR>(&halves, access, frame),
                    2 => rows::store::<E, P, 2, VECTOR>(&halves, access, frame),
                    _ => rows::store::<E, P, 4, VECTOR>(&halves, access, frame),
                }
                Ok(())
            }
            None => lanes::store::<E, P, VECTOR>(access, frame, mask, view, local),
        }
    }
}

/// Defines a maker of accesses: the body for any machine, and for the machine's vectors.
macro_rules! builds {
    ($maker:ident, $body:ident) => {
        fn $maker<E: Element, P: Plane>() -> AccessRun {
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn vector<E: Element, P: Plane>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Refused> {
                // SAFETY: the same contract.
                unsafe { $body::<E, P, { cfg!(target_arch = "x86_64") }>(access, frame, mask, view, local) }
            }
            AccessRun { portable: $body::<E, P, false>, vector: vector::<E, P> }
        }
    };
}

builds!(loads, load);
builds!(stores, store);

/// A load of elements of type `ty` to registers of 64 bits, where `wide`, or 32.
pub fn load_run(ty: Type, wide: bool) -> AccessRun {
    match (ty, wide) {
        (Type::S8, false) => loads::<i8, u32>(),
        (Type::S8, true) => loads::<i8, u64>(),
        (Type::S16, false) => loads::<i16, u32>(),
        (Type::S16, true) => loads::<i16, u64>(),
        (Type::S32, true) => loads::<i32, u64>(),
        _ => match (ty.bytes(), wide) {
            (1, false) => loads::<u8, u32>(),
            (1, true) => loads::<u8, u64>(),
            (2, false) => loads::<u16, u32>(),
            (2, true) => loads::<u16, u64>(),
            (4, false) => loads::<u32, u32>(),
            (4, true) => loads::<u32, u64>(),
            _ => loads::<u64, u64>(),
        },
    }
}

/// A store of elements of type `ty` from registers of 64 bits, where `wide`, or 32.
pub fn store_run(ty: Type, wide: bool) -> AccessRun {
    match (ty.bytes(), wide) {
        (1, false) => stores::<u8, u32>(),
        (1, true) => stores::<u8, u64>(),
        (2, false) => stores::<u16, u32>(),
        (2, true) => stores::<u16, u64>(),
        (4, false) => stores::<u32, u32>(),
        (4, true) => stores::<u32, u64>(),
        _ => stores::<u64, u64>(),
    }
}
