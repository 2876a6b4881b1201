//! The handle through which the tasks of a worker reach the dispatcher.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, thread};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::held::{HeldJob, HeldMessage};
use crate::{
    dispatcher::{self, Dispatcher},
    scheduler::{Change, DeviceId, ExecutorId, PoolId},
    shared_state::SharedState,
};

pub(super) type Input = dispatcher::Input<HeldMessage, HeldJob>;

/// A message to the shell.
#[expect(clippy::large_enum_variant, reason = "nearly all mail is an input")]
pub(super) enum Mail {
    Input(Input),
    /// Answer once no message is left.
    WhenIdle(oneshot::Sender<()>),
    /// Answer at once.
    Ask(oneshot::Sender<Snapshot>),
}

/// Some numbers of the dispatcher.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The number of jobs that occupy a slot.
    pub(super) running: usize,
    pub(super) pools: Vec<PoolSnapshot>,
}

#[derive(Debug)]
pub(super) struct PoolSnapshot {
    /// The number of jobs that wait for a slot.
    pub(super) waiting: usize,
    /// The number of them that are host programs, which wait for a device.
    pub(super) programs_waiting: usize,
    /// The number of unsettled messages in all of the pool's queues.
    pub(super) messages: u32,
}

impl Snapshot {
    pub(super) fn of<M, J>(dispatcher: &Dispatcher<M, J>) -> Self {
        let pools = (0..).map(PoolId).zip(dispatcher.waiting_by_pool());
        let pools = pools.map(|(pool, waiting)| PoolSnapshot {
            waiting,
            programs_waiting: dispatcher.programs_waiting(pool),
            messages: dispatcher.messages_of(pool),
        });
        Self { running: dispatcher.running(), pools: pools.collect() }
    }
}

/// The channel to the shell, which drives the dispatcher.
#[derive(Debug)]
pub(super) struct DispatcherHandle {
    mail: mpsc::UnboundedSender<Mail>,
    /// Runs the tasks that take long, on threads of its own, so that they delay no brief work.
    background: Handle,
    release_requests: SharedState<HashMap<ExecutorId, Arc<Notify>>>,
}

impl DispatcherHandle {
    /// Returns the handle with the mail for the shell.
    pub(super) fn new(background: Handle) -> (Arc<Self>, mpsc::UnboundedReceiver<Mail>) {
        let (mail, received) = mpsc::unbounded_channel();
        (Arc::new(Self { mail, background, release_requests: SharedState::default() }), received)
    }

    fn send(&self, mail: Mail) {
        // An error means that the worker has ended.
        drop(self.mail.send(mail));
    }

    pub(super) fn tell(&self, input: Input) {
        self.send(Mail::Input(input));
    }

    /// Runs work in the background. A panic there affects only its message: the shell gets `fallback`.
    pub(super) fn spawn(self: &Arc<Self>, fallback: Input, work: impl Future<Output = Input> + Send + 'static) {
        self.background.spawn(Arc::clone(self).deliver(fallback, AssertUnwindSafe(work).catch_unwind()));
    }

    /// Runs short work. It begins at once on the caller's thread, and continues in a task only if it has to wait. A small job ends sooner
    /// than a task would wake up for each of its steps. A panic sends or returns `fallback`.
    pub(super) fn begin(
        self: &Arc<Self>,
        fallback: Input,
        work: impl Future<Output = Input> + Send + 'static,
    ) -> Option<Input> {
        match begun(fallback, work) {
            Ok(input) => Some(input),
            Err(rest) => {
                let handle = Arc::clone(self);
                tokio::spawn(async move { handle.tell(rest.await) });
                None
            }
        }
    }

    /// Runs work that reports its results by itself, and begins at once on the caller's thread. A panic sends `fallbacks`.
    pub(super) fn begin_train(
        self: &Arc<Self>,
        fallbacks: Vec<Input>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let handle = Arc::clone(self);
        let mut work = async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                fallbacks.into_iter().for_each(|fallback| handle.tell(fallback));
            }
        }
        .boxed();
        if (&mut work).now_or_never().is_none() {
            tokio::spawn(work);
        }
    }

    /// Runs work in the background until `cancel`. After that, its result is not needed.
    pub(super) fn spawn_until(
        self: &Arc<Self>,
        cancel: CancellationToken,
        fallback: Input,
        work: impl Future<Output = Input> + Send + 'static,
    ) {
        let delivered = Arc::clone(self).deliver(fallback, AssertUnwindSafe(work).catch_unwind());
        self.background.spawn(async move { cancel.run_until_cancelled(delivered).await });
    }

    async fn deliver(self: Arc<Self>, fallback: Input, work: impl Future<Output = thread::Result<Input>>) {
        self.tell(work.await.unwrap_or(fallback));
    }

    /// Reports an event of a device, its memory or an executor.
    pub(super) fn tell_devices(&self, change: Change) {
        self.tell(Input::Devices(change));
    }

    /// Returns once no message is left of those that were delivered before this call.
    pub(super) async fn idle(&self) {
        self.asked(Mail::WhenIdle).await;
    }

    /// Returns the dispatcher's numbers once the shell has taken all earlier mail.
    pub(super) async fn snapshot(&self) -> Snapshot {
        self.asked(Mail::Ask).await
    }

    async fn asked<T: Default>(&self, question: fn(oneshot::Sender<T>) -> Mail) -> T {
        let (answer, answered) = oneshot::channel();
        self.send(question(answer));
        // An error means that the worker has ended.
        answered.await.unwrap_or_default()
    }

    /// Returns the notification that the executor must release cached memory.
    pub(super) fn release_request(&self, executor: ExecutorId) -> Arc<Notify> {
        Arc::clone(self.release_requests.lock().entry(executor).or_default())
    }

    /// Asks every executor on the device to release cached memory, because there is too little for another executor to start.
    pub(super) fn ask_all_back(&self, device: DeviceId) {
        let asked = self.release_requests.lock();
        asked.iter().filter(|(executor, _)| executor.device == device).for_each(|(_, asked)| asked.notify_one());
    }
}

/// Begins short work on the caller's thread. Returns its result, or the rest of the work if it has to wait. A panic gives `fallback`.
pub(super) fn begun(
    fallback: Input,
    work: impl Future<Output = Input> + Send + 'static,
) -> Result<Input, BoxFuture<'static, Input>> {
    let work = AssertUnwindSafe(work).catch_unwind();
    let mut work = async move { work.await.unwrap_or(fallback) }.boxed();
    (&mut work).now_or_never().ok_or(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_executors_of_one_device_can_be_asked_to_release_memory() {
        let (handle, _mail) = DispatcherHandle::new(Handle::current());
        let id = |(device, pool, index)| ExecutorId { device: DeviceId(device), pool: PoolId(pool), index };
        let [here, also_here, elsewhere] = [(0, 0, 0), (0, 1, 1), (1, 0, 0)].map(|of| handle.release_request(id(of)));
        handle.ask_all_back(DeviceId(0));
        here.notified().await;
        also_here.notified().await;
        assert!(futures::poll!(std::pin::pin!(elsewhere.notified())).is_pending());
    }
}
