//! Textures and surfaces of cases in the emulator's memory.

use std::sync::Arc;

use gpufleet_conformance::texture::{self, Mode, Shape};
use gpufleet_emulator::{
    memory::Memory,
    texture::{
        Texture,
        format::{Channel, Format},
        image::{Extent, Image},
        registry::Object,
        sampler::{AddressMode, Filter, Sampler},
    },
};

/// Bytes of padding between rows.
const ROOM: u64 = 64;

/// An object and its memory.
pub struct Bound<'a> {
    pub handle: u64,
    address: u64,
    memory: &'a Memory,
}

impl Bound<'_> {
    pub fn new<'a>(texture: &texture::Texture, memory: &'a Memory) -> Bound<'a> {
        let [width, height, depth] = texture.size.map(u64::from);
        let format = Format { channel: channel(texture.channel), channels: texture.channels };
        let row = width * u64::from(format.texel_bytes());
        let place = |bytes: u64| memory.alloc(bytes).unwrap();
        let image = match texture.shape {
            Shape::Linear => Image::linear(format, place(row), width),
            Shape::Pitched => {
                Image::pitched(format, place((row + ROOM) * (height - 1) + row), width, height, row + ROOM)
            }
            shape => {
                let extent = Extent {
                    width,
                    height: if matches!(shape, Shape::Line | Shape::Lines) { 0 } else { height },
                    depth: if shape.has_layers() || shape == Shape::Volume { depth } else { 0 },
                    is_layered: matches!(shape, Shape::Lines | Shape::Planes | Shape::Cubes),
                    is_cube: shape.is_cube(),
                };
                let bytes = Image::array_bytes(format, extent, texture.levels).unwrap();
                Image::array(format, extent, texture.levels, place(bytes))
            }
        };
        for (number, level) in (0..).zip(&image.levels) {
            let row = level.width * u64::from(format.texel_bytes());
            for (index, bytes) in (0..).zip(texture.level_bytes(number).chunks(row as usize)) {
                // SAFETY: the row is as long as what is copied.
                unsafe { memory.copy_in(level.address + index * level.pitch, bytes.as_ptr(), row).unwrap() };
            }
        }
        let address = image.range().0;
        let object = match texture.is_surface {
            true => Object::Surface(Arc::new(image)),
            false => Object::Texture(Arc::new(Texture { image, sampler: sampler(&texture.sampling) })),
        };
        Bound { handle: memory.textures().add(object), address, memory }
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        self.memory.textures().remove(self.handle);
        self.memory.free(self.address).unwrap();
    }
}

fn channel(channel: texture::Channel) -> Channel {
    match channel {
        texture::Channel::U8 => Channel::U8,
        texture::Channel::U16 => Channel::U16,
        texture::Channel::U32 => Channel::U32,
        texture::Channel::S8 => Channel::S8,
        texture::Channel::S16 => Channel::S16,
        texture::Channel::S32 => Channel::S32,
        texture::Channel::F16 => Channel::F16,
        texture::Channel::F32 => Channel::F32,
    }
}

fn sampler(sampling: &texture::Sampling) -> Sampler {
    let filter = |linear| if linear { Filter::Linear } else { Filter::Point };
    let mode = |mode| match mode {
        Mode::Wrap => AddressMode::Wrap,
        Mode::Clamp => AddressMode::Clamp,
        Mode::Mirror => AddressMode::Mirror,
        Mode::Border => AddressMode::Border,
    };
    Sampler {
        address: sampling.modes.map(mode),
        filter: filter(sampling.linear),
        is_normalized: sampling.normalized,
        reads_integers: sampling.integers,
        is_srgb: sampling.srgb,
        border: sampling.border,
        mipmap_filter: filter(sampling.linear_levels),
        level_bias: sampling.bias,
        level_min: sampling.levels[0],
        level_max: sampling.levels[1],
    }
}
