//! Textures of cases: their type, contents and sampling.
//!
//! The results of reads come from [`sample`], which implements the formulas of the CUDA C++ Programming Guide ("Texture
//! Fetching") independently and in exact arithmetic.

mod exact;
pub mod sample;
mod text;

use std::fmt;

use crate::inputs::Random;

/// Type of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    U8,
    U16,
    U32,
    S8,
    S16,
    S32,
    F16,
    F32,
}

/// Shape of a texture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Linear,
    Pitched,
    Line,
    Plane,
    Volume,
    Lines,
    Planes,
    Cube,
    Cubes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Wrap,
    Clamp,
    Mirror,
    Border,
}

/// How a texture is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub modes: [Mode; 3],
    pub linear: bool,
    pub normalized: bool,
    pub integers: bool,
    pub srgb: bool,
    pub border: [f32; 4],
    pub linear_levels: bool,
    pub bias: f32,
    pub levels: [f32; 2],
}

/// A texture or a surface, with all that a case needs to create it.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    pub shape: Shape,
    pub channel: Channel,
    pub channels: u32,
    /// Width, height, and depth, layers or faces; 1 for a missing axis.
    pub size: [u32; 3],
    pub levels: u32,
    pub is_surface: bool,
    pub sampling: Sampling,
}

impl Channel {
    pub const ALL: [Channel; 8] =
        [Channel::U8, Channel::U16, Channel::U32, Channel::S8, Channel::S16, Channel::S32, Channel::F16, Channel::F32];

    pub fn bytes(self) -> usize {
        match self {
            Channel::U8 | Channel::S8 => 1,
            Channel::U16 | Channel::S16 | Channel::F16 => 2,
            Channel::U32 | Channel::S32 | Channel::F32 => 4,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Channel::F16 | Channel::F32)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Channel::S8 | Channel::S16 | Channel::S32)
    }

    /// Draws a texel value: any integer, or a float of few bits, so that sums of a few are exact.
    fn draw(self, random: &mut Random) -> u32 {
        let bits = random.draw();
        let steps = (bits % 2001) as i32 - 1000;
        match self {
            Channel::F32 => (steps as f32 / 8.0).to_bits(),
            Channel::F16 => half_bits(steps),
            _ => bits as u32,
        }
    }
}

/// Returns the half that is this many eighths; there are fewer than 2048.
fn half_bits(eighths: i32) -> u32 {
    let magnitude = eighths.unsigned_abs();
    let sign = u32::from(eighths < 0) << 15;
    if magnitude == 0 {
        return sign;
    }
    let top = 31 - magnitude.leading_zeros();
    sign | (top + 15 - 3) << 10 | (magnitude << (10 - top)) & 0x3ff
}

impl Shape {
    pub fn has_layers(self) -> bool {
        matches!(self, Shape::Lines | Shape::Planes | Shape::Cube | Shape::Cubes)
    }

    pub fn is_cube(self) -> bool {
        matches!(self, Shape::Cube | Shape::Cubes)
    }

    /// Returns the number of filtered axes; those on a face for a cube map.
    pub fn axes(self) -> usize {
        match self {
            Shape::Linear | Shape::Line | Shape::Lines => 1,
            Shape::Volume => 3,
            Shape::Pitched | Shape::Plane | Shape::Planes | Shape::Cube | Shape::Cubes => 2,
        }
    }
}

impl Texture {
    pub fn texel_bytes(&self) -> usize {
        self.channel.bytes() * self.channels as usize
    }

    /// Returns width, height and depth of a level.
    pub fn level_size(&self, level: u32) -> [u32; 3] {
        let halved = self.size.map(|size| (size >> level).max(1));
        let depth = if self.shape.has_layers() { self.size[2] } else { halved[2] };
        [halved[0], halved[1], depth]
    }

    /// Returns the bytes of a level, texel by texel.
    pub fn level_bytes(&self, level: u32) -> Vec<u8> {
        let mut random = Random::named(&format!("{:?} {} {level}", self.channel, self.channels));
        let texels: u32 = self.level_size(level).iter().product();
        let values = (0..texels * self.channels).map(|_| self.channel.draw(&mut random));
        values.flat_map(|value| value.to_le_bytes().into_iter().take(self.channel.bytes())).collect()
    }

    /// Reports whether reads return floats.
    pub fn gives_floats(&self) -> bool {
        let small = self.channel.bytes() < 4;
        self.channel.is_float() || small && !self.sampling.integers
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Wrap => "wrap",
            Mode::Clamp => "clamp",
            Mode::Mirror => "mirror",
            Mode::Border => "border",
        })
    }
}
