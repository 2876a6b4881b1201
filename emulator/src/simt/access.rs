//! Loads and stores of whole warps. Every address is checked before the first byte moves.
//!
//! Most warps access rows: neighbouring lanes access neighbouring elements, or all lanes one element. Rows are found
//! and checked as a whole ([`rows`]). Rows of all lanes come first, in functions that need little stack. Everything
//! else, and every invalid access, goes lane by lane ([`lanes`]).
//!
//! Blocks on other threads may access the same memory. Volatile accesses and those with a memory order are atomic by
//! the element, with a fence for acquire or release. Weak accesses are plain accesses through raw pointers. A race
//! between them, which CUDA leaves undefined too, yields a mixture of old and new bytes.

mod element;
mod lanes;
mod moves;
mod parts;
mod pattern;
mod reach;
mod rows;
mod run;
mod spread;
#[cfg(target_arch = "x86_64")]
mod steps;
#[cfg(target_arch = "x86_64")]
mod turn;

use self::element::{Element, Plane};
use crate::program::memory::Reach;
use crate::ptx::types::Type;

pub use self::parts::{lengths_in, resolve_bulk, resolve_parts};
pub use self::reach::{
    Cache, Confined, Local, Refused, View, host_address, portable as resolve, shared_offsets, space_of,
};
pub use self::run::{Access, AccessRun};

#[inline(always)]
unsafe fn load<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
) -> bool {
    // SAFETY: the caller vouches for frame, slots and view, and for the machine.
    unsafe {
        let found = rows::pair::<VECTOR>(access, size_of::<[E; COUNT]>() as u64, frame, mask, view);
        let Some(pair) = found else { return false };
        if access.address.reach != Reach::Shared {
            moves::fetch_next::<[E; COUNT]>(&pair, view.caches.get_mut(access.address.cache as usize));
        }
        moves::load::<E, P, COUNT, VECTOR>(&pair, moves::planes(access, frame));
        true
    }
}

#[inline(always)]
unsafe fn load_apart<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: as for `load`, and the caller vouches for local memory.
    unsafe {
        match rows::halves(access, size_of::<[E; COUNT]>() as u64, frame, mask, view) {
            Some(spans) => {
                moves::load_halves::<E, P, COUNT, VECTOR>(&spans, moves::planes(access, frame));
                Ok(())
            }
            None => lanes::load::<E, P, COUNT, VECTOR>(access, frame, mask, view, local),
        }
    }
}

#[inline(always)]
unsafe fn store<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
) -> bool {
    // SAFETY: as for loads.
    unsafe {
        let found = rows::pair::<VECTOR>(access, size_of::<[E; COUNT]>() as u64, frame, mask, view);
        let Some(pair) = found else { return false };
        moves::store::<E, P, COUNT, VECTOR>(&pair, moves::planes(access, frame));
        true
    }
}

#[inline(always)]
unsafe fn store_apart<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: as for loads.
    unsafe {
        match rows::halves(access, size_of::<[E; COUNT]>() as u64, frame, mask, view) {
            Some(spans) => {
                moves::store_halves::<E, P, COUNT, VECTOR>(&spans, moves::planes(access, frame));
                Ok(())
            }
            None => lanes::store::<E, P, COUNT, VECTOR>(access, frame, mask, view, local),
        }
    }
}

/// Defines a constructor of accesses, whose bodies are compiled portably and for the machine's vectors.
macro_rules! builds {
    ($maker:ident, $pair:ident, $apart:ident) => {
        fn $maker<E: Element, P: Plane, const COUNT: usize>() -> AccessRun {
            unsafe fn portable<E: Element, P: Plane, const COUNT: usize>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Box<Refused>> {
                // SAFETY: the same contract.
                unsafe {
                    match $pair::<E, P, COUNT, false>(access, frame, mask, view) {
                        true => Ok(()),
                        false => (access.run.portable_apart)(access, frame, mask, view, local),
                    }
                }
            }
            unsafe fn portable_apart<E: Element, P: Plane, const COUNT: usize>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Box<Refused>> {
                // SAFETY: the same contract.
                unsafe { $apart::<E, P, COUNT, false>(access, frame, mask, view, local) }.map_err(Box::new)
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn vector<E: Element, P: Plane, const COUNT: usize>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Box<Refused>> {
                // SAFETY: the same contract.
                unsafe {
                    match $pair::<E, P, COUNT, VECTORS>(access, frame, mask, view) {
                        true => Ok(()),
                        false => (access.run.vector_apart)(access, frame, mask, view, local),
                    }
                }
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn vector_apart<E: Element, P: Plane, const COUNT: usize>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Box<Refused>> {
                // SAFETY: the same contract.
                unsafe { $apart::<E, P, COUNT, VECTORS>(access, frame, mask, view, local) }.map_err(Box::new)
            }
            AccessRun {
                portable: portable::<E, P, COUNT>,
                vector: vector::<E, P, COUNT>,
                portable_apart: portable_apart::<E, P, COUNT>,
                vector_apart: vector_apart::<E, P, COUNT>,
            }
        }
    };
}

/// True if there are vector builds for this processor.
const VECTORS: bool = cfg!(target_arch = "x86_64");

builds!(loads, load, load_apart);
builds!(stores, store, store_apart);

/// Defines a constructor of accesses of one, two or four elements.
macro_rules! counts {
    ($maker:ident, $of:ident) => {
        fn $maker<E: Element, P: Plane>(count: u32) -> AccessRun {
            match count {
                1 => $of::<E, P, 1>(),
                2 => $of::<E, P, 2>(),
                _ => $of::<E, P, 4>(),
            }
        }
    };
}

counts!(loads_of, loads);
counts!(stores_of, stores);

/// Returns a load of `count` elements of type `ty` to 64-bit registers if `wide`, or to 32-bit ones.
pub fn load_run(ty: Type, wide: bool, count: u32) -> AccessRun {
    match (ty, wide) {
        (Type::S8, false) => loads_of::<i8, u32>(count),
        (Type::S8, true) => loads_of::<i8, u64>(count),
        (Type::S16, false) => loads_of::<i16, u32>(count),
        (Type::S16, true) => loads_of::<i16, u64>(count),
        (Type::S32, true) => loads_of::<i32, u64>(count),
        _ => match (ty.bytes(), wide) {
            (1, false) => loads_of::<u8, u32>(count),
            (1, true) => loads_of::<u8, u64>(count),
            (2, false) => loads_of::<u16, u32>(count),
            (2, true) => loads_of::<u16, u64>(count),
            (4, false) => loads_of::<u32, u32>(count),
            (4, true) => loads_of::<u32, u64>(count),
            _ => loads_of::<u64, u64>(count),
        },
    }
}

/// Returns a store of `count` elements of type `ty` from 64-bit registers if `wide`, or from 32-bit ones.
pub fn store_run(ty: Type, wide: bool, count: u32) -> AccessRun {
    match (ty.bytes(), wide) {
        (1, false) => stores_of::<u8, u32>(count),
        (1, true) => stores_of::<u8, u64>(count),
        (2, false) => stores_of::<u16, u32>(count),
        (2, true) => stores_of::<u16, u64>(count),
        (4, false) => stores_of::<u32, u32>(count),
        (4, true) => stores_of::<u32, u64>(count),
        _ => stores_of::<u64, u64>(count),
    }
}
