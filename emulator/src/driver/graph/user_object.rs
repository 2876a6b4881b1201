//! User objects: the caller gives references to graphs, and a function of the caller runs when the last reference is
//! gone.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::driver::{
    handle::{Handle, Registry, fresh},
    host_call::HostCall,
    started,
    status::{Answer, Status},
};

/// A user object. Its handle and the graphs that refer to it keep it alive.
#[derive(Debug)]
pub struct UserObject {
    handle: Handle,
    destroy: HostCall,
    /// Number of references that the caller owns.
    references: Mutex<u32>,
}

/// Returns the registry of user objects.
pub fn user_objects() -> Answer<&'static Registry<UserObject>> {
    static USER_OBJECTS: LazyLock<Registry<UserObject>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*USER_OBJECTS)
}

/// Creates an object with this number of references owned by the caller.
pub fn create(destroy: HostCall, references: u32) -> Answer<Handle> {
    if references == 0 {
        return Err(Status::InvalidValue);
    }
    let handle = fresh();
    user_objects()?.insert(handle, Arc::new(UserObject { handle, destroy, references: Mutex::new(references) }));
    Ok(handle)
}

/// Adds references owned by the caller.
pub fn retain(object: Handle, count: u32) -> Answer {
    find(object)?.change(|references| references.checked_add(count).filter(|_| count > 0))
}

/// Releases references owned by the caller.
pub fn release(object: Handle, count: u32) -> Answer {
    let found = find(object)?;
    found.change(|references| references.checked_sub(count).filter(|_| count > 0))?;
    if *found.references.lock().unwrap_or_else(PoisonError::into_inner) == 0 {
        user_objects()?.remove(object)?;
    }
    Ok(())
}

/// Returns the object behind a handle, while the caller owns a reference.
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
