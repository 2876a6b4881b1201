//! Which process of the program holds which lease. A lease serves one process at a time.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{net::UnixStream, sync::Notify};

use super::route::ProgramRoute;

/// The leases of a relay.
#[derive(Debug)]
pub(super) struct Holders {
    places: Mutex<Vec<Place>>,
    /// Told when a lease becomes free.
    freed: Notify,
}

#[derive(Debug)]
struct Place {
    route: ProgramRoute,
    /// The connection of the process that holds the lease.
    holder: Option<OwnedFd>,
}

/// A lease for one process. Dropping it frees the lease.
#[derive(Debug)]
pub(super) struct Held {
    holders: Arc<Holders>,
    index: usize,
    pub(super) route: ProgramRoute,
}

impl Holders {
    pub(super) fn of(routes: Vec<ProgramRoute>) -> Arc<Self> {
        let places = routes.into_iter().map(|route| Place { route, holder: None }).collect();
        Arc::new(Self { places: Mutex::new(places), freed: Notify::new() })
    }

    /// The number of leases, with those that have ended.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether a lease has not ended.
    pub(super) fn has_session(&self) -> bool {
        self.lock().iter().any(|place| !place.route.over.is_cancelled())
    }

    /// Takes a lease for a process. `None` if living processes hold all of them.
    ///
    /// A process that has just ended may still hold one, because its last bytes are on their way. The next process waits for that.
    pub(super) async fn take(self: &Arc<Self>, program: &UnixStream) -> Option<Held> {
        let mut holder = Some(program.as_fd().try_clone_to_owned().ok()?);
        loop {
            let freed = self.freed.notified();
            {
                let mut places = self.lock();
                if let Some(index) = places.iter().position(Place::is_free) {
                    places[index].holder = holder.take();
                    return Some(Held { holders: self.clone(), index, route: places[index].route.clone() });
                }
                if !places.iter().any(Place::is_ending) {
                    return None;
                }
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().expect("nothing panics while it holds this lock")
    }
}

impl Place {
    fn is_free(&self) -> bool {
        self.holder.is_none() && !self.route.over.is_cancelled()
    }

    /// Whether the process that holds the lease has closed its connection.
    fn is_ending(&self) -> bool {
        let Some(holder) = &self.holder else { return false };
        let mut connection = [PollFd::new(holder, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let polled = poll(&mut connection, Some(&Timespec::default()));
        !self.route.over.is_cancelled() && polled.is_ok() && connection[0].revents().intersects(gone)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holders.lock()[self.index].holder = None;
        // `take` has its `notified` before it looks for a free lease, so it misses no notification.
        self.holders.freed.notify_waiters();
    }
}
