//! Loads and stores of whole warps. Every address is checked against what it may reach before the first byte moves.

mod element;
mod reach;

use self::element::{Element, Plane};
use self::reach::{WIDTH, any_bit};
use crate::lower::code::{Access, NO_SLOT};
use crate::ops::lanes::{FULL, LANES};
use crate::ptx::types::Type;

pub use self::reach::{Local, Range, Refused, View, host_address, portable as resolve, space_of};

/// Lanes that are looked at together for a pattern in their addresses: blocks are rarely narrower.
const TOGETHER: usize = 8;

/// A load or a store of one element type, in its two builds.
#[derive(Clone, Copy, Debug)]
pub struct AccessRun {
    pub portable: Move,
    pub vector: Move,
}

/// # Safety
/// The frame and the slots are as for the operations on lanes; the view's pointers are live for its sizes.
pub type Move = unsafe fn(&Access, *mut u8, u32, &mut View, Local) -> Result<(), Refused>;

/// Whether lane `n` reaches `n` steps behind lane 0.
#[inline(always)]
fn regular<const COUNT: usize>(pointers: &[u64], step: u64) -> bool {
    let mut differs = [0; WIDTH];
    let mut expected: [u64; WIDTH] = std::array::from_fn(|lane| pointers[0].wrapping_add(lane as u64 * step));
    for part in pointers[..COUNT].chunks_exact(WIDTH) {
        for lane in 0..WIDTH {
            differs[lane] |= part[lane] ^ expected[lane];
            expected[lane] = expected[lane].wrapping_add(WIDTH as u64 * step);
        }
    }
    any_bit(differs) == 0
}

#[inline(always)]
unsafe fn load<E: Element, P: Plane, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let size = size_of::<E>() as u64;
    let bytes = size * u64::from(access.count);
    // SAFETY: every pointer was checked for the bytes of the access and is aligned to them; the slots are planes of
    // the frame. Other threads may write the same memory: the kernel's race, of whole elements on every processor
    // that this runs on. The vector build calls the vector build.
    unsafe {
        let mut pointers = [0; LANES];
        let resolve = if VECTOR { reach::vector } else { reach::portable };
        resolve(&mut pointers, &access.address, bytes, frame, mask, view, local)?;
        if access.count == 1 {
            let values = if regular::<LANES>(&pointers, size) {
                (*(pointers[0] as *const [E; LANES])).map(P::from_element)
            } else {
                gather::<E, P>(&pointers, size)
            };
            if access.slots[0] != NO_SLOT {
                put(frame, access.slots[0], &values, mask);
            }
            return Ok(());
        }
        // All components are read before any register is written: the address may be one of them.
        let mut values = [[P::from_element(*(pointers[0] as *const E)); LANES]; 4];
        let count = access.count as usize;
        for (index, plane) in values.iter_mut().take(count).enumerate() {
            for (value, pointer) in plane.iter_mut().zip(&pointers) {
                *value = P::from_element(*(*pointer as *const E).add(index));
            }
        }
        for (plane, slot) in values.iter().zip(access.slots).take(count) {
            if slot != NO_SLOT {
                put(frame, slot, plane, mask);
            }
        }
    }
    Ok(())
}

/// One element for each lane. Rows and repetitions, which narrow blocks make, move as a whole.
///
/// # Safety
/// The pointers can be read and are aligned.
#[inline(always)]
unsafe fn gather<E: Element, P: Plane>(pointers: &[u64; LANES], size: u64) -> [P; LANES] {
    // SAFETY: the caller vouches for the pointers; those of a row or a repetition are among them.
    unsafe {
        let mut values = [P::from_element(*(pointers[0] as *const E)); LANES];
        for (values, pointers) in values.chunks_exact_mut(TOGETHER).zip(pointers.chunks_exact(TOGETHER)) {
            let first = pointers[0] as *const E;
            if regular::<TOGETHER>(pointers, size) {
                let row = &*first.cast::<[E; TOGETHER]>();
                for lane in 0..TOGETHER {
                    values[lane] = P::from_element(row[lane]);
                }
            } else if regular::<TOGETHER>(pointers, 0) {
                values.fill(P::from_element(*first));
            } else {
                for lane in 0..TOGETHER {
                    values[lane] = P::from_element(*(pointers[lane] as *const E));
                }
            }
        }
        values
    }
}

/// # Safety
/// The slot is a plane of the frame.
#[inline(always)]
unsafe fn put<P: Plane>(frame: *mut u8, slot: u32, values: &[P; LANES], mask: u32) {
    // SAFETY: the caller vouches for the slot.
    let target = unsafe { &mut *frame.add(slot as usize).cast::<[P; LANES]>() };
    if mask == FULL {
        *target = *values;
    } else {
        for lane in 0..LANES {
            target[lane] = if mask >> lane & 1 != 0 { values[lane] } else { target[lane] };
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
    let size = size_of::<E>() as u64;
    let bytes = size * u64::from(access.count);
    // SAFETY: as for loads.
    unsafe {
        let mut pointers = [0; LANES];
        let resolve = if VECTOR { reach::vector } else { reach::portable };
        resolve(&mut pointers, &access.address, bytes, frame, mask, view, local)?;
        if access.count == 1 && mask == FULL && regular::<LANES>(&pointers, size) {
            let values = &*frame.add(access.slots[0] as usize).cast::<[P; LANES]>();
            let row = &mut *(pointers[0] as *mut [E; LANES]);
            for lane in 0..LANES {
                row[lane] = values[lane].to_element();
            }
            return Ok(());
        }
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            for index in 0..access.count as usize {
                let values = frame.add(access.slots[index] as usize).cast::<P>();
                *(pointers[lane] as *mut E).add(index) = (*values.add(lane)).to_element();
            }
        }
    }
    Ok(())
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
                unsafe { $body::<E, P, true>(access, frame, mask, view, local) }
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
