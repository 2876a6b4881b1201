//! Images: a caller's program, as NUL-terminated PTX, or as a fat binary whose header contains its length.

use std::ffi::c_char;
use std::panic::UnwindSafe;

use super::call::Text;
use crate::driver::status::{Answer, Status};
use crate::fat_binary::{HEADER_BYTES, MAGIC, WRAPPER_MAGIC, container_bytes};

/// Pointer to the start of a program.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Image(*const u8);

impl UnwindSafe for Image {}

/// `__fatBinC_Wrapper_t`, which compilers put into programs.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wrapper {
    magic: u32,
    version: u32,
    container: *const u8,
    /// File name, or the fat binaries that this one was linked from.
    more: *const u8,
}

/// Version 1 has a file name, version 2 the fat binaries that it was linked from.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;

impl Image {
    /// Returns all bytes of the program, without a NUL at the end.
    pub(super) fn bytes<'a>(self) -> Answer<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        if !self.starts_with(WRAPPER_MAGIC) {
            return if self.starts_with(MAGIC) { self.container() } else { self.text() };
        }
        // SAFETY: the caller vouches for a wrapper behind this magic number; it may be unaligned.
        let wrapper = unsafe { self.0.cast::<Wrapper>().read_unaligned() };
        let container = Self(wrapper.container);
        let is_known = VERSIONS.contains(&wrapper.version) && !container.0.is_null();
        if is_known && container.starts_with(MAGIC) { container.container() } else { Err(Status::InvalidImage) }
    }

    /// Compares the first bytes. Reads nothing behind the first difference, because a text may end there.
    fn starts_with(self, magic: [u8; 4]) -> bool {
        // SAFETY: the caller vouches for a program; none of its bytes so far was a NUL.
        (0..magic.len()).all(|index| unsafe { self.0.add(index).read() } == magic[index])
    }

    fn text<'a>(self) -> Answer<&'a [u8]> {
        Text::from_pointer(self.0.cast::<c_char>()).bytes()
    }

    fn container<'a>(self) -> Answer<&'a [u8]> {
        // SAFETY: the caller vouches for a container behind this magic number, and for as many bytes as its header
        // says.
        unsafe {
            let header = self.0.cast::<[u8; HEADER_BYTES]>().read();
            let bytes = usize::try_from(container_bytes(&header)).map_err(|_| Status::InvalidImage)?;
            if bytes > isize::MAX as usize {
                return Err(Status::InvalidImage);
            }
            Ok(std::slice::from_raw_parts(self.0, bytes))
        }
    }
}
