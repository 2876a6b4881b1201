//! C functions for arrays and mipmapped arrays (`cuArray*`, `cuMipmappedArray*`).

use gpufleet_surface::{
    argument::{In, Out},
    structs::array::{FlatArray, MemoryRequirements, SolidArray},
};

use crate::driver::{
    array::{
        self, arrays,
        description::{Description, format, format_number},
        mipmapped_arrays,
    },
    driver,
    handle::Handle,
    status::{Answer, Status},
    texture::resource::linear_texels_max,
};
use crate::memory::ALLOCATION_ALIGN;

pub(super) fn cuArrayCreate_v2(array: Out<Handle>, flat: In<FlatArray>) -> Answer {
    array.fill(|| array::create(description(flat.get()?.into())?))
}

pub(super) fn cuArray3DCreate_v2(array: Out<Handle>, solid: In<SolidArray>) -> Answer {
    array.fill(|| array::create(description(solid.get()?)?))
}

pub(super) fn cuArrayGetDescriptor_v2(flat: Out<FlatArray>, array: Handle) -> Answer {
    flat.fill(|| Ok(solid(&arrays()?.get(array)?.description).into()))
}

pub(super) fn cuArray3DGetDescriptor_v2(place: Out<SolidArray>, array: Handle) -> Answer {
    place.fill(|| Ok(solid(&arrays()?.get(array)?.description)))
}

pub(super) fn cuArrayDestroy(array: Handle) -> Answer {
    array::destroy(array)
}

pub(super) fn cuArrayGetMemoryRequirements(
    requirements: Out<MemoryRequirements>,
    array: Handle,
    device: i32,
) -> Answer {
    requirements.fill(|| {
        driver()?.device(device)?;
        Ok(requirements_of(arrays()?.get(array)?.image.range()))
    })
}

pub(super) fn cuMipmappedArrayCreate(array: Out<Handle>, solid: In<SolidArray>, levels: u32) -> Answer {
    array.fill(|| array::create_mipmapped(description(solid.get()?)?, levels))
}

pub(super) fn cuMipmappedArrayDestroy(array: Handle) -> Answer {
    array::destroy_mipmapped(array)
}

pub(super) fn cuMipmappedArrayGetLevel(level: Out<Handle>, array: Handle, number: u32) -> Answer {
    level.fill(|| mipmapped_arrays()?.get(array)?.level(number))
}

pub(super) fn cuMipmappedArrayGetMemoryRequirements(
    requirements: Out<MemoryRequirements>,
    array: Handle,
    device: i32,
) -> Answer {
    requirements.fill(|| {
        driver()?.device(device)?;
        Ok(requirements_of(mipmapped_arrays()?.get(array)?.image.range()))
    })
}

pub(super) fn cuDeviceGetTexture1DLinearMaxWidth(
    texels: Out<usize>,
    format: u32,
    channels: u32,
    device: i32,
) -> Answer {
    texels.fill(|| {
        driver()?.device(device)?;
        linear_texels_max(format, channels).map(|texels| texels as usize)
    })
}

/// Returns the description that a caller's structure contains.
pub(super) fn description(solid: SolidArray) -> Answer<Description> {
    let format = format(solid.format, solid.channels)?;
    let size = |size: usize| u64::try_from(size).map_err(|_| Status::InvalidValue);
    let (width, height, depth) = (size(solid.width)?, size(solid.height)?, size(solid.depth)?);
    Ok(Description { width, height, depth, format, flags: solid.flags })
}

fn solid(description: &Description) -> SolidArray {
    let Description { width, height, depth, format, flags } = *description;
    let [width, height, depth] = [width, height, depth].map(|size| size as usize);
    let (format, channels) = (format_number(format.channel), format.channels);
    SolidArray { width, height, depth, format, channels, flags }
}

fn requirements_of((_, bytes): (u64, u64)) -> MemoryRequirements {
    MemoryRequirements { bytes: bytes as usize, alignment: ALLOCATION_ALIGN as usize, reserved: [0; 4] }
}
