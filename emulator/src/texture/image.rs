//! Images: the addresses of texels in device memory.

use super::Geometry;
use super::format::Format;

/// Storage of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program's linear memory, one texel after the other.
    Linear,
    /// The program's pitched memory, row after row.
    Pitched,
    Array,
}

/// Shape of a CUDA array. A height or depth of 0 means that it has no such axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub width: u64,
    pub height: u64,
    /// Depth; if `is_layered` the number of layers, if `is_cube` the number of faces.
    pub depth: u64,
    pub is_layered: bool,
    pub is_cube: bool,
}

/// One mipmap level. Every axis has at least one texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub address: u64,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    /// Bytes from the start of one row to that of the next.
    pub pitch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub kind: Kind,
    pub format: Format,
    /// Shape of the first level.
    pub extent: Extent,
    pub levels: Vec<Level>,
}

impl Extent {
    /// Returns the shape of a mipmap level: each level halves every axis, rounded down; layers and faces stay.
    pub fn level(self, level: u32) -> Extent {
        let halved = |size: u64| if size == 0 { 0 } else { (size >> level).max(1) };
        let depth = if self.is_layered || self.is_cube { self.depth } else { halved(self.depth) };
        Extent { width: halved(self.width), height: halved(self.height), depth, ..self }
    }

    /// Returns the maximum number of mipmap levels: down to a single texel.
    pub fn levels_max(self) -> u32 {
        let depth = if self.is_layered || self.is_cube { 1 } else { self.depth };
        64 - self.width.max(self.height).max(depth).max(1).leading_zeros()
    }

    fn texels(self) -> Option<u64> {
        self.width.checked_mul(self.height.max(1))?.checked_mul(self.depth.max(1))
    }
}

impl Level {
    /// Returns the bytes from one plane of rows to the next.
    pub fn slice(&self) -> u64 {
        self.pitch * self.height
    }

    /// Returns the address of a texel of `bytes` bytes.
    pub fn texel(&self, [x, y, z]: [u64; 3], bytes: u64) -> u64 {
        self.address + z * self.slice() + y * self.pitch + x * bytes
    }
}

impl Image {
    /// Returns the bytes of an array with this many levels; `None` if they exceed the address space.
    pub fn array_bytes(format: Format, extent: Extent, levels: u32) -> Option<u64> {
        (0..levels).try_fold(0u64, |sum, level| {
            sum.checked_add(extent.level(level).texels()?.checked_mul(format.texel_bytes().into())?)
        })
    }

    /// Describes an array whose levels follow each other from `address` on.
    pub fn array(format: Format, extent: Extent, levels: u32, address: u64) -> Image {
        let mut next = address;
        let levels = (0..levels).map(|level| {
            let Extent { width, height, depth, .. } = extent.level(level);
            let pitch = width * u64::from(format.texel_bytes());
            let level = Level { address: next, width, height: height.max(1), depth: depth.max(1), pitch };
            next += level.slice() * level.depth;
            level
        });
        Image { kind: Kind::Array, format, extent, levels: levels.collect() }
    }

    /// Describes `width` texels in linear memory.
    pub fn linear(format: Format, address: u64, width: u64) -> Image {
        let extent = Extent { width, height: 0, depth: 0, is_layered: false, is_cube: false };
        let pitch = width * u64::from(format.texel_bytes());
        let level = Level { address, width, height: 1, depth: 1, pitch };
        Image { kind: Kind::Linear, format, extent, levels: vec![level] }
    }

    /// Describes rows of texels that are `pitch` bytes apart.
    pub fn pitched(format: Format, address: u64, width: u64, height: u64, pitch: u64) -> Image {
        let extent = Extent { width, height, depth: 0, is_layered: false, is_cube: false };
        let level = Level { address, width, height, depth: 1, pitch };
        Image { kind: Kind::Pitched, format, extent, levels: vec![level] }
    }

    /// Returns one level of an array as an array of its own.
    pub fn level(&self, level: u32) -> Image {
        Image { extent: self.extent.level(level), levels: vec![self.levels[level as usize]], ..self.clone() }
    }

    /// Returns start and bytes of the memory that contains the texels.
    pub fn range(&self) -> (u64, u64) {
        let (first, last) = (self.levels.first(), self.levels.last());
        let (Some(first), Some(last)) = (first, last) else { return (0, 0) };
        // The last row ends with its texels, without padding.
        let row = last.width * u64::from(self.format.texel_bytes());
        let end = last.address + last.slice() * last.depth - last.pitch + row;
        (first.address, end - first.address)
    }

    /// Reports whether a texture instruction of this geometry may read the image.
    pub fn fits(&self, geometry: Geometry) -> bool {
        let Extent { height, depth, is_layered, is_cube, .. } = self.extent;
        let plain = !is_layered && !is_cube;
        match geometry {
            Geometry::D1 | Geometry::D2 if plain && height <= 1 => depth == 0,
            Geometry::D1 => false,
            Geometry::D2 => plain && depth == 0,
            Geometry::D3 => plain && depth > 0,
            Geometry::A1 => is_layered && !is_cube && height == 0,
            Geometry::A2 => is_layered && !is_cube && height > 0,
            Geometry::Cube => is_cube && !is_layered,
            Geometry::CubeArray => is_cube && is_layered,
        }
    }

    /// Reports whether a surface instruction of this geometry may access the image; it sees the faces of a cube as
    /// layers.
    pub fn fits_surface(&self, geometry: Geometry) -> bool {
        self.fits(geometry) || geometry == Geometry::A2 && self.extent.is_cube
    }

    /// Describes the shape, for reports.
    pub fn shape(&self) -> String {
        let Extent { width, height, depth, is_layered, is_cube } = self.extent;
        match (is_cube, is_layered, height, depth) {
            (true, false, ..) => format!("a cube map of {width} by {width} texels"),
            (true, true, ..) => format!("{} cube maps of {width} by {width} texels", depth / 6),
            (_, true, 0, layers) => format!("{layers} layers of {width} texels"),
            (_, true, ..) => format!("{depth} layers of {width} by {height} texels"),
            (_, _, 0, _) => format!("{width} texels"),
            (_, _, _, 0) => format!("{width} by {height} texels"),
            _ => format!("{width} by {height} by {depth} texels"),
        }
    }
}
