//! C functions for arrays and mipmapped arrays (`cuArray*`, `cuMipmappedArray*`).

use gpufleet_surface::argument::{In, Out};

use super::exports;
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

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Flat {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Solid {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Requirements {
    bytes: usize,
    alignment: usize,
    reserved: [u32; 4],
}

exports! {
    fn cuArrayCreate_v2(array: Out<Handle>, flat: In<Flat>) {
        array.fill(|| array::create(flat.get()?.description()?))
    }

    fn cuArray3DCreate_v2(array: Out<Handle>, solid: In<Solid>) {
        array.fill(|| array::create(solid.get()?.description()?))
    }

    fn cuArrayGetDescriptor_v2(flat: Out<Flat>, array: Handle) {
        flat.fill(|| Ok(Flat::of(&arrays()?.get(array)?.description)))
    }

    fn cuArray3DGetDescriptor_v2(solid: Out<Solid>, array: Handle) {
        solid.fill(|| Ok(Solid::of(&arrays()?.get(array)?.description)))
    }

    fn cuArrayDestroy(array: Handle) {
        array::destroy(array)
    }

    fn cuArrayGetMemoryRequirements(requirements: Out<Requirements>, array: Handle, device: i32) {
        requirements.fill(|| {
            driver()?.device(device)?;
            Ok(Requirements::of(arrays()?.get(array)?.image.range()))
        })
    }

    fn cuMipmappedArrayCreate(array: Out<Handle>, solid: In<Solid>, levels: u32) {
        array.fill(|| array::create_mipmapped(solid.get()?.description()?, levels))
    }

    fn cuMipmappedArrayDestroy(array: Handle) {
        array::destroy_mipmapped(array)
    }

    fn cuMipmappedArrayGetLevel(level: Out<Handle>, array: Handle, number: u32) {
        level.fill(|| mipmapped_arrays()?.get(array)?.level(number))
    }

    fn cuMipmappedArrayGetMemoryRequirements(requirements: Out<Requirements>, array: Handle, device: i32) {
        requirements.fill(|| {
            driver()?.device(device)?;
            Ok(Requirements::of(mipmapped_arrays()?.get(array)?.image.range()))
        })
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(texels: Out<usize>, format: u32, channels: u32, device: i32) {
        texels.fill(|| {
            driver()?.device(device)?;
            linear_texels_max(format, channels).map(|texels| texels as usize)
        })
    }
}

impl Flat {
    pub(super) fn description(&self) -> Answer<Description> {
        Solid {
            width: self.width,
            height: self.height,
            depth: 0,
            format: self.format,
            channels: self.channels,
            flags: 0,
        }
        .description()
    }

    fn of(description: &Description) -> Self {
        let Solid { width, height, format, channels, .. } = Solid::of(description);
        Self { width, height, format, channels }
    }
}

impl Solid {
    fn description(&self) -> Answer<Description> {
        let format = format(self.format, self.channels)?;
        let size = |size: usize| u64::try_from(size).map_err(|_| Status::InvalidValue);
        let (width, height, depth) = (size(self.width)?, size(self.height)?, size(self.depth)?);
        Ok(Description { width, height, depth, format, flags: self.flags })
    }

    fn of(description: &Description) -> Self {
        let Description { width, height, depth, format, flags } = *description;
        let [width, height, depth] = [width, height, depth].map(|size| size as usize);
        let (format, channels) = (format_number(format.channel), format.channels);
        Self { width, height, depth, format, channels, flags }
    }
}

impl Requirements {
    fn of((_, bytes): (u64, u64)) -> Self {
        Self { bytes: bytes as usize, alignment: ALLOCATION_ALIGN as usize, reserved: [0; 4] }
    }
}
