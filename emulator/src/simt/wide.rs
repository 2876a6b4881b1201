//! 128-bit atomic operations, for which the standard library has no type.

use std::sync::{Mutex, PoisonError};

/// Number of locks for machines without the instruction: enough that locations seldom share one.
const LOCKS: usize = 64;
static PLACES: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];

/// Replaces the value at `place` by `next` of it; returns the old value.
///
/// # Safety
/// The place is aligned to 16 bytes and can be read and written. All concurrent changes go through this function.
pub unsafe fn update(place: *mut u128, next: impl Fn(u128) -> u128) -> u128 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("cmpxchg16b") {
        // SAFETY: the machine has the instruction; the caller vouches for the place.
        return unsafe { exchanged(place, next) };
    }
    let index = (place as usize / 16) % LOCKS;
    let _held = PLACES[index].lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller vouches for the place.
    unsafe {
        let old = place.read();
        place.write(next(old));
        old
    }
}

/// # Safety
/// As for [`update`], on a machine that has the instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn exchanged(place: *mut u128, next: impl Fn(u128) -> u128) -> u128 {
    // SAFETY: the caller vouches for the place. Whatever is there, zero is replaced by zero.
    let mut old = unsafe { compare_exchange(place, 0, 0) };
    loop {
        // SAFETY: as above.
        let found = unsafe { compare_exchange(place, old, next(old)) };
        if found == old {
            return old;
        }
        old = found;
    }
}

/// Writes `new` if the value is `old`; returns the value that was there.
///
/// # Safety
/// As for [`exchanged`].
#[cfg(target_arch = "x86_64")]
unsafe fn compare_exchange(place: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: the caller vouches for the place and the machine. The compiler reserves rbx, so its value is restored.
    unsafe {
        std::arch::asm!(
            "xchg {new}, rbx",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, {new}",
            new = inout(reg) new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            in("rdi") place,
            options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}
