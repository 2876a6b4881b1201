//! The texture and surface objects of a device, by the handles that kernels name them by.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use super::Texture;
use super::image::Image;
use super::sampler::Sampler;

/// Handles start here, so that a handle is not mistaken for a pointer, an index or null.
const FIRST: u64 = 0x7e00_0000;
const STEP: u64 = 0x10;

/// All devices draw from one sequence, and no handle is given twice.
static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// What a handle stands for.
#[derive(Clone, Debug)]
pub enum Object {
    Texture(Arc<Texture>),
    Surface(Arc<Image>),
    Sampler(Arc<Sampler>),
    /// A reference of a module that is bound to nothing yet.
    Unbound,
}

/// The objects of one device.
#[derive(Debug, Default)]
pub struct Textures {
    objects: RwLock<HashMap<u64, Object>>,
}

impl Textures {
    /// Adds an object under a handle of its own.
    pub fn add(&self, object: Object) -> u64 {
        let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
        self.write().insert(handle, object);
        handle
    }

    /// Puts another object behind a handle; false where the handle is not live.
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

/// Whether a handle was given at some time.
pub fn was_given(handle: u64) -> bool {
    (FIRST..NEXT.load(Ordering::Relaxed)).contains(&handle) && handle.is_multiple_of(STEP)
}
