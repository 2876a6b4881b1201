//! Objects of the caller's that live as long as graphs need them: the caller gives references to graphs, and is called
//! when the last one is gone.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::driver::{
    handle::{Handle, Registry, fresh},
    host_call::HostCall,
    started,
    status::{Answer, Status},
};

/// An object under its handle. Whoever holds it, the caller under the handle or a graph, keeps it alive.
#[derive(Debug)]
pub struct UserObject {
    handle: Handle,
    destroy: HostCall,
    /// References of the caller's own.
    references: Mutex<u32>,
}

/// The objects under their handles.
pub fn user_objects() -> Answer<&'static Registry<UserObject>> {
    static USER_OBJECTS: LazyLock<Registry<UserObject>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*USER_OBJECTS)
}

/// Makes an object with so many references of the caller's.
pub fn create(destroy: HostCall, references: u32) -> Answer<Handle> {
    if references == 0 {
        return Err(Status::InvalidValue);
    }
    let handle = fresh();
    user_objects()?.insert(handle, Arc::new(UserObject { handle, destroy, references: Mutex::new(references) }));
    Ok(handle)
}

/// Adds references of the caller's.
pub fn retain(object: Handle, count: u32) -> Answer {
    find(object)?.change(|references| references.checked_add(count).filter(|_| count > 0))
}

/// Takes references of the caller's away.
pub fn release(object: Handle, count: u32) -> Answer {
    let found = find(object)?;
    found.change(|references| references.checked_sub(count).filter(|_| count > 0))?;
    if *found.references.lock().unwrap_or_else(PoisonError::into_inner) == 0 {
        user_objects()?.remove(object)?;
    }
    Ok(())
}

/// The object behind a handle of the caller's.
pub fn find(object: Handle) -> Answer<Arc<UserObject>> {
    user_objects()?.get(object).map_err(|_| Status::InvalidValue)
}

impl UserObject {
    pub fn handle(&self) -> Handle {
        self.handle
    }

    fn change(&self, to: impl FnOnce(u32) -> Option<u32>) -> Answer {
        let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
        *references = to(*references).ok_or(Status::InvalidValue)?;
        Ok(())
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        self.destroy.run();
    }
}
