//! Samplers: how a texture is read.

use super::format::Channel;

/// Address mode: what a coordinate outside the image selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    Wrap,
    Clamp,
    Mirror,
    Border,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    Point,
    Linear,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    pub address: [AddressMode; 3],
    pub filter: Filter,
    /// Coordinates are normalized: from 0 to 1.
    pub is_normalized: bool,
    /// 8-bit and 16-bit integers are read as integers, not as fractions of their largest value.
    pub reads_integers: bool,
    /// The channels are sRGB values.
    pub is_srgb: bool,
    pub border: [f32; 4],
    pub mipmap_filter: Filter,
    pub level_bias: f32,
    pub level_min: f32,
    pub level_max: f32,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler {
            address: [AddressMode::Clamp; 3],
            filter: Filter::Point,
            is_normalized: false,
            reads_integers: false,
            is_srgb: false,
            border: [0.0; 4],
            mipmap_filter: Filter::Point,
            level_bias: 0.0,
            level_min: 0.0,
            level_max: 0.0,
        }
    }
}

impl Sampler {
    /// Reports whether reads of such channels return floats.
    pub fn gives_floats(&self, channel: Channel) -> bool {
        channel.is_float() || channel.is_normalizable() && !self.reads_integers
    }

    /// Combines this texture's sampler with the settings that an instruction's own sampler decides.
    pub fn with(&self, other: &Sampler) -> Sampler {
        Sampler {
            is_normalized: self.is_normalized,
            reads_integers: self.reads_integers,
            is_srgb: self.is_srgb,
            ..*other
        }
    }
}
