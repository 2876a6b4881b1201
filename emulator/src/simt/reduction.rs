//! Surface reductions (`sured`). Rows of an image may be misaligned for the host's atomics, so one lock orders all
//! reductions.

use std::sync::{Mutex, PoisonError};

use super::atomic::combine;
use crate::program::memory::AtomicFunction;
use crate::ptx::types::Type;
use crate::texture::format::{Channel, Format};

static ORDER: Mutex<()> = Mutex::new(());

/// Returns the type of a reduction on texels of a format; `None` if the format does not allow it.
pub fn texel_type(format: Format) -> Option<Type> {
    match (format.channel, format.channels) {
        (Channel::U32, 1) => Some(Type::U32),
        (Channel::S32, 1) => Some(Type::S32),
        _ => None,
    }
}

/// Combines the value in memory with an operand.
///
/// # Safety
/// The pointer is valid for the type's bytes.
pub unsafe fn run(function: AtomicFunction, ty: Type, pointer: *mut u8, value: u64) {
    let _order = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = ty.bytes() as usize;
    let mut old = [0; 8];
    // SAFETY: the caller vouches for the pointer, and no type has more than 8 bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer, old.as_mut_ptr(), bytes);
        let new = combine(function, ty, u64::from_le_bytes(old), value, 0).to_le_bytes();
        std::ptr::copy_nonoverlapping(new.as_ptr(), pointer, bytes);
    }
}
