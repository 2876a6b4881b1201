//! Segments of shared memory, pinned for fast copies.

use std::{io, os::fd::OwnedFd, sync::OnceLock};

use cudarc::driver::sys;

use super::error::{CudaError, called};
use crate::ipc::{message::Place, segment::Segment};

/// Flags for pinning: none, because the process has only one context.
const REGISTER_FLAGS: u32 = 0;

/// A mapped segment, which is pinned at its first job if the driver allows it.
#[derive(Debug)]
pub(crate) struct PinnedSegment {
    segment: Segment,
    is_pinned: OnceLock<bool>,
}

impl PinnedSegment {
    pub(crate) fn open(descriptor: OwnedFd, bytes: u64) -> io::Result<Self> {
        Ok(Self { segment: Segment::open(descriptor, bytes)?, is_pinned: OnceLock::new() })
    }

    /// Returns whether no job has used the segment yet.
    pub(crate) fn is_new(&self) -> bool {
        self.is_pinned.get().is_none()
    }

    /// Pins the segment at the first call, which alone reports a failure. Without pinning, copies are slower but
    /// correct.
    pub(crate) fn pin(&self) -> Result<(), CudaError> {
        let mut problem = None;
        self.is_pinned.get_or_init(|| {
            let (start, length) = (self.segment.as_mut_ptr().cast(), self.segment.len());
            // SAFETY: the mapping is live, has this length, and is unregistered before it is unmapped.
            let registered = unsafe { sys::cuMemHostRegister_v2(start, length, REGISTER_FLAGS) }.result();
            problem = called("cuMemHostRegister", registered).err();
            problem.is_none()
        });
        problem.map_or(Ok(()), Err)
    }

    /// Returns the start of a range, if all of it is inside the segment.
    pub(crate) fn range(&self, place: Place, bytes: u64) -> Option<*mut u8> {
        let end = place.offset.checked_add(bytes)?;
        if end > self.segment.len() as u64 {
            return None;
        }
        // SAFETY: the check above ensures that the offset is inside the segment.
        Some(unsafe { self.segment.as_mut_ptr().add(place.offset as usize) })
    }
}

impl Drop for PinnedSegment {
    fn drop(&mut self) {
        if self.is_pinned.get() == Some(&true) {
            // SAFETY: the segment was registered and is still mapped, and the supervisor drops a segment only when no
            // job uses it.
            let unregistered = unsafe { sys::cuMemHostUnregister(self.segment.as_mut_ptr().cast()) };
            if let Err(error) = called("cuMemHostUnregister", unregistered.result()) {
                eprintln!("could not unpin a segment: {error}");
            }
        }
    }
}
