//! CUDA arrays and mipmapped arrays: images in device memory that only copies, textures and surfaces reach.

pub mod description;

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
use crate::texture::image::{Extent, Image};
use description::Description;

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
