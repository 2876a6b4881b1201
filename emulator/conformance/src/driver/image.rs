//! Textures and surfaces of cases on a driver.

use std::{
    ffi::c_void,
    mem::zeroed,
    ptr::{null, null_mut},
};

use cudarc::driver::{
    result::DriverError,
    sys::{self, CUarray_format, CUresourcetype},
};

use crate::texture::{Channel, Mode, Shape, Texture};

/// `CU_TRSF_…` and `CUDA_ARRAY3D_…` flags.
const READ_AS_INTEGER: u32 = 1;
const NORMALIZED: u32 = 2;
const SRGB: u32 = 0x10;
const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBE: u32 = 4;
const GATHER: u32 = 8;

/// Alignment in bytes of the pitch of a texture over pitched memory, sufficient on every device.
const PITCH_ALIGN: usize = 512;

/// An object and its memory.
#[derive(Debug)]
pub struct Bound {
    handle: u64,
    is_surface: bool,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Array(sys::CUarray),
    Mipmapped(sys::CUmipmappedArray),
    Linear(u64),
}

impl Bound {
    /// Creates the object and fills its memory.
    pub fn new(texture: &Texture) -> Result<Bound, DriverError> {
        // SAFETY: the descriptions live during the calls, and what is copied is as large as they say.
        unsafe {
            let mut description: sys::CUDA_RESOURCE_DESC = zeroed();
            let memory = match texture.shape {
                Shape::Linear | Shape::Pitched => linear(texture, &mut description)?,
                _ if texture.levels > 1 => mipmapped(texture, &mut description)?,
                _ => array(texture, &mut description)?,
            };
            let mut handle = 0;
            if texture.is_surface {
                sys::cuSurfObjectCreate(&raw mut handle, &raw const description).result()?;
            } else {
                let sampling = sampling(texture);
                sys::cuTexObjectCreate(&raw mut handle, &raw const description, &raw const sampling, null())
                    .result()?;
            }
            Ok(Bound { handle, is_surface: texture.is_surface, memory })
        }
    }

    pub fn handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Errors are ignored here; they show in later calls.
        // SAFETY: all was made by `new`, and no kernel uses it any more.
        unsafe {
            let _ = match self.is_surface {
                true => sys::cuSurfObjectDestroy(self.handle),
                false => sys::cuTexObjectDestroy(self.handle),
            };
            let _ = match self.memory {
                Memory::Array(array) => sys::cuArrayDestroy(array),
                Memory::Mipmapped(array) => sys::cuMipmappedArrayDestroy(array),
                Memory::Linear(address) => sys::cuMemFree_v2(address),
            };
        }
    }
}

fn format(channel: Channel) -> CUarray_format {
    match channel {
        Channel::U8 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        Channel::U16 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16,
        Channel::U32 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        Channel::S8 => CUarray_format::CU_AD_FORMAT_SIGNED_INT8,
        Channel::S16 => CUarray_format::CU_AD_FORMAT_SIGNED_INT16,
        Channel::S32 => CUarray_format::CU_AD_FORMAT_SIGNED_INT32,
        Channel::F16 => CUarray_format::CU_AD_FORMAT_HALF,
        Channel::F32 => CUarray_format::CU_AD_FORMAT_FLOAT,
    }
}

/// Describes an array; axes that it does not have are 0.
fn solid(texture: &Texture) -> sys::CUDA_ARRAY3D_DESCRIPTOR {
    let [width, height, depth] = texture.size.map(|size| size as usize);
    let has_height = !matches!(texture.shape, Shape::Line | Shape::Lines);
    let has_depth = texture.shape.has_layers() || texture.shape == Shape::Volume;
    let mut flags = if texture.is_surface { SURFACE } else { 0 };
    if matches!(texture.shape, Shape::Lines | Shape::Planes | Shape::Cubes) {
        flags |= LAYERED;
    }
    if texture.shape.is_cube() {
        flags |= CUBE;
    }
    // These shapes support gather; the flag has no other effect.
    if texture.shape == Shape::Plane && texture.levels == 1 && !texture.is_surface {
        flags |= GATHER;
    }
    sys::CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: if has_height { height } else { 0 },
        Depth: if has_depth { depth } else { 0 },
        Format: format(texture.channel),
        NumChannels: texture.channels,
        Flags: flags,
    }
}

/// # Safety
/// The array is one of this texture's.
unsafe fn fill(array: sys::CUarray, texture: &Texture, level: u32) -> Result<(), DriverError> {
    let bytes = texture.level_bytes(level);
    let [width, height, depth] = texture.level_size(level).map(|size| size as usize);
    // SAFETY: the caller vouches for the array; the bytes are those of the whole level.
    unsafe {
        let copy = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: bytes.as_ptr().cast(),
            srcDevice: 0,
            srcArray: null_mut(),
            reserved0: null_mut(),
            srcPitch: width * texture.texel_bytes(),
            srcHeight: height,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstHost: null_mut(),
            dstDevice: 0,
            dstArray: array,
            reserved1: null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: width * texture.texel_bytes(),
            Height: height,
            Depth: depth,
        };
        sys::cuMemcpy3D_v2(&raw const copy).result()
    }
}

/// # Safety
/// The description is all zero.
unsafe fn array(texture: &Texture, description: &mut sys::CUDA_RESOURCE_DESC) -> Result<Memory, DriverError> {
    let (mut array, solid) = (null_mut(), solid(texture));
    // SAFETY: the description lives during the call.
    unsafe {
        sys::cuArray3DCreate_v2(&raw mut array, &raw const solid).result()?;
        fill(array, texture, 0)?;
    }
    description.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    description.res.array.hArray = array;
    Ok(Memory::Array(array))
}

/// # Safety
/// As for [`array`].
unsafe fn mipmapped(texture: &Texture, description: &mut sys::CUDA_RESOURCE_DESC) -> Result<Memory, DriverError> {
    let (mut array, solid) = (null_mut(), solid(texture));
    // SAFETY: the description lives during the call, and the levels are the array's.
    unsafe {
        sys::cuMipmappedArrayCreate(&raw mut array, &raw const solid, texture.levels).result()?;
        for level in 0..texture.levels {
            let mut part = null_mut();
            sys::cuMipmappedArrayGetLevel(&raw mut part, array, level).result()?;
            fill(part, texture, level)?;
        }
    }
    description.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    description.res.mipmap.hMipmappedArray = array;
    Ok(Memory::Mipmapped(array))
}

/// # Safety
/// As for [`array`].
unsafe fn linear(texture: &Texture, description: &mut sys::CUDA_RESOURCE_DESC) -> Result<Memory, DriverError> {
    let bytes = texture.level_bytes(0);
    let [width, height, _] = texture.size.map(|size| size as usize);
    let row = width * texture.texel_bytes();
    let pitch = if texture.shape == Shape::Pitched { row.next_multiple_of(PITCH_ALIGN) } else { row };
    let mut address = 0;
    // SAFETY: the memory has room for all rows.
    unsafe {
        sys::cuMemAlloc_v2(&raw mut address, pitch * height).result()?;
        for (index, row) in bytes.chunks(row).enumerate() {
            let to = address + (index * pitch) as u64;
            sys::cuMemcpyHtoD_v2(to, row.as_ptr().cast::<c_void>(), row.len()).result()?;
        }
        if texture.shape == Shape::Pitched {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
            let place = &mut description.res.pitch2D;
            (place.devPtr, place.format, place.numChannels) = (address, format(texture.channel), texture.channels);
            (place.width, place.height, place.pitchInBytes) = (width, height, pitch);
        } else {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
            let place = &mut description.res.linear;
            (place.devPtr, place.format, place.numChannels) = (address, format(texture.channel), texture.channels);
            place.sizeInBytes = bytes.len();
        }
    }
    Ok(Memory::Linear(address))
}

fn sampling(texture: &Texture) -> sys::CUDA_TEXTURE_DESC {
    use sys::{CUaddress_mode as Address, CUfilter_mode as Filter};
    let sampling = &texture.sampling;
    let filter = |linear| if linear { Filter::CU_TR_FILTER_MODE_LINEAR } else { Filter::CU_TR_FILTER_MODE_POINT };
    let mode = |mode| match mode {
        Mode::Wrap => Address::CU_TR_ADDRESS_MODE_WRAP,
        Mode::Clamp => Address::CU_TR_ADDRESS_MODE_CLAMP,
        Mode::Mirror => Address::CU_TR_ADDRESS_MODE_MIRROR,
        Mode::Border => Address::CU_TR_ADDRESS_MODE_BORDER,
    };
    let flags = [(sampling.integers, READ_AS_INTEGER), (sampling.normalized, NORMALIZED), (sampling.srgb, SRGB)];
    sys::CUDA_TEXTURE_DESC {
        addressMode: sampling.modes.map(mode),
        filterMode: filter(sampling.linear),
        flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
        maxAnisotropy: 0,
        mipmapFilterMode: filter(sampling.linear_levels),
        mipmapLevelBias: sampling.bias,
        minMipmapLevelClamp: sampling.levels[0],
        maxMipmapLevelClamp: sampling.levels[1],
        borderColor: sampling.border,
        reserved: [0; 12],
    }
}
