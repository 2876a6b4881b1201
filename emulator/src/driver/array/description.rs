//! The description of an array (`CUDA_ARRAY3D_DESCRIPTOR`): its shape, its format and its flags.

use crate::driver::status::{Answer, Status};
use crate::texture::{
    format::{Channel, Format},
    image::Extent,
};

/// Flags of `CUDA_ARRAY3D_DESCRIPTOR` (`CUDA_ARRAY3D_…`).
pub const LAYERED: u32 = 0x1;
pub const SURFACE: u32 = 0x2;
pub const CUBE: u32 = 0x4;
pub const GATHER: u32 = 0x8;
/// A flag for graphics programs, which has no effect here.
const COLOR_ATTACHMENT: u32 = 0x20;
const FACES: u64 = 6;

/// The fields of `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub format: Format,
    pub flags: u32,
}

impl Description {
    /// Returns the shape, or an error if there is no such shape.
    pub fn extent(self) -> Answer<Extent> {
        let Self { width, height, depth, flags, .. } = self;
        if flags & !(LAYERED | SURFACE | CUBE | GATHER | COLOR_ATTACHMENT) != 0 {
            return Err(Status::NotSupported);
        }
        let (is_layered, is_cube) = (flags & LAYERED != 0, flags & CUBE != 0);
        let exists = match (is_layered, is_cube) {
            (false, false) => height > 0 || depth == 0,
            (true, false) => depth > 0,
            (false, true) => depth == FACES && width == height,
            (true, true) => depth > 0 && depth.is_multiple_of(FACES) && width == height,
        };
        // Only two-dimensional arrays support gather.
        let gathers = flags & GATHER == 0 || height > 0 && depth == 0;
        if width == 0 || !exists || !gathers {
            return Err(Status::InvalidValue);
        }
        Ok(Extent { width, height, depth, is_layered, is_cube })
    }
}

/// Returns the format for a `CUarray_format` and a number of channels.
pub fn format(number: u32, channels: u32) -> Answer<Format> {
    let channel = match number {
        0x01 => Channel::U8,
        0x02 => Channel::U16,
        0x03 => Channel::U32,
        0x08 => Channel::S8,
        0x09 => Channel::S16,
        0x0a => Channel::S32,
        0x10 => Channel::F16,
        0x20 => Channel::F32,
        // Block-compressed and video formats.
        0x91..=0x9f | 0xb0..=0x1ff => return Err(Status::NotSupported),
        _ => return Err(Status::InvalidValue),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(Format { channel, channels }) } else { Err(Status::InvalidValue) }
}

/// Returns the `CUarray_format` of a channel.
pub fn format_number(channel: Channel) -> u32 {
    match channel {
        Channel::U8 => 0x01,
        Channel::U16 => 0x02,
        Channel::U32 => 0x03,
        Channel::S8 => 0x08,
        Channel::S16 => 0x09,
        Channel::S32 => 0x0a,
        Channel::F16 => 0x10,
        Channel::F32 => 0x20,
    }
}
