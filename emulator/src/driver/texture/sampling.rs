//! Sampling parameters of a texture (`CUDA_TEXTURE_DESC`).

use gpufleet_surface::structs::texture::{CLAMP, Sampling};

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

/// Combines the parameters with an image, if they fit together.
pub fn texture(sampling: &Sampling, image: Image) -> Answer<Texture> {
    let sampler = sampler(sampling)?;
    // Linear filtering needs float results.
    if sampler.filter == Filter::Linear && !sampler.gives_floats(image.format.channel) {
        return Err(Status::InvalidValue);
    }
    Ok(Texture { image, sampler })
}

fn sampler(sampling: &Sampling) -> Answer<Sampler> {
    // Seamless cube maps are not supported.
    if sampling.flags & !(READ_AS_INTEGER | NORMALIZED | SRGB | EXACT_TRILINEAR) != 0 {
        return Err(Status::NotSupported);
    }
    let [x, y, z] = sampling.address_modes.map(address_mode);
    Ok(Sampler {
        address: [x?, y?, z?],
        filter: filter(sampling.filter)?,
        is_normalized: sampling.flags & NORMALIZED != 0,
        reads_integers: sampling.flags & READ_AS_INTEGER != 0,
        is_srgb: sampling.flags & SRGB != 0,
        border: sampling.border,
        mipmap_filter: filter(sampling.mipmap_filter)?,
        level_bias: sampling.level_bias,
        level_min: sampling.level_min,
        level_max: sampling.level_max,
    })
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
