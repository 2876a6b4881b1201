//! Segments of shared memory, pinned for the device's copy engines.

use std::io;
use std::os::fd::OwnedFd;

use cudarc::driver::sys;

use super::error::{CudaError, called};
use crate::ipc::{message::Place, segment::Segment};

/// Visible to every context of the process, as ours is the only one anyway.
const REGISTER_FLAGS: u32 = 0;

/// A mapped segment, pinned if the driver was willing.
#[derive(Debug)]
pub(crate) struct PinnedSegment {
    segment: Segment,
    is_pinned: bool,
}

impl PinnedSegment {
    /// Maps and pins. The second value says why it could not be pinned; copies then take the slow way and are still right.
    pub(crate) fn open(descriptor: OwnedFd, bytes: u64) -> io::Result<(Self, Option<CudaError>)> {
        let segment = Segment::open(descriptor, bytes)?;
        // SAFETY: the mapping is live, has this length, and is unregistered before it is unmapped.
        let registered =
            unsafe { sys::cuMemHostRegister_v2(segment.as_mut_ptr().cast(), segment.len(), REGISTER_FLAGS) }.result();
        let problem = called("cuMemHostRegister", registered).err();
        Ok((Self { segment, is_pinned: problem.is_none() }, problem))
    }

    /// The start of a range, if all of it lies inside.
    pub(crate) fn range(&self, place: Place, bytes: u64) -> Option<*mut u8> {
        let end = place.offset.checked_add(bytes)?;
        if end > self.segment.len() as u64 {
            return None;
        }
        // SAFETY: the offset was just checked to lie inside.
        Some(unsafe { self.segment.as_mut_ptr().add(place.offset as usize) })
    }
}

impl Drop for PinnedSegment {
    fn drop(&mut self) {
        if self.is_pinned {
            // SAFETY: it was registered and is still mapped; the supervisor drops a segment only when no job names it.
            let unregistered = unsafe { sys::cuMemHostUnregister(self.segment.as_mut_ptr().cast()) };
            if let Err(error) = called("cuMemHostUnregister", unregistered.result()) {
                eprintln!("could not unpin a segment: {error}");
            }
        }
    }
}
