//! Atomic operations (`atom`, `red`), lane by lane.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use half::{bf16, f16};

use super::access::{Local, Refused, View, resolve, shared_offsets};
use super::wide;
use crate::ops::float::{canonical, canonical64, flush};
use crate::ops::half::{Small, extreme, sum};
use crate::ops::lanes::{FULL, LANES, NO_SLOT};
use crate::program::memory::{Atomic, AtomicFunction, ELEMENTS_MAX};
use crate::ptx::types::Type;

/// Returns what an atomic writes, given the old value and its operands.
#[inline(always)]
pub fn combine(function: AtomicFunction, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    use AtomicFunction as F;
    match (function, ty) {
        (F::Add, Type::F32) => u64::from(canonical(f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits()),
        (F::Add, Type::F64) => canonical64(f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        (F::Add, Type::F16) => add::<f16>(old, b),
        (F::Add, Type::Bf16) => add::<bf16>(old, b),
        (F::Add, Type::F16x2) => add::<f16>(old, b) | add::<f16>(old >> 16, b >> 16) << 16,
        (F::Add, Type::Bf16x2) => add::<bf16>(old, b) | add::<bf16>(old >> 16, b >> 16) << 16,
        (F::Add, _) => old.wrapping_add(b),
        (F::Min, Type::F16) => least::<f16>(old, b),
        (F::Max, Type::F16) => greatest::<f16>(old, b),
        (F::Min, Type::Bf16) => least::<bf16>(old, b),
        (F::Max, Type::Bf16) => greatest::<bf16>(old, b),
        (F::Min, Type::F16x2) => least::<f16>(old, b) | least::<f16>(old >> 16, b >> 16) << 16,
        (F::Max, Type::F16x2) => greatest::<f16>(old, b) | greatest::<f16>(old >> 16, b >> 16) << 16,
        (F::Min, Type::Bf16x2) => least::<bf16>(old, b) | least::<bf16>(old >> 16, b >> 16) << 16,
        (F::Max, Type::Bf16x2) => greatest::<bf16>(old, b) | greatest::<bf16>(old >> 16, b >> 16) << 16,
        (F::And, _) => old & b,
        (F::Or, _) => old | b,
        (F::Xor, _) => old ^ b,
        (F::Exchange | F::Store, _) => b,
        (F::Load, _) => old,
        (F::CompareAndSwap, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        (F::Min, Type::S32) => (old as i32).min(b as i32) as u32 as u64,
        (F::Max, Type::S32) => (old as i32).max(b as i32) as u32 as u64,
        (F::Min, Type::S64) => (old as i64).min(b as i64) as u64,
        (F::Max, Type::S64) => (old as i64).max(b as i64) as u64,
        (F::Min, _) => old.min(b),
        (F::Max, _) => old.max(b),
        (F::Increment, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (F::Decrement, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}

/// Adds two 16-bit floats, given as bits.
fn add<T: Small>(a: u64, b: u64) -> u64 {
    sum(T::from_raw(a as u16), T::from_raw(b as u16)).raw().into()
}

fn least<T: Small>(a: u64, b: u64) -> u64 {
    extreme::<T, false, false>(T::from_raw(a as u16), T::from_raw(b as u16)).raw().into()
}

fn greatest<T: Small>(a: u64, b: u64) -> u64 {
    extreme::<T, true, false>(T::from_raw(a as u16), T::from_raw(b as u16)).raw().into()
}

/// Adds two f32 as devices do in global memory: subnormal numbers are flushed.
fn flushed_sum(a: u32, b: u32) -> u32 {
    let sum = flush::<true>(f32::from_bits(a)) + flush::<true>(f32::from_bits(b));
    flush::<true>(canonical(sum)).to_bits()
}

/// # Safety
/// The slots are planes of the frame, and the view and the local memory are live; where `vector`, the machine has its
/// vectors.
#[inline]
pub unsafe fn run(
    atomic: &Atomic,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
    vector: bool,
) -> Result<(), Refused> {
    // SAFETY: the same contract.
    unsafe {
        let sums = if vector { vector_sums } else { sums };
        if sums(atomic, frame, mask, view) { Ok(()) } else { singly(atomic, frame, mask, view, local) }
    }
}

/// Reports whether the operation adds 32-bit integers.
#[inline(always)]
fn adds_words(atomic: &Atomic) -> bool {
    let Atomic { function, ty, count, quad, .. } = *atomic;
    function == AtomicFunction::Add && ty.bytes() == 4 && !ty.is_float() && count == 1 && !quad
}

/// Runs the lanes one after the other. It is not inlined, because it needs a large stack frame.
///
/// # Safety
/// As for [`run`].
#[inline(never)]
unsafe fn singly(atomic: &Atomic, frame: *mut u8, mask: u32, view: &mut View, local: Local) -> Result<(), Refused> {
    let size = u64::from(atomic.ty.bytes());
    let bytes = if atomic.quad { 2 * size } else { size * atomic.count as u64 };
    // SAFETY: the caller vouches for frame, slots, view and local memory; every pointer is checked for the bytes of
    // the operation and aligned to them.
    unsafe {
        let mut pointers = [0; LANES];
        resolve(&mut pointers, &atomic.address, bytes, frame, mask, view, local)?;
        let shared = view.shared as u64..view.shared as u64 + view.shared_bytes;
        let adds_words = adds_words(atomic);
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            if adds_words {
                let place = AtomicU32::from_ptr(pointers[lane] as *mut u32);
                let old = place.fetch_add(operand(frame, atomic.b[0], lane, 4) as u32, Ordering::SeqCst);
                put(frame, atomic.d[0], lane, 4, old.into());
                continue;
            }
            if atomic.quad {
                run_quad(atomic, frame, lane, pointers[lane]);
                continue;
            }
            let flushes =
                atomic.ty == Type::F32 && atomic.function == AtomicFunction::Add && !shared.contains(&pointers[lane]);
            let c = operand(frame, atomic.c[0], lane, size);
            // All operands are read before a result is written, because a result may overwrite one of them.
            let mut b = [0; ELEMENTS_MAX];
            for (b, slot) in b.iter_mut().zip(&atomic.b[..atomic.count]) {
                *b = operand(frame, *slot, lane, size);
            }
            let mut place = pointers[lane];
            for (b, d) in b.iter().zip(atomic.d).take(atomic.count) {
                let old = apply(atomic, place, *b, c, flushes);
                put(frame, d, lane, size, old);
                place += size;
            }
        }
    }
    Ok(())
}

/// Handles the most frequent case: sums of words in shared memory. One host thread runs the block, so no other access
/// comes between the read and the write. Returns false for other cases and for invalid accesses.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn sums(atomic: &Atomic, frame: *mut u8, mask: u32, view: &View) -> bool {
    if !adds_words(atomic) {
        return false;
    }
    let mut offsets = [0; LANES];
    // SAFETY: the caller vouches for slots and view.
    unsafe {
        let found = shared_offsets(&mut offsets, &atomic.address, atomic.ty.bytes(), frame, mask, view);
        if found {
            add_words(atomic, &offsets, frame, mask, view.shared);
        }
        found
    }
}

/// Runs like [`sums`], in the build for the machine's vectors.
///
/// # Safety
/// As for [`run`], on a machine that has these vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
unsafe fn vector_sums(atomic: &Atomic, frame: *mut u8, mask: u32, view: &View) -> bool {
    // SAFETY: the same contract.
    unsafe { sums(atomic, frame, mask, view) }
}

/// # Safety
/// As for [`run`]; the offsets were checked.
#[inline(always)]
unsafe fn add_words(atomic: &Atomic, offsets: &[u32; LANES], frame: *mut u8, mask: u32, shared: *mut u8) {
    // SAFETY: the caller vouches for slots and offsets, which are aligned to the type.
    unsafe {
        let (values, d) = (frame.add(atomic.b[0] as usize).cast::<u32>(), atomic.d[0]);
        let add = |lane: usize| {
            let place = shared.add(offsets[lane] as usize).cast::<u32>();
            let old = *place;
            *place = old.wrapping_add(*values.add(lane));
            old
        };
        if mask == FULL && d == NO_SLOT {
            // Two nested loops, because compilers unroll the inner one and then jump less often.
            for part in (0..LANES).step_by(8) {
                for lane in part..part + 8 {
                    add(lane);
                }
            }
            return;
        }
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            let old = add(lane);
            put(frame, d, lane, 4, old.into());
        }
    }
}

/// Runs an operation on 128 bits.
///
/// # Safety
/// As for [`run`]; the pointer was checked.
unsafe fn run_quad(atomic: &Atomic, frame: *mut u8, lane: usize, pointer: u64) {
    // SAFETY: the caller vouches for slots and pointer.
    unsafe {
        let both = |slots: &[u32]| {
            u128::from(operand(frame, slots[0], lane, 8)) | u128::from(operand(frame, slots[1], lane, 8)) << 64
        };
        let (b, c) = (both(&atomic.b), both(&atomic.c));
        let old = wide::update(pointer as *mut u128, |old| match atomic.function {
            AtomicFunction::Load => old,
            AtomicFunction::CompareAndSwap => {
                if old == b {
                    c
                } else {
                    old
                }
            }
            _ => b,
        });
        put(frame, atomic.d[0], lane, 8, old as u64);
        put(frame, atomic.d[1], lane, 8, (old >> 64) as u64);
    }
}

/// # Safety
/// The slot, if it is one, is a plane of the frame.
#[inline(always)]
unsafe fn put(frame: *mut u8, slot: u32, lane: usize, bytes: u64, value: u64) {
    if slot == NO_SLOT {
        return;
    }
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let target = frame.add(slot as usize);
        if bytes == 8 {
            *target.cast::<u64>().add(lane) = value;
        } else {
            *target.cast::<u32>().add(lane) = value as u32;
        }
    }
}

/// # Safety
/// The slot is a plane of the frame.
#[inline(always)]
unsafe fn operand(frame: *mut u8, slot: u32, lane: usize, bytes: u64) -> u64 {
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let plane = frame.add(slot as usize);
        match bytes {
            8 => *plane.cast::<u64>().add(lane),
            4 => u64::from(*plane.cast::<u32>().add(lane)),
            _ => u64::from(*plane.cast::<u32>().add(lane) & 0xffff),
        }
    }
}

/// # Safety
/// The pointer is valid for the type's bytes and aligned to them.
#[inline(always)]
unsafe fn apply(atomic: &Atomic, pointer: u64, b: u64, c: u64, flushes: bool) -> u64 {
    let Atomic { function, ty, .. } = *atomic;
    let order = Ordering::SeqCst;
    // SAFETY: the caller vouches for the pointer; all other accesses to the place are atomic or the kernel's race.
    unsafe {
        match ty.bytes() {
            8 => {
                let place = AtomicU64::from_ptr(pointer as *mut u64);
                if function == AtomicFunction::Add && !ty.is_float() {
                    return place.fetch_add(b, order);
                }
                place.fetch_update(order, order, |old| Some(combine(function, ty, old, b, c))).unwrap_or_default()
            }
            4 => {
                let place = AtomicU32::from_ptr(pointer as *mut u32);
                if function == AtomicFunction::Add && !ty.is_float() {
                    return place.fetch_add(b as u32, order).into();
                }
                let update = |old| {
                    Some(if flushes {
                        flushed_sum(old, b as u32)
                    } else {
                        combine(function, ty, u64::from(old), b, c) as u32
                    })
                };
                place.fetch_update(order, order, update).unwrap_or_default().into()
            }
            _ => {
                let place = AtomicU16::from_ptr(pointer as *mut u16);
                let update = |old| Some(combine(function, ty, u64::from(old), b, c) as u16);
                place.fetch_update(order, order, update).unwrap_or_default().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicFunction, Type, combine};

    #[test]
    fn wrapping_counters_count_as_ptx_says() {
        let step = |function, old, limit| combine(function, Type::U32, old, limit, 0);
        assert_eq!(step(AtomicFunction::Increment, 4, 5), 5);
        assert_eq!(step(AtomicFunction::Increment, 5, 5), 0);
        assert_eq!(step(AtomicFunction::Decrement, 0, 5), 5);
        assert_eq!(step(AtomicFunction::Decrement, 9, 5), 5);
        assert_eq!(step(AtomicFunction::Decrement, 3, 5), 2);
    }

    #[test]
    fn signed_extremes_compare_as_signed() {
        assert_eq!(combine(AtomicFunction::Min, Type::S32, 0xffff_ffff, 1, 0), 0xffff_ffff);
        assert_eq!(combine(AtomicFunction::Max, Type::S32, 0xffff_ffff, 1, 0), 1);
        assert_eq!(combine(AtomicFunction::Max, Type::U32, 0xffff_ffff, 1, 0), 0xffff_ffff);
    }
}
