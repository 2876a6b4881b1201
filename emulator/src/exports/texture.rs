//! C functions for texture and surface objects (`cuTexObject*`, `cuSurfObject*`).

use gpufleet_surface::{
    argument::{In, Out},
    structs::texture::{ResourceDescription, Sampling, ViewDescription},
};

use crate::driver::{
    array::description::{self, format_number},
    handle::Handle,
    status::{Answer, Status},
    texture::{
        self,
        resource::{Resource, View},
    },
};

/// `CUresourcetype`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

pub(super) fn cuTexObjectCreate(
    object: Out<u64>,
    resource: In<ResourceDescription>,
    sampling: In<Sampling>,
    view: In<ViewDescription>,
) -> Answer {
    object.fill(|| {
        let view = if view.is_null() { None } else { Some(view_of(&view.get()?)) };
        texture::create_texture(self::resource(&resource.get()?)?, sampling.get()?, view)
    })
}

pub(super) fn cuTexObjectDestroy(object: u64) -> Answer {
    texture::destroy_texture(object)
}

pub(super) fn cuTexObjectGetResourceDesc(resource: Out<ResourceDescription>, object: u64) -> Answer {
    resource.fill(|| Ok(resource_description(&texture::find_texture(object)?.resource)))
}

pub(super) fn cuTexObjectGetTextureDesc(sampling: Out<Sampling>, object: u64) -> Answer {
    sampling.fill(|| Ok(texture::find_texture(object)?.sampling))
}

pub(super) fn cuTexObjectGetResourceViewDesc(view: Out<ViewDescription>, object: u64) -> Answer {
    view.fill(|| {
        let view = texture::find_texture(object)?.view.ok_or(Status::InvalidValue)?;
        Ok(view_description(&view))
    })
}

pub(super) fn cuSurfObjectCreate(object: Out<u64>, resource: In<ResourceDescription>) -> Answer {
    object.fill(|| texture::create_surface(self::resource(&resource.get()?)?))
}

pub(super) fn cuSurfObjectDestroy(object: u64) -> Answer {
    texture::destroy_surface(object)
}

pub(super) fn cuSurfObjectGetResourceDesc(resource: Out<ResourceDescription>, object: u64) -> Answer {
    resource.fill(|| Ok(resource_description(&texture::find_surface(object)?.resource)))
}

fn resource(description: &ResourceDescription) -> Answer<Resource> {
    let [first, format, third, fourth, fifth, ..] = description.words;
    let format = || description::format(format as u32, (format >> 32) as u32);
    if description.flags != 0 {
        return Err(Status::InvalidValue);
    }
    match description.kind {
        ARRAY => Ok(Resource::Array(first as Handle)),
        MIPMAPPED_ARRAY => Ok(Resource::MipmappedArray(first as Handle)),
        LINEAR => Ok(Resource::Linear { address: first, format: format()?, bytes: third }),
        PITCHED => {
            Ok(Resource::Pitched { address: first, format: format()?, width: third, height: fourth, pitch: fifth })
        }
        _ => Err(Status::InvalidValue),
    }
}

fn resource_description(resource: &Resource) -> ResourceDescription {
    let mut words = [0; 16];
    let kind = match *resource {
        Resource::Array(array) => {
            words[0] = array as u64;
            ARRAY
        }
        Resource::MipmappedArray(array) => {
            words[0] = array as u64;
            MIPMAPPED_ARRAY
        }
        Resource::Linear { address, format, bytes } => {
            words[..3].copy_from_slice(&[address, word(format), bytes]);
            LINEAR
        }
        Resource::Pitched { address, format, width, height, pitch } => {
            words[..5].copy_from_slice(&[address, word(format), width, height, pitch]);
            PITCHED
        }
    };
    ResourceDescription { kind, padding: 0, words, flags: 0, end: 0 }
}

fn word(format: crate::texture::format::Format) -> u64 {
    u64::from(format_number(format.channel)) | u64::from(format.channels) << 32
}

fn view_of(description: &ViewDescription) -> View {
    let size = description.size.map(|size| size as u64);
    View { format: description.format, size, levels: description.levels, layers: description.layers }
}

fn view_description(view: &View) -> ViewDescription {
    let size = view.size.map(|size| size as usize);
    let View { format, levels, layers, .. } = *view;
    ViewDescription { format, padding: 0, size, levels, layers, reserved: [0; 16] }
}
