//! Accesses lane by lane: for addresses without a pattern, for local memory and parameters, for accesses with a memory
//! order, and for finding out which access is invalid.

use super::element::{Element, Plane};
use super::reach::{self, Local, Refused, View};
use super::run::Access;
use super::spread::gather;
use crate::ops::lanes::{HALF, LANES, store as put};

/// # Safety
/// As for [`super::run::Move`]; with `VECTOR`, on a machine that has what the vector build needs.
#[inline(always)]
pub unsafe fn load<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let bytes = size_of::<[E; COUNT]>() as u64;
    // SAFETY: every pointer was checked for the bytes of the access and is aligned to them; the slots are planes of the
    // frame. If other threads write this memory, it is the kernel's race. Every processor that this runs on moves whole
    // elements, and accesses with a memory order are atomic.
    unsafe {
        let mut pointers = [0; LANES];
        let resolve = if VECTOR { reach::vector } else { reach::portable };
        resolve(&mut pointers, &access.address, bytes, frame, mask, view, local)?;
        // All components are read before any register is written, because the address may be in one of them.
        let mut values = [[P::zero(); LANES]; COUNT];
        for (index, plane) in values.iter_mut().enumerate() {
            if access.ordered {
                for (value, pointer) in plane.iter_mut().zip(&pointers) {
                    *value = P::from_element(E::load_atomic((*pointer as *const E).add(index)));
                }
                continue;
            }
            for (values, pointers) in plane.chunks_exact_mut(HALF).zip(pointers.chunks_exact(HALF)) {
                gather::<P, VECTOR>(values.as_mut_ptr(), |lane| {
                    P::from_element(*(pointers[lane] as *const E).add(index))
                });
            }
        }
        for (plane, slot) in values.iter().zip(access.slots) {
            put::<P, VECTOR>(frame, slot, plane, mask);
        }
    }
    Ok(())
}

/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn store<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let bytes = size_of::<[E; COUNT]>() as u64;
    // SAFETY: as for loads.
    unsafe {
        let mut pointers = [0; LANES];
        let resolve = if VECTOR { reach::vector } else { reach::portable };
        resolve(&mut pointers, &access.address, bytes, frame, mask, view, local)?;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            for index in 0..COUNT {
                let element = (*frame.add(access.slots[index] as usize).cast::<P>().add(lane)).to_element::<E>();
                let place = (pointers[lane] as *mut E).add(index);
                if access.ordered { E::store_atomic(place, element) } else { *place = element }
            }
        }
    }
    Ok(())
}
