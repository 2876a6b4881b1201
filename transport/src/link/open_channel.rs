//! A channel that is closed in order.
//!
//! lapin closes a dropped channel in the background. If its connection is being closed at that moment, the connection fails
//! instead, and what the socket still holds (acknowledgements, say) may be lost. So a channel's end is awaited, and the
//! session waits for its channels before it closes its connections.

use std::{ops::Deref, time::Duration};

use lapin::Channel;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// For the farewell to one channel: a round trip. Nothing depends on its outcome.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct OpenChannel {
    channel: Channel,
    users: TaskTracker,
    /// Of its session.
    failed: CancellationToken,
}

impl OpenChannel {
    pub(super) fn new(channel: Channel, users: TaskTracker, failed: CancellationToken) -> Self {
        Self { channel, users, failed }
    }

    /// Whether its session still stands. lapin may call written what it has for a connection that broke.
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
        // Outside a runtime lapin's own way remains; there is nothing to await on.
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
