//! C functions for texture and surface objects (`cuTexObject*`, `cuSurfObject*`).

use gpufleet_surface::argument::{In, Out};

use super::exports;
use crate::driver::{
    array::description::{self, format_number},
    handle::Handle,
    status::{Answer, Status},
    texture::{
        self,
        resource::{Resource, View},
        sampling::Sampling,
    },
};

/// `CUresourcetype`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

/// `CUDA_RESOURCE_DESC`. Its union has 128 bytes; a format and a number of channels share a 64-bit word of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ResourceDescription {
    kind: u32,
    padding: u32,
    words: [u64; 16],
    flags: u32,
    end: u32,
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ViewDescription {
    format: u32,
    padding: u32,
    size: [usize; 3],
    levels: [u32; 2],
    layers: [u32; 2],
    reserved: [u32; 16],
}

exports! {
    fn cuTexObjectCreate(
        object: Out<u64>,
        resource: In<ResourceDescription>,
        sampling: In<Sampling>,
        view: In<ViewDescription>,
    ) {
        object.fill(|| {
            let view = if view.is_null() { None } else { Some(view.get()?.view()) };
            texture::create_texture(resource.get()?.resource()?, sampling.get()?, view)
        })
    }

    fn cuTexObjectDestroy(object: u64) {
        texture::destroy_texture(object)
    }

    fn cuTexObjectGetResourceDesc(resource: Out<ResourceDescription>, object: u64) {
        resource.fill(|| Ok(ResourceDescription::of(&texture::find_texture(object)?.resource)))
    }

    fn cuTexObjectGetTextureDesc(sampling: Out<Sampling>, object: u64) {
        sampling.fill(|| Ok(texture::find_texture(object)?.sampling))
    }

    fn cuTexObjectGetResourceViewDesc(view: Out<ViewDescription>, object: u64) {
        view.fill(|| {
            let view = texture::find_texture(object)?.view.ok_or(Status::InvalidValue)?;
            Ok(ViewDescription::of(&view))
        })
    }

    fn cuSurfObjectCreate(object: Out<u64>, resource: In<ResourceDescription>) {
        object.fill(|| texture::create_surface(resource.get()?.resource()?))
    }

    fn cuSurfObjectDestroy(object: u64) {
        texture::destroy_surface(object)
    }

    fn cuSurfObjectGetResourceDesc(resource: Out<ResourceDescription>, object: u64) {
        resource.fill(|| Ok(ResourceDescription::of(&texture::find_surface(object)?.resource)))
    }
}

impl ResourceDescription {
    fn resource(&self) -> Answer<Resource> {
        let [first, format, third, fourth, fifth, ..] = self.words;
        let format = || description::format(format as u32, (format >> 32) as u32);
        if self.flags != 0 {
            return Err(Status::InvalidValue);
        }
        match self.kind {
            ARRAY => Ok(Resource::Array(first as Handle)),
            MIPMAPPED_ARRAY => Ok(Resource::MipmappedArray(first as Handle)),
            LINEAR => Ok(Resource::Linear { address: first, format: format()?, bytes: third }),
            PITCHED => {
                Ok(Resource::Pitched { address: first, format: format()?, width: third, height: fourth, pitch: fifth })
            }
            _ => Err(Status::InvalidValue),
        }
    }

    fn of(resource: &Resource) -> Self {
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
        Self { kind, padding: 0, words, flags: 0, end: 0 }
    }
}

fn word(format: crate::texture::format::Format) -> u64 {
    u64::from(format_number(format.channel)) | u64::from(format.channels) << 32
}

impl ViewDescription {
    fn view(&self) -> View {
        let size = self.size.map(|size| size as u64);
        View { format: self.format, size, levels: self.levels, layers: self.layers }
    }

    fn of(view: &View) -> Self {
        let size = view.size.map(|size| size as usize);
        let View { format, levels, layers, .. } = *view;
        Self { format, padding: 0, size, levels, layers, reserved: [0; 16] }
    }
}
