//! The texture and surface objects of a device, by the handles that kernels use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use super::Texture;
use super::image::Image;
use super::sampler::Sampler;

/// The first handle, chosen so that a handle is not mistaken for a pointer, an index or null.
const FIRST: u64 = 0x7e00_0000;
const STEP: u64 = 0x10;

/// The next handle. All devices share the sequence, and no handle is used twice.
static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// The object behind a handle.
#[derive(Clone, Debug)]
pub enum Object {
    Texture(Arc<Texture>),
    Surface(Arc<Image>),
    Sampler(Arc<Sampler>),
    /// A module's reference that is not bound yet.
    Unbound,
}

/// The objects of one device.
#[derive(Debug, Default)]
pub struct Textures {
    objects: RwLock<HashMap<u64, Object>>,
}

impl Textures {
    /// Adds an object and returns its new handle.
    pub fn add(&self, object: Object) -> u64 {
        let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
        self.write().insert(handle, object);
        handle
    }

    /// Replaces the object behind a handle; returns false if the handle is not live.
    pub fn bind(&self, handle: u64, object: Object) -> bool {
        self.write().get_mut(&handle).map(|place| *place = object).is_some()
    }

    pub fn remove(&self, handle: u64) -> Option<Object> {
        self.write().remove(&handle)
    }

    pub fn get(&self, handle: u64) -> Option<Object> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<u64, Object>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether the handle was ever in use.
pub fn was_given(handle: u64) -> bool {
    (FIRST..NEXT.load(Ordering::Relaxed)).contains(&handle) && handle.is_multiple_of(STEP)
}
