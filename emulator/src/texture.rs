//! Textures and surfaces: images in device memory, and how coordinates become values.
//!
//! [`image`] says where texels are, [`format`] what they contain and [`sampler`] how they are read. [`registry`] hands
//! out the handles that kernels pass. The formulas are those of the CUDA C++ Programming Guide, "Texture Fetching". The
//! documentation page "Textures of the emulated device" lists them, with our choices where the guide is silent.

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

/// An image with its sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    pub image: Image,
    pub sampler: Sampler,
}

/// Shape of an image as PTX instructions name it.
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

    /// Returns the number of coordinates, without the layer.
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

    /// Returns the number of elements of the coordinate operand; three are padded to four.
    pub fn operand_elements(self) -> usize {
        match self.axes() + usize::from(self.is_layered()) {
            3 => 4,
            count => count,
        }
    }
}
