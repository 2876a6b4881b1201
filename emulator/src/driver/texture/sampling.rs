//! Sampling parameters of a texture (`CUDA_TEXTURE_DESC`).

use crate::driver::status::{Answer, Status};
use crate::texture::{
    Texture,
    image::Image,
    sampler::{AddressMode, Filter, Sampler},
};

/// Flags of a texture (`CU_TRSF_…`).
pub const READ_AS_INTEGER: u32 = 0x01;
pub const NORMALIZED: u32 = 0x02;
const SRGB: u32 = 0x10;
/// A hint without effect (`CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION`).
const EXACT_TRILINEAR: u32 = 0x20;

/// The fields of `CUDA_TEXTURE_DESC`, in the headers' own layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    pub address_modes: [u32; 3],
    pub filter: u32,
    pub flags: u32,
    pub anisotropy_max: u32,
    pub mipmap_filter: u32,
    pub level_bias: f32,
    pub level_min: f32,
    pub level_max: f32,
    pub border: [f32; 4],
    pub reserved: [i32; 12],
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            address_modes: [CLAMP; 3],
            filter: 0,
            flags: 0,
            anisotropy_max: 0,
            mipmap_filter: 0,
            level_bias: 0.0,
            level_min: 0.0,
            level_max: 0.0,
            border: [0.0; 4],
            reserved: [0; 12],
        }
    }
}

/// `CU_TR_ADDRESS_MODE_CLAMP`.
const CLAMP: u32 = 1;

impl Sampling {
    /// Combines the parameters with an image, if they fit together.
    pub fn texture(&self, image: Image) -> Answer<Texture> {
        let sampler = self.sampler()?;
        // Linear filtering needs float results.
        if sampler.filter == Filter::Linear && !sampler.gives_floats(image.format.channel) {
            return Err(Status::InvalidValue);
        }
        Ok(Texture { image, sampler })
    }

    fn sampler(&self) -> Answer<Sampler> {
        // Seamless cube maps are not supported.
        if self.flags & !(READ_AS_INTEGER | NORMALIZED | SRGB | EXACT_TRILINEAR) != 0 {
            return Err(Status::NotSupported);
        }
        let [x, y, z] = self.address_modes.map(address_mode);
        Ok(Sampler {
            address: [x?, y?, z?],
            filter: filter(self.filter)?,
            is_normalized: self.flags & NORMALIZED != 0,
            reads_integers: self.flags & READ_AS_INTEGER != 0,
            is_srgb: self.flags & SRGB != 0,
            border: self.border,
            mipmap_filter: filter(self.mipmap_filter)?,
            level_bias: self.level_bias,
            level_min: self.level_min,
            level_max: self.level_max,
        })
    }
}

/// Parses a `CUaddress_mode`.
pub fn address_mode(number: u32) -> Answer<AddressMode> {
    match number {
        0 => Ok(AddressMode::Wrap),
        CLAMP => Ok(AddressMode::Clamp),
        2 => Ok(AddressMode::Mirror),
        3 => Ok(AddressMode::Border),
        _ => Err(Status::InvalidValue),
    }
}

/// Parses a `CUfilter_mode`.
pub fn filter(number: u32) -> Answer<Filter> {
    match number {
        0 => Ok(Filter::Point),
        1 => Ok(Filter::Linear),
        _ => Err(Status::InvalidValue),
    }
}
