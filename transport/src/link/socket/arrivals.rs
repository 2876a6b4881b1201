//! Tells when bytes have come over a stream.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use futures::io::AsyncRead;
use tokio::sync::watch;

/// Watches the reads of a stream.
#[derive(Debug)]
pub(super) struct Arrivals {
    told: watch::Sender<()>,
    /// The reader's waker, and the one that the stream gets in its place.
    wakers: Option<(Waker, Waker)>,
}

/// Wakes the reader of a stream that has become readable.
struct Readable {
    reader: Waker,
    told: watch::Sender<()>,
}

impl Arrivals {
    pub(super) fn new(told: watch::Sender<()>) -> Self {
        Self { told, wakers: None }
    }

    pub(super) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.wakers.as_ref().is_none_or(|(reader, _)| !reader.will_wake(cx.waker())) {
            let readable = Readable { reader: cx.waker().clone(), told: self.told.clone() };
            self.wakers = Some((cx.waker().clone(), Arc::new(readable).into()));
        }
        let (_, waker) = self.wakers.as_ref().expect("they were set just now");
        let read = Pin::new(stream).poll_read(&mut Context::from_waker(waker), buffer);
        // A reader that always finds bytes is never woken.
        if read.is_ready() {
            self.told.send_replace(());
        }
        read
    }
}

impl Wake for Readable {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.told.send_replace(());
        self.reader.wake_by_ref();
    }
}
