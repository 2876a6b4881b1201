//! Texture and surface objects: turns what a caller describes into what kernels read.

pub mod reference;
pub mod resource;
pub mod sampling;

use std::sync::{Arc, LazyLock};

use gpufleet_surface::structs::texture::Sampling;

use super::{
    current,
    device::Device,
    handle::{Handle, Registry},
    started,
    status::{Answer, Status},
};
use crate::texture::registry::Object;
use resource::{Resource, View};
use sampling::NORMALIZED;

/// A texture object, as its caller described it.
#[derive(Debug)]
pub struct TextureObject {
    pub context: Handle,
    device: &'static Device,
    handle: u64,
    pub resource: Resource,
    pub sampling: Sampling,
    pub view: Option<View>,
}

/// A surface object.
#[derive(Debug)]
pub struct SurfaceObject {
    pub context: Handle,
    device: &'static Device,
    handle: u64,
    pub resource: Resource,
}

/// Returns the registry of texture objects, by the handles that kernels use.
pub fn texture_objects() -> Answer<&'static Registry<TextureObject>> {
    static OBJECTS: LazyLock<Registry<TextureObject>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*OBJECTS)
}

/// Returns the registry of surface objects, by the handles that kernels use.
pub fn surface_objects() -> Answer<&'static Registry<SurfaceObject>> {
    static OBJECTS: LazyLock<Registry<SurfaceObject>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*OBJECTS)
}

/// `cuTexObjectCreate`.
pub fn create_texture(resource: Resource, sampling: Sampling, view: Option<View>) -> Answer<u64> {
    let context = current::context()?;
    // The levels of a mipmapped array differ in size, so coordinates in texels would mean another place in each.
    if matches!(resource, Resource::MipmappedArray(_)) && sampling.flags & NORMALIZED == 0 {
        return Err(Status::InvalidValue);
    }
    let image = resource.shown(&context, view)?;
    let texture = sampling::texture(&sampling, image)?;
    let device = context.device;
    let handle = device.memory.textures().add(Object::Texture(Arc::new(texture)));
    let object = TextureObject { context: context.handle, device, handle, resource, sampling, view };
    texture_objects()?.insert(handle as Handle, Arc::new(object));
    Ok(handle)
}

/// `cuSurfObjectCreate`, for an array that was created for surfaces.
pub fn create_surface(resource: Resource) -> Answer<u64> {
    let context = current::context()?;
    let image = resource.surface()?;
    let device = context.device;
    let handle = device.memory.textures().add(Object::Surface(Arc::new(image)));
    let object = SurfaceObject { context: context.handle, device, handle, resource };
    surface_objects()?.insert(handle as Handle, Arc::new(object));
    Ok(handle)
}

/// Returns the texture object behind a handle.
pub fn find_texture(handle: u64) -> Answer<Arc<TextureObject>> {
    texture_objects()?.get(handle as Handle).map_err(|_| Status::InvalidValue)
}

/// Returns the surface object behind a handle.
pub fn find_surface(handle: u64) -> Answer<Arc<SurfaceObject>> {
    surface_objects()?.get(handle as Handle).map_err(|_| Status::InvalidValue)
}

/// `cuTexObjectDestroy`. Kernels in flight keep textures that they have looked up.
pub fn destroy_texture(handle: u64) -> Answer {
    current::context()?;
    texture_objects()?.remove(handle as Handle).map(drop).map_err(|_| Status::InvalidValue)
}

/// `cuSurfObjectDestroy`.
pub fn destroy_surface(handle: u64) -> Answer {
    current::context()?;
    surface_objects()?.remove(handle as Handle).map(drop).map_err(|_| Status::InvalidValue)
}

/// Removes the objects of a context that ends.
pub fn forget_all_of(context: Handle) -> Answer {
    texture_objects()?.retain(|object| object.context != context);
    surface_objects()?.retain(|object| object.context != context);
    Ok(())
}

impl Drop for TextureObject {
    fn drop(&mut self) {
        self.device.memory.textures().remove(self.handle);
    }
}

impl Drop for SurfaceObject {
    fn drop(&mut self) {
        self.device.memory.textures().remove(self.handle);
    }
}
