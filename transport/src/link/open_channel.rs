//! A channel that closes before its connection does.
//!
//! lapin closes a dropped channel in the background. If the connection is being closed at that moment, it fails
//! instead, and frames still in the socket (such as acknowledgements) may be lost. So this type awaits the close, and the
//! session waits for its channels before it closes its connections.

use std::{ops::Deref, time::Duration};

use lapin::Channel;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The limit for closing one channel: a round trip. Nothing depends on its outcome.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct OpenChannel {
    channel: Channel,
    users: TaskTracker,
    /// Cancelled when the session has failed.
    failed: CancellationToken,
}

impl OpenChannel {
    pub(super) fn new(channel: Channel, users: TaskTracker, failed: CancellationToken) -> Self {
        Self { channel, users, failed }
    }

    /// Whether its session is still alive. lapin may report a frame as written although the connection broke.
    pub(crate) fn is_live(&self) -> bool {
        !self.failed.is_cancelled()
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
