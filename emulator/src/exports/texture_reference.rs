//! C functions for the texture and surface references of modules (`cuTexRef*`, `cuSurfRef*`).

use gpufleet_surface::argument::{In, Out, Text};

use super::{array::Flat, exports};
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

exports! {
    fn cuModuleGetTexRef(reference: Out<Handle>, module: Handle, name: Text) {
        reference.fill(|| module::find(module)?.reference(name.name()?, ReferenceKind::Texture))
    }

    fn cuModuleGetSurfRef(reference: Out<Handle>, module: Handle, name: Text) {
        reference.fill(|| module::find(module)?.reference(name.name()?, ReferenceKind::Surface))
    }

    fn cuTexRefSetArray(reference: Handle, array: Handle, flags: u32) {
        if flags & !OVERRIDE_FORMAT != 0 {
            return Err(Status::InvalidValue);
        }
        bind(reference, Resource::Array(array))
    }

    fn cuTexRefSetMipmappedArray(reference: Handle, array: Handle, flags: u32) {
        if flags & !OVERRIDE_FORMAT != 0 {
            return Err(Status::InvalidValue);
        }
        bind(reference, Resource::MipmappedArray(array))
    }

    fn cuSurfRefSetArray(reference: Handle, array: Handle, flags: u32) {
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        bind(reference, Resource::Array(array))
    }

    fn cuTexRefSetAddress_v2(offset: Out<usize>, reference: Handle, address: u64, bytes: usize) {
        let mut found = 0;
        change(reference, |binding| {
            found = binding.bind_linear(address, bytes as u64);
            // Without a place for the offset, the offset has to be 0.
            if offset.is_null() && found > 0 { Err(Status::InvalidValue) } else { Ok(()) }
        })?;
        offset.set(found);
        Ok(())
    }

    fn cuTexRefSetAddress2D_v3(reference: Handle, flat: In<Flat>, address: u64, pitch: usize) {
        let description = flat.get()?.description()?;
        let Description { width, height, format, .. } = description;
        change(reference, |binding| {
            binding.format = Some(format);
            binding.resource = Some(Resource::Pitched { address, format, width, height, pitch: pitch as u64 });
            Ok(())
        })
    }

    fn cuTexRefSetFormat(reference: Handle, format: u32, channels: i32) {
        let format = description::format(format, channels.cast_unsigned())?;
        change(reference, |binding| {
            binding.format = Some(format);
            Ok(())
        })
    }

    fn cuTexRefSetAddressMode(reference: Handle, axis: i32, mode: u32) {
        address_mode(mode)?;
        change(reference, |binding| {
            *binding.sampling.address_modes.get_mut(axis as usize).ok_or(Status::InvalidValue)? = mode;
            Ok(())
        })
    }

    fn cuTexRefSetFilterMode(reference: Handle, mode: u32) {
        filter(mode)?;
        sample(reference, |binding| binding.sampling.filter = mode)
    }

    fn cuTexRefSetFlags(reference: Handle, flags: u32) {
        sample(reference, |binding| binding.sampling.flags = flags)
    }

    fn cuTexRefSetMaxAnisotropy(reference: Handle, most: u32) {
        sample(reference, |binding| binding.sampling.anisotropy_max = most)
    }

    fn cuTexRefSetBorderColor(reference: Handle, color: In<[f32; 4]>) {
        let color = color.get()?;
        sample(reference, |binding| binding.sampling.border = color)
    }

    fn cuTexRefSetMipmapFilterMode(reference: Handle, mode: u32) {
        filter(mode)?;
        sample(reference, |binding| binding.sampling.mipmap_filter = mode)
    }

    fn cuTexRefSetMipmapLevelBias(reference: Handle, bias: f32) {
        sample(reference, |binding| binding.sampling.level_bias = bias)
    }

    fn cuTexRefSetMipmapLevelClamp(reference: Handle, low: f32, high: f32) {
        sample(reference, |binding| (binding.sampling.level_min, binding.sampling.level_max) = (low, high))
    }

    fn cuTexRefGetArray(array: Out<Handle>, reference: Handle) {
        array.fill(|| match reference::find(reference)?.binding().resource {
            Some(Resource::Array(array)) => Ok(array),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuTexRefGetMipmappedArray(array: Out<Handle>, reference: Handle) {
        array.fill(|| match reference::find(reference)?.binding().resource {
            Some(Resource::MipmappedArray(array)) => Ok(array),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuSurfRefGetArray(array: Out<Handle>, reference: Handle) {
        array.fill(|| match reference::find(reference)?.binding().resource {
            Some(Resource::Array(array)) => Ok(array),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuTexRefGetAddress_v2(address: Out<u64>, reference: Handle) {
        address.fill(|| match reference::find(reference)?.binding().resource {
            Some(Resource::Linear { address, .. } | Resource::Pitched { address, .. }) => Ok(address),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuTexRefGetFormat(format: Out<u32>, channels: Out<i32>, reference: Handle) {
        let known = reference::find(reference)?.binding().format.ok_or(Status::InvalidValue)?;
        format.set(format_number(known.channel));
        channels.set(known.channels.cast_signed());
        Ok(())
    }

    fn cuTexRefGetAddressMode(mode: Out<u32>, reference: Handle, axis: i32) {
        mode.fill(|| {
            let modes = reference::find(reference)?.binding().sampling.address_modes;
            modes.get(axis as usize).copied().ok_or(Status::InvalidValue)
        })
    }

    fn cuTexRefGetFilterMode(mode: Out<u32>, reference: Handle) {
        mode.fill(|| Ok(reference::find(reference)?.binding().sampling.filter))
    }

    fn cuTexRefGetFlags(flags: Out<u32>, reference: Handle) {
        flags.fill(|| Ok(reference::find(reference)?.binding().sampling.flags))
    }

    fn cuTexRefGetMaxAnisotropy(most: Out<u32>, reference: Handle) {
        most.fill(|| Ok(reference::find(reference)?.binding().sampling.anisotropy_max))
    }

    fn cuTexRefGetBorderColor(color: Out<[f32; 4]>, reference: Handle) {
        color.fill(|| Ok(reference::find(reference)?.binding().sampling.border))
    }

    fn cuTexRefGetMipmapFilterMode(mode: Out<u32>, reference: Handle) {
        mode.fill(|| Ok(reference::find(reference)?.binding().sampling.mipmap_filter))
    }

    fn cuTexRefGetMipmapLevelBias(bias: Out<f32>, reference: Handle) {
        bias.fill(|| Ok(reference::find(reference)?.binding().sampling.level_bias))
    }

    fn cuTexRefGetMipmapLevelClamp(low: Out<f32>, high: Out<f32>, reference: Handle) {
        let sampling = reference::find(reference)?.binding().sampling;
        low.set(sampling.level_min);
        high.set(sampling.level_max);
        Ok(())
    }
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
