//! Asynchronous copies (`cp.async`), which are made immediately.

use super::access::{Local, Refused, View, resolve, resolve_parts};
use crate::ops::lanes::LANES;
use crate::program::memory::CopyAsync;

/// # Safety
/// The slots are planes of the frame, and the view and the local memory are live.
pub unsafe fn run(copy: &CopyAsync, frame: *mut u8, mask: u32, view: &mut View, local: Local) -> Result<(), Refused> {
    let bytes = copy.bytes as usize;
    // SAFETY: the caller vouches for frame, slots, view and local memory; every pointer is checked for the bytes that
    // are copied there or from there. A source of which nothing is read is not accessed.
    unsafe {
        let (mut targets, mut sources) = ([0; LANES], [0; LANES]);
        resolve(&mut targets, &copy.target, bytes as u64, frame, mask, view, local)?;
        let lengths = copy.part.map(|part| part.lengths(copy.bytes, frame, mask));
        match &lengths {
            None => resolve(&mut sources, &copy.source, bytes as u64, frame, mask, view, local),
            Some(lengths) => resolve_parts(&mut sources, &copy.source, copy.bytes, lengths, frame, view, local),
        }?;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let target = targets[lane] as *mut u8;
            let length = lengths.as_ref().map_or(bytes, |lengths| lengths[lane] as usize);
            if length > 0 {
                std::ptr::copy(sources[lane] as *const u8, target, length);
            }
            std::ptr::write_bytes(target.add(length), 0, bytes - length);
        }
    }
    Ok(())
}
