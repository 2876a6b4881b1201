//! Instructions that reach textures and surfaces.

use crate::program::memory::AtomicFunction;
use crate::ptx::types::Type;
use crate::texture::Geometry;

#[derive(Debug)]
pub enum Texturing {
    Fetch(Box<Fetch>),
    Surface(Box<SurfaceAccess>),
    Query(Box<Query>),
}

/// `tex` and `tld4`.
#[derive(Debug)]
pub struct Fetch {
    /// The slot of the texture's handle, and of the sampler's where the instruction names one.
    pub texture: u32,
    pub sampler: Option<u32>,
    pub geometry: Geometry,
    /// Coordinates are numbers of texels.
    pub by_texel: bool,
    /// Slots of the coordinates, as many as the geometry has axes.
    pub coordinates: Vec<u32>,
    pub layer: Option<u32>,
    pub offsets: Vec<u32>,
    pub level: FetchLevel,
    /// The component that `tld4` takes of four texels.
    pub gathered: Option<u8>,
    pub d: [u32; 4],
    /// A predicate that tells whether the texels are there, which they always are.
    pub resident: Option<u32>,
}

#[derive(Debug)]
pub enum FetchLevel {
    Base,
    Level(u32),
    Gradients([Vec<u32>; 2]),
}

/// `suld`, `sust` and `sured`.
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
    /// Elements of so many bytes; the first coordinate counts bytes.
    Load(u32),
    Store(u32),
    /// A texel, whose components are converted to the surface's format; the first coordinate counts texels.
    StoreTexel,
    /// Combines what is there with a value of this type. Of a texel, the surface's format tells whether it has a sign, and
    /// the first coordinate counts texels.
    Reduce {
        function: AtomicFunction,
        ty: Type,
        by_texel: bool,
    },
}

/// What an access outside of a surface does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Trap,
    /// It goes to the nearest place inside.
    Clamp,
    /// It loads zeros and stores nothing.
    Zero,
}

/// `txq` and `suq`.
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
