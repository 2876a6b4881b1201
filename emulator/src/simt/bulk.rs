//! Bulk copies (`cp.async.bulk`), which are made immediately. Each lane has a size of its own.

use super::access::{Local, View, resolve_bulk};
use super::phases::Failed;
use crate::ops::lanes::LANES;
use crate::program::memory::{BULK_ALIGN, CopyBulk, Part};

/// # Safety
/// The slots are planes of the frame, and the view and the local memory are live.
pub unsafe fn run(copy: &CopyBulk, frame: *mut u8, mask: u32, view: &mut View, local: Local) -> Result<(), Failed> {
    // SAFETY: the caller vouches for frame, slots, view and local memory; every pointer is checked for the bytes that
    // are copied there or from there.
    unsafe {
        let lengths = Part::Bulk(copy.bytes).lengths(BULK_ALIGN, frame, mask);
        if let Some(lane) = lengths.iter().position(|length| !length.is_multiple_of(BULK_ALIGN)) {
            return Err(Failed::Misuse(lane, "a bulk copy of a size that is no multiple of 16"));
        }
        let (mut targets, mut sources) = ([0; LANES], [0; LANES]);
        resolve_bulk(&mut targets, &copy.target, &lengths, frame, view, local).map_err(Failed::Access)?;
        resolve_bulk(&mut sources, &copy.source, &lengths, frame, view, local).map_err(Failed::Access)?;
        for lane in (0..LANES).filter(|lane| lengths[*lane] > 0) {
            std::ptr::copy(sources[lane] as *const u8, targets[lane] as *mut u8, lengths[lane] as usize);
        }
    }
    Ok(())
}
