//! Images: a caller's program, as NUL-terminated PTX, or as a fat binary whose header contains its length.

use std::{ffi::c_char, panic::UnwindSafe};

use crate::{
    argument::Text,
    status::{Answer, Status},
};

/// Magic number at the start of a fat binary's container.
pub const CONTAINER_MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// Magic number of the wrapper that compilers put into programs; the wrapper contains the address of a container.
pub const WRAPPER_MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();
/// The start of an object file, and the bytes of its header.
const ELF_MAGIC: [u8; 4] = [0x7F, b'E', b'L', b'F'];
const ELF_HEADER_BYTES: usize = 64;
/// Bytes of a container's header: magic number, version, bytes of the header, and bytes of all entries together.
pub const HEADER_BYTES: usize = 16;

/// Pointer to the start of a program.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Image(*const u8);

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
    /// Makes an image from a pointer.
    ///
    /// # Safety
    /// The pointer is null, or to a whole image.
    pub unsafe fn from_pointer(pointer: *const u8) -> Self {
        Self(pointer)
    }

    /// Returns all bytes of the program, without a NUL at the end.
    pub fn bytes<'a>(self) -> Answer<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        if self.starts_with(ELF_MAGIC) {
            return Ok(self.object());
        }
        if !self.starts_with(WRAPPER_MAGIC) {
            return if self.starts_with(CONTAINER_MAGIC) { self.container() } else { self.text() };
        }
        // SAFETY: the caller vouches for a wrapper behind this magic number; it may be unaligned.
        let wrapper = unsafe { self.0.cast::<Wrapper>().read_unaligned() };
        let container = Self(wrapper.container);
        let is_known = VERSIONS.contains(&wrapper.version) && !container.0.is_null();
        if is_known && container.starts_with(CONTAINER_MAGIC) {
            container.container()
        } else {
            Err(Status::InvalidImage)
        }
    }

    /// Compares the first bytes. Reads nothing behind the first difference, because a text may end there.
    fn starts_with(self, magic: [u8; 4]) -> bool {
        // SAFETY: the caller vouches for a program; none of its bytes so far was a NUL.
        (0..magic.len()).all(|index| unsafe { self.0.add(index).read() } == magic[index])
    }

    fn text<'a>(self) -> Answer<&'a [u8]> {
        Text::from_pointer(self.0.cast::<c_char>()).bytes()
    }

    /// Returns an object file, which ends with one of the tables that its header names.
    fn object<'a>(self) -> &'a [u8] {
        // SAFETY: the caller vouches for an object file behind this magic number, with a whole header and as many bytes as
        // the header says.
        unsafe {
            let header = self.0.cast::<[u8; ELF_HEADER_BYTES]>().read();
            std::slice::from_raw_parts(self.0, object_bytes(&header))
        }
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

/// Returns where the last of the two tables ends that the header of a 64-bit object file names.
fn object_bytes(header: &[u8; ELF_HEADER_BYTES]) -> usize {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte])) as usize;
    // Of each table: its place, the size of its elements and their number.
    let end = |place: usize, size: usize, count: usize| u64_at(place).saturating_add(u16_at(size) * u16_at(count));
    end(32, 54, 56).max(end(40, 58, 60)).clamp(ELF_HEADER_BYTES, isize::MAX as usize)
}

/// Returns the size of the container with this header, in bytes.
pub fn container_bytes(header: &[u8; HEADER_BYTES]) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *header;
    let start = u16::from_le_bytes([header[6], header[7]]);
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).saturating_add(start.into())
}
