//! C functions for the texture and surface references of modules (`cuTexRef*`, `cuSurfRef*`).

use gpufleet_surface::{
    argument::{In, Out, Text},
    structs::array::FlatArray,
};

use super::array;
use crate::driver::{
    array::description::{self, Description, format_number},
    handle::Handle,
    module,
    status::{Answer, Status},
    texture::{
        reference::{self, Binding},
        resource::Resource,
        sampling::{address_mode, filter},
    },
};
use crate::module::ReferenceKind;

/// `CU_TRSA_OVERRIDE_FORMAT`: uses the array's own format, as happens anyway.
const OVERRIDE_FORMAT: u32 = 1;

pub(super) fn cuModuleGetTexRef(reference: Out<Handle>, module: Handle, name: Text) -> Answer {
    reference.fill(|| module::find(module)?.reference(name.name()?, ReferenceKind::Texture))
}

pub(super) fn cuModuleGetSurfRef(reference: Out<Handle>, module: Handle, name: Text) -> Answer {
    reference.fill(|| module::find(module)?.reference(name.name()?, ReferenceKind::Surface))
}

pub(super) fn cuTexRefSetArray(reference: Handle, array: Handle, flags: u32) -> Answer {
    if flags & !OVERRIDE_FORMAT != 0 {
        return Err(Status::InvalidValue);
    }
    bind(reference, Resource::Array(array))
}

pub(super) fn cuTexRefSetMipmappedArray(reference: Handle, array: Handle, flags: u32) -> Answer {
    if flags & !OVERRIDE_FORMAT != 0 {
        return Err(Status::InvalidValue);
    }
    bind(reference, Resource::MipmappedArray(array))
}

pub(super) fn cuSurfRefSetArray(reference: Handle, array: Handle, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    bind(reference, Resource::Array(array))
}

pub(super) fn cuTexRefSetAddress_v2(offset: Out<usize>, reference: Handle, address: u64, bytes: usize) -> Answer {
    let mut found = 0;
    change(reference, |binding| {
        found = binding.bind_linear(address, bytes as u64);
        // Without a place for the offset, the offset has to be 0.
        if offset.is_null() && found > 0 { Err(Status::InvalidValue) } else { Ok(()) }
    })?;
    offset.set(found);
    Ok(())
}

pub(super) fn cuTexRefSetAddress2D_v3(reference: Handle, flat: In<FlatArray>, address: u64, pitch: usize) -> Answer {
    let description = array::description(flat.get()?.into())?;
    let Description { width, height, format, .. } = description;
    change(reference, |binding| {
        binding.format = Some(format);
        binding.resource = Some(Resource::Pitched { address, format, width, height, pitch: pitch as u64 });
        Ok(())
    })
}

pub(super) fn cuTexRefSetFormat(reference: Handle, format: u32, channels: i32) -> Answer {
    let format = description::format(format, channels.cast_unsigned())?;
    change(reference, |binding| {
        binding.format = Some(format);
        Ok(())
    })
}

pub(super) fn cuTexRefSetAddressMode(reference: Handle, axis: i32, mode: u32) -> Answer {
    address_mode(mode)?;
    change(reference, |binding| {
        *binding.sampling.address_modes.get_mut(axis as usize).ok_or(Status::InvalidValue)? = mode;
        Ok(())
    })
}

pub(super) fn cuTexRefSetFilterMode(reference: Handle, mode: u32) -> Answer {
    filter(mode)?;
    sample(reference, |binding| binding.sampling.filter = mode)
}

pub(super) fn cuTexRefSetFlags(reference: Handle, flags: u32) -> Answer {
    sample(reference, |binding| binding.sampling.flags = flags)
}

pub(super) fn cuTexRefSetMaxAnisotropy(reference: Handle, most: u32) -> Answer {
    sample(reference, |binding| binding.sampling.anisotropy_max = most)
}

pub(super) fn cuTexRefSetBorderColor(reference: Handle, color: In<[f32; 4]>) -> Answer {
    let color = color.get()?;
    sample(reference, |binding| binding.sampling.border = color)
}

pub(super) fn cuTexRefSetMipmapFilterMode(reference: Handle, mode: u32) -> Answer {
    filter(mode)?;
    sample(reference, |binding| binding.sampling.mipmap_filter = mode)
}

pub(super) fn cuTexRefSetMipmapLevelBias(reference: Handle, bias: f32) -> Answer {
    sample(reference, |binding| binding.sampling.level_bias = bias)
}

pub(super) fn cuTexRefSetMipmapLevelClamp(reference: Handle, low: f32, high: f32) -> Answer {
    sample(reference, |binding| (binding.sampling.level_min, binding.sampling.level_max) = (low, high))
}

pub(super) fn cuTexRefGetArray(array: Out<Handle>, reference: Handle) -> Answer {
    array.fill(|| match reference::find(reference)?.binding().resource {
        Some(Resource::Array(array)) => Ok(array),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuTexRefGetMipmappedArray(array: Out<Handle>, reference: Handle) -> Answer {
    array.fill(|| match reference::find(reference)?.binding().resource {
        Some(Resource::MipmappedArray(array)) => Ok(array),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuSurfRefGetArray(array: Out<Handle>, reference: Handle) -> Answer {
    array.fill(|| match reference::find(reference)?.binding().resource {
        Some(Resource::Array(array)) => Ok(array),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuTexRefGetAddress_v2(address: Out<u64>, reference: Handle) -> Answer {
    address.fill(|| match reference::find(reference)?.binding().resource {
        Some(Resource::Linear { address, .. } | Resource::Pitched { address, .. }) => Ok(address),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuTexRefGetFormat(format: Out<u32>, channels: Out<i32>, reference: Handle) -> Answer {
    let known = reference::find(reference)?.binding().format.ok_or(Status::InvalidValue)?;
    format.set(format_number(known.channel));
    channels.set(known.channels.cast_signed());
    Ok(())
}

pub(super) fn cuTexRefGetAddressMode(mode: Out<u32>, reference: Handle, axis: i32) -> Answer {
    mode.fill(|| {
        let modes = reference::find(reference)?.binding().sampling.address_modes;
        modes.get(axis as usize).copied().ok_or(Status::InvalidValue)
    })
}

pub(super) fn cuTexRefGetFilterMode(mode: Out<u32>, reference: Handle) -> Answer {
    mode.fill(|| Ok(reference::find(reference)?.binding().sampling.filter))
}

pub(super) fn cuTexRefGetFlags(flags: Out<u32>, reference: Handle) -> Answer {
    flags.fill(|| Ok(reference::find(reference)?.binding().sampling.flags))
}

pub(super) fn cuTexRefGetMaxAnisotropy(most: Out<u32>, reference: Handle) -> Answer {
    most.fill(|| Ok(reference::find(reference)?.binding().sampling.anisotropy_max))
}

pub(super) fn cuTexRefGetBorderColor(color: Out<[f32; 4]>, reference: Handle) -> Answer {
    color.fill(|| Ok(reference::find(reference)?.binding().sampling.border))
}

pub(super) fn cuTexRefGetMipmapFilterMode(mode: Out<u32>, reference: Handle) -> Answer {
    mode.fill(|| Ok(reference::find(reference)?.binding().sampling.mipmap_filter))
}

pub(super) fn cuTexRefGetMipmapLevelBias(bias: Out<f32>, reference: Handle) -> Answer {
    bias.fill(|| Ok(reference::find(reference)?.binding().sampling.level_bias))
}

pub(super) fn cuTexRefGetMipmapLevelClamp(low: Out<f32>, high: Out<f32>, reference: Handle) -> Answer {
    let sampling = reference::find(reference)?.binding().sampling;
    low.set(sampling.level_min);
    high.set(sampling.level_max);
    Ok(())
}

fn change(reference: Handle, change: impl FnOnce(&mut Binding) -> Answer) -> Answer {
    reference::find(reference)?.change(change)
}

fn sample(reference: Handle, set: impl FnOnce(&mut Binding)) -> Answer {
    change(reference, |binding| {
        set(binding);
        Ok(())
    })
}

fn bind(reference: Handle, resource: Resource) -> Answer {
    change(reference, |binding| {
        binding.resource = Some(resource);
        Ok(())
    })
}
