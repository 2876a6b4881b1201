//! Drives the scheduler: jobs wait here for a slot on a device.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

use crate::{
    failpoint::{self, Failpoint},
    scheduler::{Action, Demand, DeviceId, Event, PoolId, Promise, Room, Scheduler, Ticket, TooLarge},
    shared_state::{Locked, SharedState},
};

/// Why a job does not start.
#[derive(Debug)]
pub(super) enum Denied {
    TooLarge(TooLarge),
    /// The devices that the job may use are out of service.
    PassedOn,
    /// The worker is leaving, or has too many messages of the queue; the job did not start.
    HandedBack,
}

/// A pool's memory is lent after one to two ticks without work: longer than a producer needs to send its next job when it has the last one's
/// outputs.
const TICK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Admission {
    inner: SharedState<Inner>,
    asked_back: SharedState<HashMap<(DeviceId, PoolId), Arc<Notify>>>,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    waiting: HashMap<Ticket, AdmissionRequest>,
    tickets: u64,
}

#[derive(Debug)]
struct AdmissionRequest {
    pool: PoolId,
    answer: oneshot::Sender<Result<Granted, Denied>>,
}

/// A slot on a device.
#[derive(Debug, Clone, Copy)]
struct Granted {
    device: DeviceId,
    kept_max: u64,
}

/// The right to run on a device. Dropping it admits the next job. The time for which the job occupied its slot is then charged to its
/// pool, unless [`Permit::leave`] gives the measured time.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    ticket: Ticket,
    granted: Option<Instant>,
    used_us: Option<u64>,
    /// The memory that the pool's executor may cache while this job runs.
    pub(super) kept_max: u64,
}

impl Admission {
    pub(super) fn new(pools: &[Promise]) -> Arc<Self> {
        let inner = Inner { scheduler: Scheduler::new(pools), waiting: HashMap::new(), tickets: 0 };
        Arc::new(Self { inner: SharedState::new(inner), asked_back: SharedState::default() })
    }

    /// Waits for a slot. Cancelling releases the slot, even if it was granted at the same moment.
    pub(super) async fn admit(self: &Arc<Self>, demand: Demand) -> Result<(Permit, DeviceId), Denied> {
        let (answer, granted) = oneshot::channel();
        let ticket = {
            let mut inner = self.lock();
            inner.tickets += 1;
            let ticket = Ticket(inner.tickets);
            inner.waiting.insert(ticket, AdmissionRequest { pool: demand.pool, answer });
            ticket
        };
        // From here on dropping the permit removes the ticket in every case.
        let mut permit = Permit { admission: Arc::clone(self), ticket, granted: None, used_us: None, kept_max: 0 };
        self.tell(Event::Arrived(ticket, demand));
        let granted = granted.await.expect("a waiting sender is only removed by using it or by this permit's drop")?;
        (permit.granted, permit.kept_max) = (Some(Instant::now()), granted.kept_max);
        Ok((permit, granted.device))
    }

    pub(super) fn tell(&self, event: Event) {
        let mut inner = self.lock();
        if let Event::Arrived(..) = event {
            failpoint::reach(Failpoint::Scheduling);
        }
        for action in inner.scheduler.step(event) {
            let (ticket, denied) = match action {
                Action::Start(ticket, device) => {
                    inner.grant(ticket, device);
                    continue;
                }
                Action::AskBack(device, pool) => {
                    self.asked_back(device, pool).notify_one();
                    continue;
                }
                Action::Refuse(ticket, too_large) => (ticket, Denied::TooLarge(too_large)),
                Action::PassOn(ticket) => (ticket, Denied::PassedOn),
                Action::HandBack(ticket) => (ticket, Denied::HandedBack),
            };
            if let Some(waiting) = inner.waiting.remove(&ticket) {
                // A caller that was cancelled has dropped its permit too, which tells the scheduler.
                let _ = waiting.answer.send(Err(denied));
            }
        }
    }

    /// Sends ticks to the scheduler, for as long as this future is polled.
    pub(super) async fn tick(&self) {
        loop {
            sleep(TICK).await;
            self.tell(Event::Tick);
        }
    }

    /// The room for more jobs, by pool and then by priority.
    pub(super) fn rooms(&self) -> Vec<Room> {
        self.lock().scheduler.rooms()
    }

    /// The number of jobs waiting for a slot, by pool.
    pub(super) fn waiting(&self) -> Vec<usize> {
        self.lock().scheduler.waiting_by_pool()
    }

    /// Jobs that can run at once.
    pub(super) fn places(&self) -> u32 {
        self.lock().scheduler.places()
    }

    /// Notified when the pool's executor on the device must release cached memory.
    pub(super) fn asked_back(&self, device: DeviceId, pool: PoolId) -> Arc<Notify> {
        let mut asked = self.asked_back.lock();
        Arc::clone(asked.entry((device, pool)).or_default())
    }

    /// Asks every executor on the device to release cached memory, because another executor finds too little to start.
    pub(super) fn ask_all_back(&self, device: DeviceId) {
        let asked = self.asked_back.lock();
        asked.iter().filter(|((of, _), _)| *of == device).for_each(|(_, asked)| asked.notify_one());
    }

    /// Locks and unlocks the scheduler, to detect a deadlock.
    pub(super) fn touch(&self) {
        drop(self.lock());
    }

    pub(super) fn running(&self) -> usize {
        self.lock().scheduler.running()
    }

    fn lock(&self) -> Locked<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn grant(&mut self, ticket: Ticket, device: DeviceId) {
        if let Some(AdmissionRequest { pool, answer }) = self.waiting.remove(&ticket) {
            let granted = Granted { device, kept_max: self.scheduler.kept_max(device, pool) };
            // As above.
            let _ = answer.send(Ok(granted));
        }
    }
}

impl Permit {
    /// Releases the slot of a job that has used this much device time.
    pub(super) fn leave(mut self, used_us: u64) {
        self.used_us = Some(used_us);
    }

    /// The device time to charge, at most the time in the slot, because an executor's report may be wrong.
    fn used_us(&self) -> u64 {
        let held_us = self.granted.map_or(0, |granted| granted.elapsed().as_micros() as u64);
        self.used_us.map_or(held_us, |used_us| used_us.min(held_us))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.lock().waiting.remove(&self.ticket);
        self.admission.tell(Event::Left { ticket: self.ticket, used_us: self.used_us() });
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Priority;

    use super::*;
    use crate::scheduler::Allowed;

    const DEMAND: Demand = Demand {
        pool: PoolId(0),
        priority: Priority::Normal,
        bytes: 1,
        alone: false,
        prints: false,
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
    async fn a_job_is_charged_for_no_more_time_than_it_held_its_place() {
        let admission = one_place();
        let (mut permit, _) = admission.admit(DEMAND).await.unwrap();
        permit.used_us = Some(u64::MAX);
        assert!(permit.used_us() < Duration::from_secs(3600).as_micros() as u64);
        permit.used_us = Some(0);
        assert_eq!(permit.used_us(), 0);
        permit.leave(u64::MAX);
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
    async fn a_pool_whose_executor_keeps_what_a_job_waits_for_is_asked_and_the_job_goes_on() {
        let admission = Admission::new(&[Promise::default(); 2]);
        let (device, pool) = (DeviceId(0), PoolId(1));
        admission.tell(Event::Device { device, places: 1, bytes: 10 });
        admission.tell(Event::ExecutorUp(device, PoolId(0)));
        admission.tell(Event::ExecutorUp(device, pool));
        admission.tell(Event::Kept { device, pool, bytes: 10 });
        let mut waiter = std::pin::pin!(admission.admit(DEMAND));
        assert!(futures::poll!(waiter.as_mut()).is_pending());
        admission.asked_back(device, pool).notified().await;
        admission.tell(Event::Kept { device, pool, bytes: 0 });
        waiter.await.unwrap();
    }

    #[tokio::test]
    async fn all_executors_of_one_device_can_be_asked_back() {
        let admission = one_place();
        let [here, also_here, elsewhere] =
            [(0, 0), (0, 1), (1, 0)].map(|(device, pool)| admission.asked_back(DeviceId(device), PoolId(pool)));
        admission.ask_all_back(DeviceId(0));
        here.notified().await;
        also_here.notified().await;
        assert!(futures::poll!(std::pin::pin!(elsewhere.notified())).is_pending());
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
