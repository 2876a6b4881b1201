//! The handle through which the tasks of a worker reach the dispatcher.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, thread, time::Instant};

use futures::FutureExt as _;
use gpufleet_schema::{MessageId, WorkerName};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    content::{Content, RawMessage},
    decoding::Begun,
    preparing::Ready,
    running::Attempt,
};
use crate::{
    dispatcher::{AttemptEnd, Decoded, Dispatcher, Input, JobNo, Letter, MessageNo},
    scheduler::{Change, DeviceId, PoolGuarantee, PoolId},
    shared_state::{Locked, SharedState},
};

/// A message to the shell: an input of the dispatcher, in some cases with data that only the shell needs.
pub(super) enum Mail {
    Input(Input),
    Delivered(Arc<RawMessage>, Box<Letter>),
    Decoded {
        message: MessageNo,
        content: Arc<Content>,
        begun: Vec<Begun>,
        decoded: Decoded,
    },
    Prepared(JobNo, Ready),
    Ended(JobNo, Attempt, Box<AttemptEnd>),
    /// Settlements were sent; each entry is as in [`Input::Settled`].
    Settled(Vec<(MessageNo, Option<blake3::Hash>)>),
    /// Answer once no message is left.
    WhenIdle(oneshot::Sender<()>),
    /// Answer at once.
    Ping(oneshot::Sender<()>),
}

/// The dispatcher, and the channel to the shell that drives it.
#[derive(Debug)]
pub(super) struct DispatcherHandle {
    /// Only the shell changes the dispatcher. Metrics and heartbeats read it.
    dispatcher: SharedState<Dispatcher>,
    mail: mpsc::UnboundedSender<Mail>,
    release_requests: SharedState<HashMap<(DeviceId, PoolId), Arc<Notify>>>,
}

impl DispatcherHandle {
    /// Creates the dispatcher, and returns its handle with the mail for the shell. `mark` is the mark that the worker writes into the
    /// control stream at its start.
    pub(super) fn new(
        worker: WorkerName,
        mark: MessageId,
        pools: &[PoolGuarantee],
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Mail>) {
        let (mail, received) = mpsc::unbounded_channel();
        let dispatcher = SharedState::new(Dispatcher::new(Instant::now(), worker, mark, pools));
        (Arc::new(Self { dispatcher, mail, release_requests: SharedState::default() }), received)
    }

    pub(super) fn dispatcher(&self) -> Locked<'_, Dispatcher> {
        self.dispatcher.lock()
    }

    pub(super) fn send(&self, mail: Mail) {
        // An error means that the worker has ended.
        drop(self.mail.send(mail));
    }

    pub(super) fn tell(&self, input: Input) {
        self.send(Mail::Input(input));
    }

    /// Runs work in a task of its own. A panic there affects only its message: the shell gets `fallback`.
    pub(super) fn spawn(self: &Arc<Self>, fallback: Mail, work: impl Future<Output = Mail> + Send + 'static) {
        tokio::spawn(Arc::clone(self).deliver(fallback, AssertUnwindSafe(work).catch_unwind()));
    }

    /// Runs short work. It begins at once on the caller's thread, and continues in a task only if it has to wait. A small job ends sooner
    /// than a task would wake up for each of its steps. A panic sends or returns `fallback`.
    pub(super) fn begin(
        self: &Arc<Self>,
        fallback: Mail,
        work: impl Future<Output = Mail> + Send + 'static,
    ) -> Option<Mail> {
        let mut work = AssertUnwindSafe(work).catch_unwind().boxed();
        match (&mut work).now_or_never() {
            Some(outcome) => Some(outcome.unwrap_or(fallback)),
            None => {
                tokio::spawn(Arc::clone(self).deliver(fallback, work));
                None
            }
        }
    }

    /// Runs work in a task of its own until `cancel`. After that, its result is not needed.
    pub(super) fn spawn_until(
        self: &Arc<Self>,
        cancel: CancellationToken,
        fallback: Mail,
        work: impl Future<Output = Mail> + Send + 'static,
    ) {
        let delivered = Arc::clone(self).deliver(fallback, AssertUnwindSafe(work).catch_unwind());
        tokio::spawn(async move { cancel.run_until_cancelled(delivered).await });
    }

    async fn deliver(self: Arc<Self>, fallback: Mail, work: impl Future<Output = thread::Result<Mail>>) {
        self.send(work.await.unwrap_or(fallback));
    }

    /// Reports an event of a device, its memory or an executor.
    pub(super) fn tell_devices(&self, change: Change) {
        self.tell(Input::Devices(change));
    }

    /// Returns once no message is left of those that were delivered before this call.
    pub(super) async fn idle(&self) {
        self.asked(Mail::WhenIdle).await;
    }

    /// Returns once the shell has taken all earlier mail.
    pub(super) async fn answers(&self) {
        self.asked(Mail::Ping).await;
    }

    async fn asked(&self, question: fn(oneshot::Sender<()>) -> Mail) {
        let (answer, answered) = oneshot::channel();
        self.send(question(answer));
        // An error means that the worker has ended.
        let _ended = answered.await;
    }

    /// Returns the notification that the pool's executor on the device must release cached memory.
    pub(super) fn release_request(&self, device: DeviceId, pool: PoolId) -> Arc<Notify> {
        Arc::clone(self.release_requests.lock().entry((device, pool)).or_default())
    }

    /// Asks every executor on the device to release cached memory, because there is too little for another executor to start.
    pub(super) fn ask_all_back(&self, device: DeviceId) {
        let asked = self.release_requests.lock();
        asked.iter().filter(|((of, _), _)| *of == device).for_each(|(_, asked)| asked.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_executors_of_one_device_can_be_asked_to_release_memory() {
        let (handle, _mail) =
            DispatcherHandle::new("w".parse().unwrap(), MessageId::new(), &[PoolGuarantee::default()]);
        let [here, also_here, elsewhere] =
            [(0, 0), (0, 1), (1, 0)].map(|(device, pool)| handle.release_request(DeviceId(device), PoolId(pool)));
        handle.ask_all_back(DeviceId(0));
        here.notified().await;
        also_here.notified().await;
        assert!(futures::poll!(std::pin::pin!(elsewhere.notified())).is_pending());
    }
}
