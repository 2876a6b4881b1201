//! A channel that closes before its connection does, and the frames that settle its deliveries.
//!
//! lapin closes a dropped channel in the background. If the connection is being closed at that moment, it fails
//! instead, and frames still in the socket (such as acknowledgements) may be lost. So this type awaits the close, and the
//! session waits for its channels before it closes its connections.

use std::{
    ops::Deref,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicNackOptions},
};
use tokio::{runtime::Handle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::delivery::{Ack, Tag, Unsettled};

/// The limit for closing one channel: a round trip. Nothing depends on its outcome.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct OpenChannel {
    channel: Channel,
    users: TaskTracker,
    /// Cancelled when the session has failed.
    failed: CancellationToken,
    unsettled: Mutex<Unsettled>,
}

impl OpenChannel {
    pub(super) fn new(channel: Channel, users: TaskTracker, failed: CancellationToken) -> Self {
        Self { channel, users, failed, unsettled: Mutex::default() }
    }

    /// Whether its session is still alive. lapin may report a frame as written although the connection broke.
    pub(crate) fn is_live(&self) -> bool {
        !self.failed.is_cancelled()
    }

    /// A delivery has come on this channel. Called in the order of the tags.
    pub(crate) fn delivered(&self, tag: Tag) {
        self.unsettled().delivered(tag);
    }

    /// The consumer of this channel is cancelled, and the deliveries in transit have come.
    pub(crate) fn consumer_cancelled(&self) {
        self.unsettled().consumer_cancelled();
    }

    /// The number of cancelled consumers of this channel that have unsettled deliveries.
    pub(crate) fn cancelled_consumers(&self) -> usize {
        self.unsettled().cancelled_consumers()
    }

    /// Queues the frames that acknowledge these deliveries.
    pub(crate) fn ack(&self, tags: impl IntoIterator<Item = Tag>) -> Vec<Frame<'_>> {
        let mut unsettled = self.unsettled();
        let frame = |Ack { tag, multiple }| queued(self.channel.basic_ack(tag, BasicAckOptions { multiple }));
        unsettled.ack(tags).into_iter().map(frame).collect()
    }

    /// Queues the frame that requeues this delivery, unless it is settled already.
    pub(crate) fn requeue(&self, tag: Tag) -> Option<Frame<'_>> {
        let mut unsettled = self.unsettled();
        let options = BasicNackOptions { multiple: false, requeue: true };
        unsettled.settle(tag).then(|| queued(self.channel.basic_nack(tag, options)))
    }

    /// Locked until the frames are queued, because they must leave in the order in which they were decided: a frame for several deliveries
    /// must not overtake one for an older delivery.
    fn unsettled(&self) -> MutexGuard<'_, Unsettled> {
        self.unsettled.lock().expect("no thread panics while settling")
    }
}

/// A queued frame; resolves when it is written to the socket, or, if it is a request, when the broker has answered it.
pub(crate) type Frame<'a> = BoxFuture<'a, lapin::Result<()>>;

/// lapin queues a frame when its future is polled for the first time.
pub(crate) fn queued<'a>(frame: impl Future<Output = lapin::Result<()>> + Send + 'a) -> Frame<'a> {
    let mut frame = frame.boxed();
    match (&mut frame).now_or_never() {
        Some(done) => std::future::ready(done).boxed(),
        None => frame,
    }
}

impl Deref for OpenChannel {
    type Target = Channel;

    fn deref(&self) -> &Channel {
        &self.channel
    }
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        // Outside a runtime nothing can be awaited, so lapin closes the channel in the background.
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.channel.status().connected() {
            return;
        }
        let channel = self.channel.clone();
        let farewell = async move {
            let _ended_otherwise = timeout(CLOSE_DEADLINE, channel.close(200, "OK".into())).await;
        };
        self.users.spawn_on(farewell, &runtime);
    }
}
