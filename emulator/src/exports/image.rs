//! A program of the caller's: PTX that ends with a NUL, or a container that says how long it is.

use std::ffi::c_char;
use std::panic::UnwindSafe;

use super::call::Text;
use crate::driver::status::{Answer, Status};
use crate::fat_binary::{HEADER_BYTES, MAGIC, WRAPPER_MAGIC, container_bytes};

/// Where a program begins.
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
    /// A file's name, or what was linked already.
    more: *const u8,
}

/// With a name of a file, and with containers that the container was linked from.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;

impl Image {
    /// All bytes of the program, without a NUL at the end.
    pub(super) fn bytes<'a>(self) -> Answer<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        if !self.starts_with(WRAPPER_MAGIC) {
            return if self.starts_with(MAGIC) { self.container() } else { self.text() };
        }
        // SAFETY: the caller vouches for a wrapper behind this magic, wherever it lies.
        let wrapper = unsafe { self.0.cast::<Wrapper>().read_unaligned() };
        let container = Self(wrapper.container);
        let is_known = VERSIONS.contains(&wrapper.version) && !container.0.is_null();
        if is_known && container.starts_with(MAGIC) { container.container() } else { Err(Status::InvalidImage) }
    }

    /// Looks at no byte behind the first that differs: a text may end there.
    fn starts_with(self, magic: [u8; 4]) -> bool {
        // SAFETY: the caller vouches for a program; none of its bytes so far was a NUL.
        (0..magic.len()).all(|index| unsafe { self.0.add(index).read() } == magic[index])
    }

    fn text<'a>(self) -> Answer<&'a [u8]> {
        Text::from_pointer(self.0.cast::<c_char>()).bytes()
    }

    fn container<'a>(self) -> Answer<&'a [u8]> {
        // SAFETY: the caller vouches for a container behind this magic, and for as many bytes as its header says.
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
