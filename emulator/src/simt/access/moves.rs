//! Moves the elements of rows to the planes of a frame and back.

use super::element::{Element, Plane};
use super::reach::Cache;
use super::rows::{Pair, Span};
use super::run::Access;
use super::spread::{gather, narrow, widen};
#[cfg(target_arch = "x86_64")]
use super::turn;
use crate::ops::lanes::{HALF, LANES};

/// Bytes of a cache line, the unit of prefetching.
const CACHE_LINE: usize = 64;

/// Prefetches the next row, if rows keep the distance that they had so far. The processor's own prefetcher recognises
/// only adjacent lines, while the threads of a grid that walk through memory together take large steps.
#[inline(always)]
pub fn fetch_next<E>(pair: &Pair, cache: Option<&mut Cache>) {
    let first = pair.first[0];
    if let (true, Some(cache)) = (pair.step == size_of::<E>() as u64, cache) {
        let next = first.wrapping_add(first.wrapping_sub(cache.reached));
        cache.reached = first;
        let mut byte = 0;
        while byte < LANES * size_of::<E>() {
            fetch(next.wrapping_add(byte as u64));
            byte += CACHE_LINE;
        }
    }
}

/// Prefetches an address, which need not be valid.
#[inline(always)]
fn fetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Returns the planes of the elements of an access.
///
/// # Safety
/// The slots are planes of the frame.
#[inline(always)]
pub unsafe fn planes<P, const COUNT: usize>(access: &Access, frame: *mut u8) -> [*mut P; COUNT] {
    // SAFETY: the caller vouches for the slots.
    std::array::from_fn(|component| unsafe { frame.add(access.slots[component] as usize).cast::<P>() })
}

/// Loads `COUNT` elements for each lane of the warp.
///
/// # Safety
/// The rows come from [`pair`](super::rows::pair) for this access and frame, whose planes these are; with `VECTOR`, the
/// machine has its vectors.
#[inline(always)]
pub unsafe fn load<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    pair: &Pair,
    targets: [*mut P; COUNT],
) {
    let ([low, high], step) = (pair.first.map(|first| first as *const [E; COUNT]), pair.step as usize);
    // SAFETY: the rows were checked and are aligned, the slots are planes of the frame; other threads' writes to
    // the same memory are the kernel's race, as for single lanes.
    unsafe {
        let behind = targets.map(|target| target.add(HALF));
        if step == 0 {
            repeat::<E, P, COUNT, VECTOR>(low, targets);
            repeat::<E, P, COUNT, VECTOR>(high, behind);
        } else {
            load_row::<E, P, COUNT, VECTOR>(low, step, targets);
            load_row::<E, P, COUNT, VECTOR>(high, step, behind);
        }
    }
}

/// Loads `COUNT` elements for each lane that is on.
///
/// # Safety
/// As for [`load`], with spans from [`halves`](super::rows::halves).
#[inline(always)]
pub unsafe fn load_halves<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    [low, high]: &[Span; 2],
    targets: [*mut P; COUNT],
) {
    // SAFETY: the same contract.
    unsafe {
        load_half::<E, P, COUNT, VECTOR>(low, targets);
        load_half::<E, P, COUNT, VECTOR>(high, targets.map(|target| target.add(HALF)));
    }
}

/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn load_half<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    half: &Span,
    targets: [*mut P; COUNT],
) {
    let (first, step) = (half.first as *const [E; COUNT], half.step as usize);
    // SAFETY: the caller vouches for the row and the planes.
    unsafe {
        if half.lanes < HALF {
            let targets = targets.map(|target| target.add(half.start));
            for lane in 0..half.lanes {
                let elements = *first.byte_add(lane * step);
                for component in 0..COUNT {
                    *targets[component].add(lane) = P::from_element(elements[component]);
                }
            }
        } else if step == 0 {
            repeat::<E, P, COUNT, VECTOR>(first, targets);
        } else {
            load_row::<E, P, COUNT, VECTOR>(first, step, targets);
        }
    }
}

/// Loads one set of elements for all lanes of half a warp.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn repeat<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    first: *const [E; COUNT],
    targets: [*mut P; COUNT],
) {
    // SAFETY: the caller vouches for the elements, the planes and the machine.
    unsafe {
        let elements = *first;
        for component in 0..COUNT {
            gather::<P, VECTOR>(targets[component], |_| P::from_element(elements[component]));
        }
    }
}

/// # Safety
/// The row can be read, and the targets have room for half a plane each; the vectors as for [`load`].
#[inline(always)]
unsafe fn load_row<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    first: *const [E; COUNT],
    step: usize,
    targets: [*mut P; COUNT],
) {
    // SAFETY: the caller vouches for all pointers. Elements and registers of four bytes are words for `turn`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR && COUNT == 4 && size_of::<E>() == 4 && size_of::<P>() == 4 {
            let targets = std::array::from_fn(|component| targets[component].cast());
            // For contiguous rows all offsets are known at compile time.
            match step {
                16 => turn::split(first.cast(), 16, targets),
                _ => turn::split(first.cast(), step, targets),
            }
            return;
        }
        if COUNT == 1 && step == size_of::<E>() {
            widen::<E, P, VECTOR>(first.cast(), targets[0]);
            return;
        }
        if step == size_of::<[E; COUNT]>() {
            let row = &*first.cast::<[[E; COUNT]; HALF]>();
            for (component, target) in targets.into_iter().enumerate() {
                let plane: [P; HALF] = std::array::from_fn(|lane| P::from_element(row[lane][component]));
                *target.cast::<[P; HALF]>() = plane;
            }
            return;
        }
        for (component, target) in targets.into_iter().enumerate() {
            let element = |lane: usize| *first.byte_add(lane * step).cast::<E>().add(component);
            gather::<P, VECTOR>(target, |lane| P::from_element(element(lane)));
        }
    }
}

/// Stores `COUNT` elements of each lane of the warp. If lanes access one element, the last lane's value remains.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn store<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    pair: &Pair,
    sources: [*mut P; COUNT],
) {
    let ([low, high], step) = (pair.first.map(|first| first as *mut [E; COUNT]), pair.step as usize);
    let sources = sources.map(|source| source.cast_const());
    // SAFETY: as for loads.
    unsafe {
        if step == 0 {
            *low = elements(sources, HALF - 1);
            *high = elements(sources, LANES - 1);
        } else {
            store_row::<E, P, COUNT, VECTOR>(low, step, sources);
            store_row::<E, P, COUNT, VECTOR>(high, step, sources.map(|source| source.add(HALF)));
        }
    }
}

/// Stores `COUNT` elements of each lane that is on, as [`store`] does.
///
/// # Safety
/// As for [`load_halves`].
#[inline(always)]
pub unsafe fn store_halves<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    [low, high]: &[Span; 2],
    sources: [*mut P; COUNT],
) {
    let sources = sources.map(|source| source.cast_const());
    // SAFETY: the same contract.
    unsafe {
        store_half::<E, P, COUNT, VECTOR>(low, sources);
        store_half::<E, P, COUNT, VECTOR>(high, sources.map(|source| source.add(HALF)));
    }
}

/// # Safety
/// As for [`load`].
#[inline(always)]
unsafe fn store_half<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    half: &Span,
    sources: [*const P; COUNT],
) {
    let (first, step) = (half.first as *mut [E; COUNT], half.step as usize);
    // SAFETY: the caller vouches for the row and the planes.
    unsafe {
        let sources = sources.map(|source| source.add(half.start));
        match half.lanes {
            0 => {}
            lanes if step == 0 => *first = elements(sources, lanes - 1),
            HALF => store_row::<E, P, COUNT, VECTOR>(first, step, sources),
            lanes => {
                for lane in 0..lanes {
                    *first.byte_add(lane * step) = elements(sources, lane);
                }
            }
        }
    }
}

/// Returns what a lane stores.
///
/// # Safety
/// The sources hold the lane.
#[inline(always)]
unsafe fn elements<E: Element, P: Plane, const COUNT: usize>(sources: [*const P; COUNT], lane: usize) -> [E; COUNT] {
    // SAFETY: the caller vouches for the planes.
    unsafe { std::array::from_fn(|component| (*sources[component].add(lane)).to_element()) }
}

/// # Safety
/// The row can be written, and the sources hold half a plane each; the vectors as for [`load`].
#[inline(always)]
unsafe fn store_row<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    first: *mut [E; COUNT],
    step: usize,
    sources: [*const P; COUNT],
) {
    // SAFETY: as for loading a row.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR && COUNT == 4 && size_of::<E>() == 4 && size_of::<P>() == 4 {
            let sources = std::array::from_fn(|component| sources[component].cast());
            match step {
                16 => turn::join(sources, first.cast(), 16),
                _ => turn::join(sources, first.cast(), step),
            }
            return;
        }
        if COUNT == 1 && step == size_of::<E>() {
            narrow::<E, P, VECTOR>(sources[0], first.cast());
            return;
        }
        let planes: [[P; HALF]; COUNT] = std::array::from_fn(|component| *sources[component].cast::<[P; HALF]>());
        let elements =
            |lane: usize| -> [E; COUNT] { std::array::from_fn(|component| planes[component][lane].to_element()) };
        if step == size_of::<[E; COUNT]>() {
            *first.cast::<[[E; COUNT]; HALF]>() = std::array::from_fn(elements);
            return;
        }
        for lane in 0..HALF {
            *first.byte_add(lane * step) = elements(lane);
        }
    }
}
