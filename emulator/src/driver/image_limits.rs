//! Maximum sizes of images in texels, from the CUDA C++ Programming Guide (table "Technical Specifications per Compute
//! Capability"), for compute capability 6.0 and later.

use super::array::description::{GATHER, SURFACE};
use crate::texture::image::Extent;

const WIDTH_1D: u64 = 131_072;
const SURFACE_WIDTH_1D: u64 = 32_768;
const SIZE_2D: [u64; 2] = [131_072, 65_536];
const SIZE_3D: u64 = 16_384;
const SIZE_LAYERED: u64 = 32_768;
const LAYERS: u64 = 2_048;
const FACES_LAYERED: u64 = 2_046;
const SIZE_GATHER: u64 = 32_768;
const SIZE_MIPMAPPED: u64 = 32_768;
const WIDTH_1D_MIPMAPPED: u64 = 32_768;
const SIZE_CUBE: u64 = 32_768;
/// Maximum texels of a texture over linear memory.
pub const LINEAR_TEXELS: u64 = 1 << 28;
pub const PITCHED_SIZE: [u64; 2] = [131_072, 65_000];
pub const PITCH: u64 = 2_097_120;
/// Alignment of the pitch of a texture over pitched linear memory, in bytes.
pub const PITCH_ALIGN: u64 = 32;

/// Reports whether a device supports this shape of array, with these flags.
pub fn allow(extent: Extent, is_mipmapped: bool, flags: u32) -> bool {
    let (is_surface, is_gathered) = (flags & SURFACE != 0, flags & GATHER != 0);
    let Extent { width, height, depth, is_layered, is_cube } = extent;
    let (plane, layers) = match (is_cube, is_layered) {
        (true, true) => ([SIZE_CUBE; 2], FACES_LAYERED),
        (true, false) => ([SIZE_CUBE; 2], 6),
        (false, true) => ([SIZE_LAYERED; 2], LAYERS),
        (false, false) if depth > 0 => ([SIZE_3D; 2], SIZE_3D),
        (false, false) if height == 0 && is_surface => ([SURFACE_WIDTH_1D, 0], 0),
        (false, false) if height == 0 && is_mipmapped => ([WIDTH_1D_MIPMAPPED, 0], 0),
        (false, false) if height == 0 => ([WIDTH_1D, 0], 0),
        (false, false) if is_mipmapped => ([SIZE_MIPMAPPED; 2], 0),
        (false, false) if is_gathered => ([SIZE_GATHER; 2], 0),
        (false, false) => (SIZE_2D, 0),
    };
    width <= plane[0] && height <= plane[1] && depth <= layers
}

/// Returns the limit behind a device attribute.
pub fn attribute(number: i32) -> Option<i32> {
    let value = match number {
        21 => WIDTH_1D,
        55 => SURFACE_WIDTH_1D,
        22 | 56 => SIZE_2D[0],
        23 | 57 => SIZE_2D[1],
        24..=26 | 47..=49 | 58..=60 => SIZE_3D,
        27 | 28 | 42 | 61 | 63 | 64 => SIZE_LAYERED,
        29 | 43 | 62 | 65 => LAYERS,
        44 => 1,
        45 | 46 => SIZE_GATHER,
        51 => PITCH_ALIGN,
        52 | 53 | 66 | 67 => SIZE_CUBE,
        54 | 68 => FACES_LAYERED,
        69 => LINEAR_TEXELS,
        70 => PITCHED_SIZE[0],
        71 => PITCHED_SIZE[1],
        72 => PITCH,
        73 | 74 => SIZE_MIPMAPPED,
        77 => WIDTH_1D_MIPMAPPED,
        _ => return None,
    };
    i32::try_from(value).ok()
}
