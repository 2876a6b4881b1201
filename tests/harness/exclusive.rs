//! Services that one scenario at a time uses, because it breaks them. With several sets, several such scenarios run at once.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use gpufleet_local::Services;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A bounded number of sets of services. A set starts when it is first needed.
#[derive(Debug)]
pub(crate) struct Exclusive {
    free: Semaphore,
    idle: Mutex<Vec<Set>>,
}

/// A set in use. Dropping this frees the set.
#[derive(Debug)]
pub(crate) struct Held {
    pool: &'static Exclusive,
    set: Set,
    _permit: SemaphorePermit<'static>,
}

#[derive(Debug, Clone)]
struct Set {
    services: Arc<Services>,
    /// The vhost and database of the last scenario, which could not delete them if the services were down.
    space: Option<String>,
}

impl Exclusive {
    pub(crate) const fn new(sets_max: usize) -> Self {
        Self { free: Semaphore::const_new(sets_max), idle: Mutex::new(Vec::new()) }
    }

    /// Waits for a free set, and starts or repairs its services.
    pub(crate) async fn take(
        &'static self,
        start: impl AsyncFnOnce() -> Arc<Services>,
        repair: impl AsyncFnOnce(&Services),
    ) -> Held {
        let permit = self.free.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle.lock().expect("no panic happens under this lock").pop();
        let services = match idle {
            Some(Set { services, space }) => {
                repair(&services).await;
                if let Some(space) = space {
                    services.delete_space(&space).await.unwrap_or_else(|error| panic!("{error}"));
                }
                services
            }
            None => start().await,
        };
        Held { pool: self, set: Set { services, space: None }, _permit: permit }
    }
}

impl Held {
    /// Leaves this vhost and database to the next scenario, which deletes them once it has repaired the services.
    pub(crate) fn leave(&mut self, space: &str) {
        self.set.space = Some(space.to_owned());
    }
}

impl Deref for Held {
    type Target = Arc<Services>;

    fn deref(&self) -> &Arc<Services> {
        &self.set.services
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.idle.lock().expect("no panic happens under this lock").push(self.set.clone());
    }
}
