//! The scheduler, driven: jobs await their turn here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use gpufleet_schema::Priority;
use tokio::sync::{oneshot, watch};

use crate::scheduler::{Action, Demand, DeviceId, Event, PoolId, Promise, Room, Scheduler, Ticket, TooLarge};

/// Why a job does not start.
#[derive(Debug)]
pub(super) enum Denied {
    TooLarge(TooLarge),
    /// The devices that it may run on are out of service.
    PassedOn,
    /// The worker is leaving, or has too much of its queue; the job was not touched.
    HandedBack,
}

#[derive(Debug)]
pub(super) struct Admission {
    inner: Mutex<Inner>,
    running: watch::Sender<usize>,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    waiting: HashMap<Ticket, oneshot::Sender<Result<DeviceId, Denied>>>,
    tickets: u64,
}

/// The right to run on a device. Dropping it lets the next job in; the time that the job held its place is then charged to its
/// pool, unless [`Permit::leave`] says better.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    ticket: Ticket,
    granted: Option<Instant>,
    used_us: Option<u64>,
}

impl Admission {
    pub(super) fn new(pools: &[Promise]) -> Arc<Self> {
        let inner = Inner { scheduler: Scheduler::new(pools), waiting: HashMap::new(), tickets: 0 };
        Arc::new(Self { inner: Mutex::new(inner), running: watch::Sender::new(0) })
    }

    /// Waits for a place. Cancelling gives the place up again, also one that was granted in the same moment.
    pub(super) async fn admit(self: &Arc<Self>, demand: Demand) -> Result<(Permit, DeviceId), Denied> {
        let (sender, granted) = oneshot::channel();
        let ticket = {
            let mut inner = self.lock();
            inner.tickets += 1;
            let ticket = Ticket(inner.tickets);
            inner.waiting.insert(ticket, sender);
            ticket
        };
        // From here on the ticket leaves when the permit drops, whatever becomes of it.
        let mut permit = Permit { admission: Arc::clone(self), ticket, granted: None, used_us: None };
        self.tell(Event::Arrived(ticket, demand));
        let device = granted.await.expect("a waiting sender is only removed by using it or by this permit's drop")?;
        permit.granted = Some(Instant::now());
        Ok((permit, device))
    }

    pub(super) fn tell(&self, event: Event) {
        let mut inner = self.lock();
        for action in inner.scheduler.step(event) {
            let (ticket, answer) = match action {
                Action::Start(ticket, device) => (ticket, Ok(device)),
                Action::Refuse(ticket, too_large) => (ticket, Err(Denied::TooLarge(too_large))),
                Action::PassOn(ticket) => (ticket, Err(Denied::PassedOn)),
                Action::HandBack(ticket) => (ticket, Err(Denied::HandedBack)),
            };
            if let Some(sender) = inner.waiting.remove(&ticket) {
                // Whoever stopped waiting also drops the permit, which tells the scheduler.
                let _ = sender.send(answer);
            }
        }
        self.running.send_replace(inner.scheduler.running());
    }

    /// The room for more jobs, by pool and then by priority.
    pub(super) fn rooms(&self, pools: usize) -> Vec<Room> {
        let inner = self.lock();
        let pools = (0..).map(PoolId).take(pools);
        pools.flat_map(|pool| Priority::ALL.map(|priority| inner.scheduler.room(pool, priority))).collect()
    }

    /// Jobs that can run at once.
    pub(super) fn places(&self) -> u32 {
        self.lock().scheduler.room(PoolId(0), Priority::default()).places
    }

    /// Passes through the scheduler's lock.
    pub(super) fn touch(&self) {
        drop(self.lock());
    }

    pub(super) fn running(&self) -> usize {
        *self.running.borrow()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no scheduler step panics while it holds the lock")
    }
}

impl Permit {
    /// The job is over and has used so much device time.
    pub(super) fn leave(mut self, used_us: u64) {
        self.used_us = Some(used_us);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.lock().waiting.remove(&self.ticket);
        let held_us = || self.granted.map_or(0, |granted| granted.elapsed().as_micros() as u64);
        let used_us = self.used_us.unwrap_or_else(held_us);
        self.admission.tell(Event::Left { ticket: self.ticket, used_us });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Allowed;

    const DEMAND: Demand = Demand {
        pool: PoolId(0),
        priority: Priority::Normal,
        bytes: 1,
        alone: false,
        allowed: Allowed::ALL,
        returnable: true,
    };

    fn one_place() -> Arc<Admission> {
        let admission = Admission::new(&[Promise::default()]);
        admission.tell(Event::Device { device: DeviceId(0), places: 1, bytes: 10 });
        admission.tell(Event::ExecutorUp(DeviceId(0), PoolId(0)));
        admission
    }

    #[tokio::test]
    async fn a_dropped_permit_lets_the_next_job_in() {
        let admission = one_place();
        let (first, _) = admission.admit(DEMAND).await.unwrap();
        let second = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.admit(DEMAND).await.map(|(_, device)| device) }
        });
        assert_eq!(admission.running(), 1);
        drop(first);
        assert_eq!(second.await.unwrap().unwrap(), DeviceId(0));
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn a_waiter_that_is_cancelled_leaves_no_trace() {
        let admission = one_place();
        let (first, _) = admission.admit(DEMAND).await.unwrap();
        {
            let mut waiter = std::pin::pin!(admission.admit(DEMAND));
            assert!(futures::poll!(waiter.as_mut()).is_pending());
        }
        drop(first);
        admission.admit(DEMAND).await.unwrap();
    }

    #[tokio::test]
    async fn draining_wakes_all_who_wait() {
        let admission = one_place();
        let (_first, _) = admission.admit(DEMAND).await.unwrap();
        let mut waiter = std::pin::pin!(admission.admit(DEMAND));
        assert!(futures::poll!(waiter.as_mut()).is_pending());
        admission.tell(Event::Draining);
        assert!(matches!(waiter.await, Err(Denied::HandedBack)));
    }
}
