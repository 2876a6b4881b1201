//! Asynchronous copies, which are made at once.

use super::access::{Local, Refused, View, resolve};
use crate::lower::code::CopyAsync;
use crate::ops::lanes::{FULL, LANES, load_mask};

/// # Safety
/// The slots are planes of the frame, and the view and the local memory are live.
pub unsafe fn run(copy: &CopyAsync, frame: *mut u8, mask: u32, view: &mut View, local: Local) -> Result<(), Refused> {
    let bytes = u64::from(copy.bytes);
    // SAFETY: the caller vouches for frame, slots, view and local memory; every pointer is checked for the bytes of
    // the copy; a source of which nothing is read is not looked at.
    unsafe {
        let (mut targets, mut sources) = ([0; LANES], [0; LANES]);
        resolve(&mut targets, &copy.target, bytes, frame, mask, view, local)?;
        let ignored = copy.ignore.map_or(0, |(slot, negated)| load_mask(frame, slot) ^ if negated { FULL } else { 0 });
        let wanted = |lane: usize| match copy.source_bytes {
            _ if ignored >> lane & 1 != 0 => 0,
            Some(slot) => (*frame.add(slot as usize).cast::<u32>().add(lane)).min(copy.bytes),
            None => copy.bytes,
        };
        let reading = (0..LANES).filter(|lane| mask >> lane & 1 != 0 && wanted(*lane) > 0);
        let reading = reading.fold(0, |found, lane| found | 1 << lane);
        if reading != 0 {
            resolve(&mut sources, &copy.source, bytes, frame, reading, view, local)?;
        }
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let target = targets[lane] as *mut u8;
            let length = wanted(lane) as usize;
            if length > 0 {
                std::ptr::copy(sources[lane] as *const u8, target, length);
            }
            std::ptr::write_bytes(target.add(length), 0, copy.bytes as usize - length);
        }
    }
    Ok(())
}
