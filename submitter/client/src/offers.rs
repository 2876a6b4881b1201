//! Hands each offer of a session to the handle of its job.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use gpufleet_schema::{JobId, SessionOffer};
use tokio::sync::mpsc;
use tracing::debug;

/// Offers that may wait for their handle. Each is that of a new attempt, and a handle takes it at once.
const WAITING_MAX: usize = 16;

/// The sessions that wait for offers.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<JobId, mpsc::Sender<SessionOffer>>>);

/// The offers of one session, one for each attempt. Dropping this ends the wait.
#[derive(Debug)]
pub(crate) struct PendingOffers {
    job_id: JobId,
    arrivals: mpsc::Receiver<SessionOffer>,
    offers: Arc<Offers>,
}

impl Offers {
    /// Starts to wait for the offers of a job. An earlier wait for this job gets no more of them.
    pub(crate) fn expect(self: &Arc<Self>, job_id: JobId) -> PendingOffers {
        let (sender, arrivals) = mpsc::channel(WAITING_MAX);
        self.lock().insert(job_id, sender);
        PendingOffers { job_id, arrivals, offers: self.clone() }
    }

    /// Hands an offer to the handle of its job. An offer that no handle waits for is dropped, and its worker takes the memory back.
    pub(crate) fn deliver(&self, offer: SessionOffer) {
        let job_id = offer.job_id;
        let waiting = self.lock().get(&job_id).cloned();
        if waiting.is_none_or(|waiting| waiting.try_send(offer).is_err()) {
            debug!(%job_id, "dropped an offer of a session that no handle waits for");
        }
    }

    /// Ends every wait, because no more offers will arrive.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, mpsc::Sender<SessionOffer>>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

impl PendingOffers {
    /// Waits for the next offer. `None` if no more can arrive. Cancelling the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<SessionOffer> {
        self.arrivals.recv().await
    }
}

impl Drop for PendingOffers {
    fn drop(&mut self) {
        self.arrivals.close();
        let mut waiting = self.offers.lock();
        // An open sender belongs to a later wait for the same job.
        if waiting.get(&self.job_id).is_some_and(mpsc::Sender::is_closed) {
            waiting.remove(&self.job_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{RanOn, VERSION};

    use super::*;

    fn offer(job_id: JobId, attempt: u32) -> SessionOffer {
        SessionOffer {
            version: VERSION,
            job_id,
            attempt,
            addresses: Vec::new(),
            certificate: String::new(),
            token: String::new(),
            ran_on: RanOn { worker: "w".parse().unwrap(), device: 0, device_name: "d".to_owned(), emulated: true },
            memory_bytes: 1,
            time_limit_ms: 1,
            connect_within_ms: 1,
        }
    }

    #[tokio::test]
    async fn each_offer_reaches_the_handle_of_its_job_and_others_are_dropped() {
        let offers = Arc::new(Offers::default());
        let [first, second] = [JobId::new(), JobId::new()];
        let [mut of_first, mut of_second] = [first, second].map(|job_id| offers.expect(job_id));
        offers.deliver(offer(second, 1));
        offers.deliver(offer(JobId::new(), 1));
        offers.deliver(offer(first, 1));
        offers.deliver(offer(first, 2));
        assert_eq!(of_second.next().await.unwrap().job_id, second);
        assert_eq!(of_first.next().await.unwrap().attempt, 1);
        assert_eq!(of_first.next().await.unwrap().attempt, 2);
        offers.close();
        assert_eq!(of_first.next().await, None);
    }

    #[tokio::test]
    async fn a_later_wait_for_the_same_job_outlives_the_first() {
        let offers = Arc::new(Offers::default());
        let job_id = JobId::new();
        let first = offers.expect(job_id);
        let mut second = offers.expect(job_id);
        drop(first);
        offers.deliver(offer(job_id, 1));
        assert!(second.next().await.is_some());
        drop(second);
        assert!(offers.lock().is_empty());
    }
}
