//! CUDA arrays and mipmapped arrays: images in device memory that only copies, textures and surfaces reach.

use std::sync::{Arc, LazyLock};

use super::{
    capture,
    context::Context,
    copy::{Place, Side},
    current,
    device::Device,
    faults::Site,
    handle::{Handle, Registry, fresh},
    image_limits, injection,
    memory::allocate::draw,
    started,
    status::{Answer, Status},
};
use crate::memory::Owner;
use crate::texture::{
    format::{Channel, Format},
    image::{Extent, Image},
};

/// Flags of `CUDA_ARRAY3D_DESCRIPTOR` (`CUDA_ARRAY3D_…`).
pub const LAYERED: u32 = 0x1;
pub const SURFACE: u32 = 0x2;
pub const CUBE: u32 = 0x4;
pub const GATHER: u32 = 0x8;
/// A flag for graphics programs, which has no effect here.
const COLOR_ATTACHMENT: u32 = 0x20;
const FACES: u64 = 6;

/// The fields of `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub format: Format,
    pub flags: u32,
}

/// A CUDA array, or one level of a mipmapped array.
#[derive(Debug)]
pub struct Array {
    pub context: Handle,
    pub device: &'static Device,
    pub description: Description,
    pub image: Image,
    /// The mipmapped array, if this is a level of one.
    owner: Option<Handle>,
    _memory: Arc<ImageMemory>,
}

#[derive(Debug)]
pub struct MipmappedArray {
    pub context: Handle,
    pub device: &'static Device,
    pub description: Description,
    pub image: Image,
    /// Handles of the levels, which are arrays.
    levels: Vec<Handle>,
    _memory: Arc<ImageMemory>,
}

/// Device memory of an image; freed when its last level is gone.
#[derive(Debug)]
struct ImageMemory {
    device: &'static Device,
    address: u64,
}

/// Returns the registry of arrays.
pub fn arrays() -> Answer<&'static Registry<Array>> {
    static ARRAYS: LazyLock<Registry<Array>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*ARRAYS)
}

/// Returns the registry of mipmapped arrays.
pub fn mipmapped_arrays() -> Answer<&'static Registry<MipmappedArray>> {
    static ARRAYS: LazyLock<Registry<MipmappedArray>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*ARRAYS)
}

/// Returns the format for a `CUarray_format` and a number of channels.
pub fn format(number: u32, channels: u32) -> Answer<Format> {
    let channel = match number {
        0x01 => Channel::U8,
        0x02 => Channel::U16,
        0x03 => Channel::U32,
        0x08 => Channel::S8,
        0x09 => Channel::S16,
        0x0a => Channel::S32,
        0x10 => Channel::F16,
        0x20 => Channel::F32,
        // Block-compressed and video formats.
        0x91..=0x9f | 0xb0..=0x1ff => return Err(Status::NotSupported),
        _ => return Err(Status::InvalidValue),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(Format { channel, channels }) } else { Err(Status::InvalidValue) }
}

/// Returns the `CUarray_format` of a channel.
pub fn format_number(channel: Channel) -> u32 {
    match channel {
        Channel::U8 => 0x01,
        Channel::U16 => 0x02,
        Channel::U32 => 0x03,
        Channel::S8 => 0x08,
        Channel::S16 => 0x09,
        Channel::S32 => 0x0a,
        Channel::F16 => 0x10,
        Channel::F32 => 0x20,
    }
}

/// `cuArrayCreate` and `cuArray3DCreate`.
pub fn create(description: Description) -> Answer<Handle> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    let (memory, image) = allocate(&context, description, 1)?;
    let (handle, device) = (fresh(), context.device);
    let array = Array { context: context.handle, device, description, image, owner: None, _memory: memory };
    arrays()?.insert(handle, Arc::new(array));
    Ok(handle)
}

/// `cuMipmappedArrayCreate`: creates the requested number of levels, but at most those down to a single texel.
pub fn create_mipmapped(description: Description, levels: u32) -> Answer<Handle> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    let levels = levels.clamp(1, description.extent()?.levels_max());
    let (memory, image) = allocate(&context, description, levels)?;
    let (handle, device) = (fresh(), context.device);
    let mut handles = Vec::new();
    for level in 0..levels {
        let level = image.level(level);
        let Extent { width, height, depth, .. } = level.extent;
        let description = Description { width, height, depth, ..description };
        let memory = Arc::clone(&memory);
        let array =
            Array { context: context.handle, device, description, image: level, owner: Some(handle), _memory: memory };
        let level = fresh();
        arrays()?.insert(level, Arc::new(array));
        handles.push(level);
    }
    let array =
        MipmappedArray { context: context.handle, device, description, image, levels: handles, _memory: memory };
    mipmapped_arrays()?.insert(handle, Arc::new(array));
    Ok(handle)
}

/// `cuArrayDestroy`. Waits for work in flight, which may still use the array. The level of a mipmapped array can't be
/// destroyed separately.
pub fn destroy(array: Handle) -> Answer {
    let context = current::context()?;
    if arrays()?.get(array)?.owner.is_some() {
        return Err(Status::InvalidHandle);
    }
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    arrays()?.remove(array).map(drop)
}

/// `cuMipmappedArrayDestroy`.
pub fn destroy_mipmapped(array: Handle) -> Answer {
    let context = current::context()?;
    mipmapped_arrays()?.get(array)?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    mipmapped_arrays()?.remove(array)?;
    arrays()?.retain(|level| level.owner != Some(array));
    Ok(())
}

/// Removes the arrays of a context that ends.
pub fn forget_all_of(context: Handle) -> Answer {
    arrays()?.retain(|array| array.context != context);
    mipmapped_arrays()?.retain(|array| array.context != context);
    Ok(())
}

fn allocate(context: &Arc<Context>, description: Description, levels: u32) -> Answer<(Arc<ImageMemory>, Image)> {
    let extent = description.extent()?;
    if !image_limits::allow(extent, levels > 1, description.flags) {
        return Err(Status::InvalidValue);
    }
    injection::call(context, Site::Allocation)?;
    let bytes = Image::array_bytes(description.format, extent, levels).ok_or(Status::OutOfMemory)?;
    let (device, address) = (context.device, draw(context, Owner::Image, bytes)?);
    // Arrays count as written, because the check for uninitialised reads does not cover them.
    device.memory.note_written(address, bytes);
    let memory = Arc::new(ImageMemory { device, address });
    Ok((memory, Image::array(description.format, extent, levels, address)))
}

impl Description {
    /// Returns the shape, or an error if there is no such shape.
    fn extent(self) -> Answer<Extent> {
        let Self { width, height, depth, flags, .. } = self;
        if flags & !(LAYERED | SURFACE | CUBE | GATHER | COLOR_ATTACHMENT) != 0 {
            return Err(Status::NotSupported);
        }
        let (is_layered, is_cube) = (flags & LAYERED != 0, flags & CUBE != 0);
        let exists = match (is_layered, is_cube) {
            (false, false) => height > 0 || depth == 0,
            (true, false) => depth > 0,
            (false, true) => depth == FACES && width == height,
            (true, true) => depth > 0 && depth.is_multiple_of(FACES) && width == height,
        };
        // Only two-dimensional arrays support gather.
        let gathers = flags & GATHER == 0 || height > 0 && depth == 0;
        if width == 0 || !exists || !gathers {
            return Err(Status::InvalidValue);
        }
        Ok(Extent { width, height, depth, is_layered, is_cube })
    }
}

impl Array {
    /// Returns the place of a box of `width` bytes, `height` rows and `depth` planes, from byte `x` of a row on; an
    /// error if the array does not contain it.
    pub fn side(&self, [x, y, z]: [usize; 3], [width, height, depth]: [usize; 3]) -> Answer<Side> {
        let level = &self.image.levels[0];
        let texel = u64::from(self.description.format.texel_bytes());
        let row = level.width * texel;
        let within =
            |start: usize, length: usize, size: u64| start.checked_add(length).is_some_and(|end| end as u64 <= size);
        let is_aligned = (x as u64).is_multiple_of(texel);
        if !is_aligned || !within(x, width, row) || !within(y, height, level.height) || !within(z, depth, level.depth) {
            return Err(Status::InvalidValue);
        }
        let place = Place::Device(self.device, level.texel([x as u64, y as u64, z as u64], 1));
        Ok(Side { place, pitch: level.pitch as usize, slice: level.slice() as usize })
    }

    /// Returns the place of `bytes` bytes from an offset on, in the order of texels.
    pub fn bytes(&self, offset: usize, bytes: usize) -> Answer<Place> {
        let (address, size) = self.image.range();
        let fits = offset.checked_add(bytes).is_some_and(|end| end as u64 <= size);
        if fits { Ok(Place::Device(self.device, address + offset as u64)) } else { Err(Status::InvalidValue) }
    }
}

impl MipmappedArray {
    /// Returns the handle of a level, which is an array.
    pub fn level(&self, level: u32) -> Answer<Handle> {
        self.levels.get(level as usize).copied().ok_or(Status::InvalidValue)
    }
}

impl Drop for ImageMemory {
    fn drop(&mut self) {
        self.device.memory.free_of(Owner::Image, self.address).expect("the memory of an image is freed with it alone");
    }
}
