//! Textures and surfaces: images in device memory, and how coordinates become values.
//!
//! [`image`] says where texels lie, [`format`] what they hold and [`sampler`] how they are read. [`registry`] gives the
//! handles that kernels pass. The formulas are those of CUDA's programming guide, "Texture Fetching"; the page "The
//! emulated device" of the documentation lists them with what we chose where the guide says nothing.

mod axis;
mod cube;
mod fetch;
pub mod format;
pub mod image;
mod level;
pub mod registry;
pub mod sampler;
mod texel;

pub use self::fetch::{Coordinates, Place};
pub use self::level::LevelChoice;

use self::image::Image;
use self::sampler::Sampler;

/// An image with the way to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    pub image: Image,
    pub sampler: Sampler,
}

/// How an instruction takes an image, as PTX names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    D1,
    D2,
    D3,
    A1,
    A2,
    Cube,
    CubeArray,
}

impl Geometry {
    pub fn parse(name: &str) -> Option<Geometry> {
        Some(match name {
            "1d" => Geometry::D1,
            "2d" => Geometry::D2,
            "3d" => Geometry::D3,
            "a1d" => Geometry::A1,
            "a2d" => Geometry::A2,
            "cube" => Geometry::Cube,
            "acube" => Geometry::CubeArray,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Geometry::D1 => "1d",
            Geometry::D2 => "2d",
            Geometry::D3 => "3d",
            Geometry::A1 => "a1d",
            Geometry::A2 => "a2d",
            Geometry::Cube => "cube",
            Geometry::CubeArray => "acube",
        }
    }

    /// Coordinates without the layer.
    pub fn axes(self) -> usize {
        match self {
            Geometry::D1 | Geometry::A1 => 1,
            Geometry::D2 | Geometry::A2 => 2,
            Geometry::D3 | Geometry::Cube | Geometry::CubeArray => 3,
        }
    }

    pub fn is_layered(self) -> bool {
        matches!(self, Geometry::A1 | Geometry::A2 | Geometry::CubeArray)
    }

    pub fn is_cube(self) -> bool {
        matches!(self, Geometry::Cube | Geometry::CubeArray)
    }

    /// Elements of the coordinate operand: three are padded to four.
    pub fn operand_elements(self) -> usize {
        match self.axes() + usize::from(self.is_layered()) {
            3 => 4,
            count => count,
        }
    }
}
