//! How the tasks of a worker reach the dispatcher.

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

/// What reaches the shell: inputs of the dispatcher, some with what only the shell needs.
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
    /// Settlements were sent, each of them as in [`Input::Settled`].
    Settled(Vec<(MessageNo, Option<blake3::Hash>)>),
    /// Answered once no message is left.
    WhenIdle(oneshot::Sender<()>),
    /// Answered at once.
    Ping(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct DispatcherHandle {
    /// Only the shell changes it. Others read it for metrics and heartbeats.
    dispatcher: SharedState<Dispatcher>,
    mail: mpsc::UnboundedSender<Mail>,
    release_requests: SharedState<HashMap<(DeviceId, PoolId), Arc<Notify>>>,
}

impl DispatcherHandle {
    /// `mark` is the mark that the worker writes into the log of orders at its start.
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

    /// Runs work in a task of its own. A panic there costs only its message: the shell gets `fallback`.
    pub(super) fn spawn(self: &Arc<Self>, fallback: Mail, work: impl Future<Output = Mail> + Send + 'static) {
        tokio::spawn(Arc::clone(self).deliver(fallback, AssertUnwindSafe(work).catch_unwind()));
    }

    /// The same for brief work: begins it at once, and lets a task end it only if it has to wait. A small job is over before a task
    /// would have woken for each of its steps.
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

    /// The same for work whose result is not needed once it is cancelled.
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

    /// Something happened to a device, its memory or an executor.
    pub(super) fn tell_devices(&self, change: Change) {
        self.tell(Input::Devices(change));
    }

    /// Resolves once no message is left, of those that were delivered before this call.
    pub(super) async fn idle(&self) {
        self.asked(Mail::WhenIdle).await;
    }

    /// Resolves once the shell has taken all earlier mail.
    pub(super) async fn answers(&self) {
        self.asked(Mail::Ping).await;
    }

    async fn asked(&self, question: fn(oneshot::Sender<()>) -> Mail) {
        let (answer, answered) = oneshot::channel();
        self.send(question(answer));
        // An error means that the worker has ended.
        let _ended = answered.await;
    }

    /// Notified when the pool's executor on the device must release cached memory.
    pub(super) fn release_request(&self, device: DeviceId, pool: PoolId) -> Arc<Notify> {
        Arc::clone(self.release_requests.lock().entry((device, pool)).or_default())
    }

    /// Asks every executor on the device to release cached memory, because another executor finds too little to start.
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
