//! Texture and surface instructions.

use crate::program::memory::AtomicFunction;
use crate::ptx::types::Type;
use crate::texture::Geometry;

#[derive(Debug)]
pub enum Texturing {
    Fetch(Box<Fetch>),
    Surface(Box<SurfaceAccess>),
    Query(Box<Query>),
}

/// `tex` and `tld4`: a fetch.
#[derive(Debug)]
pub struct Fetch {
    /// Slot of the texture's handle, and of the sampler's if the instruction names one.
    pub texture: u32,
    pub sampler: Option<u32>,
    pub geometry: Geometry,
    /// True if coordinates are texel numbers (integers).
    pub by_texel: bool,
    /// Slots of the coordinates, one for each axis of the geometry.
    pub coordinates: Vec<u32>,
    pub layer: Option<u32>,
    pub offsets: Vec<u32>,
    pub level: FetchLevel,
    /// Component that `tld4` takes of each of four texels.
    pub gathered: Option<u8>,
    pub d: [u32; 4],
    /// Slot of a predicate that says whether the texels are resident; here they always are.
    pub resident: Option<u32>,
}

#[derive(Debug)]
pub enum FetchLevel {
    Base,
    Level(u32),
    Gradients([Vec<u32>; 2]),
}

/// `suld`, `sust` and `sured`: a surface access.
#[derive(Debug)]
pub struct SurfaceAccess {
    pub surface: u32,
    pub geometry: Geometry,
    pub coordinates: Vec<u32>,
    pub layer: Option<u32>,
    pub outside: Outside,
    pub action: SurfaceAction,
    pub values: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurfaceAction {
    /// `.b`: loads elements of this many bytes; the first coordinate counts bytes.
    Load(u32),
    Store(u32),
    /// `sust.p`: stores a texel, converted to the surface's format; the first coordinate counts texels.
    StoreTexel,
    /// `sured`: combines the memory with a value of this type. If `by_texel`, the surface's format decides about the
    /// sign, and the first coordinate counts texels.
    Reduce {
        function: AtomicFunction,
        ty: Type,
        by_texel: bool,
    },
}

/// What an access outside a surface does (`.trap`, `.clamp`, `.zero`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Trap,
    /// Accesses the nearest element inside.
    Clamp,
    /// Loads zeros and stores nothing.
    Zero,
}

/// `txq` and `suq`: a query of a texture's or surface's properties.
#[derive(Debug)]
pub struct Query {
    pub handle: u32,
    pub is_surface: bool,
    pub property: Property,
    pub level: Option<u32>,
    pub d: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    Width,
    Height,
    Depth,
    ArraySize,
    Levels,
    IsNormalized,
    ForcesUnnormalized,
    Filter,
    AddressMode(u8),
}
