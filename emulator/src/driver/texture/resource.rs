//! Resources: the memory behind a texture or a surface.

use std::sync::Arc;

use crate::driver::{
    array::{
        arrays,
        description::{SURFACE, format},
        mipmapped_arrays,
    },
    context::Context,
    handle::Handle,
    image_limits::{LINEAR_TEXELS, PITCH, PITCH_ALIGN, PITCHED_SIZE},
    status::{Answer, Status},
};
use crate::memory::ALLOCATION_ALIGN;
use crate::texture::{
    format::{Channel, Format},
    image::{Extent, Image},
};

/// The fields of `CUDA_RESOURCE_DESC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Array(Handle),
    MipmappedArray(Handle),
    Linear { address: u64, format: Format, bytes: u64 },
    Pitched { address: u64, format: Format, width: u64, height: u64, pitch: u64 },
}

/// The fields of `CUDA_RESOURCE_VIEW_DESC`: a part of an array, perhaps in another format of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub format: u32,
    pub size: [u64; 3],
    pub levels: [u32; 2],
    pub layers: [u32; 2],
}

impl Resource {
    /// Returns the image of the resource, for a texture.
    pub fn image(&self, context: &Arc<Context>) -> Answer<Image> {
        match *self {
            Self::Array(array) => Ok(arrays()?.get(array)?.image.clone()),
            Self::MipmappedArray(array) => Ok(mipmapped_arrays()?.get(array)?.image.clone()),
            Self::Linear { address, format, bytes } => {
                let width = bytes / u64::from(format.texel_bytes());
                if width == 0 || width > LINEAR_TEXELS {
                    return Err(Status::InvalidValue);
                }
                checked(context, address, Image::linear(format, address, width))
            }
            Self::Pitched { address, format, width, height, pitch } => {
                let fits = (1..=PITCHED_SIZE[0]).contains(&width)
                    && (1..=PITCHED_SIZE[1]).contains(&height)
                    && pitch <= PITCH
                    && pitch.is_multiple_of(PITCH_ALIGN)
                    && pitch >= width * u64::from(format.texel_bytes());
                if !fits {
                    return Err(Status::InvalidValue);
                }
                checked(context, address, Image::pitched(format, address, width, height, pitch))
            }
        }
    }

    /// Returns the part of the resource that a texture shows; only arrays have views.
    pub fn shown(&self, context: &Arc<Context>, view: Option<View>) -> Answer<Image> {
        let image = self.image(context)?;
        match (self, view) {
            (_, None) => Ok(image),
            (Self::Array(_) | Self::MipmappedArray(_), Some(view)) => view.apply(&image),
            (Self::Linear { .. } | Self::Pitched { .. }, Some(_)) => Err(Status::InvalidValue),
        }
    }

    /// Returns the image of the resource, for a surface.
    pub fn surface(&self) -> Answer<Image> {
        let Self::Array(array) = *self else { return Err(Status::InvalidValue) };
        let array = arrays()?.get(array)?;
        if array.description.flags & SURFACE == 0 {
            return Err(Status::InvalidValue);
        }
        Ok(array.image.clone())
    }
}

/// Checks that the image's memory exists and is aligned for textures; returns the image.
fn checked(context: &Context, address: u64, image: Image) -> Answer<Image> {
    let (start, bytes) = image.range();
    let is_live = context.device.memory.check(start, bytes).is_ok();
    if is_live && address.is_multiple_of(ALLOCATION_ALIGN) { Ok(image) } else { Err(Status::InvalidValue) }
}

impl View {
    /// Returns the part of the image that the view shows.
    pub fn apply(&self, image: &Image) -> Answer<Image> {
        let [first, last] = self.levels;
        let levels = image.levels.get(first as usize..=last as usize).filter(|levels| !levels.is_empty());
        let levels = levels.ok_or(Status::InvalidValue)?;
        let Extent { width, height, depth, is_layered, is_cube } = image.extent;
        let has_layers = is_layered || is_cube;
        let format = self.format(image.format)?;
        // The view describes the size of the whole resource, even if it begins at another level.
        if self.size[..2] != [width, height] || !has_layers && self.size[2] != depth {
            return Err(Status::InvalidValue);
        }
        let mut view = Image { extent: image.extent.level(first), format, levels: levels.to_vec(), ..image.clone() };
        if has_layers {
            let [first, last] = self.layers.map(u64::from);
            if first > last || last >= depth || is_cube && (last + 1 - first) % 6 != 0 {
                return Err(Status::InvalidValue);
            }
            view.extent.depth = last + 1 - first;
            for level in &mut view.levels {
                level.address += first * level.slice();
                level.depth = last + 1 - first;
            }
        }
        Ok(view)
    }

    /// Returns the format in which the view reads texels, from `CUresourceViewFormat`; 0 is the array's own.
    fn format(&self, own: Format) -> Answer<Format> {
        const CHANNELS: [Channel; 8] = [
            Channel::U8,
            Channel::S8,
            Channel::U16,
            Channel::S16,
            Channel::U32,
            Channel::S32,
            Channel::F16,
            Channel::F32,
        ];
        let Some(index) = self.format.checked_sub(1) else { return Ok(own) };
        // Higher numbers are block-compressed formats.
        let channel = *CHANNELS.get(index as usize / 3).ok_or(Status::NotSupported)?;
        let format = Format { channel, channels: [1, 2, 4][index as usize % 3] };
        if format.texel_bytes() == own.texel_bytes() { Ok(format) } else { Err(Status::InvalidValue) }
    }
}

/// Returns the maximum texels of a texture over linear memory, in a format by its number.
pub fn linear_texels_max(number: u32, channels: u32) -> Answer<u64> {
    format(number, channels).map(|_| LINEAR_TEXELS)
}
