//! A stream that fails when its peer stops taking what is written to it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Time limit for a step. A peer that leaves bytes unread for this long loses the connection, unless it takes
/// [`STEP_BYTES`] in that time.
const STEP_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a step. With fewer, a peer that reads a few bytes now and then could hold a connection for ever.
const STEP_BYTES: usize = 64 << 10;

/// Bounds how long the written bytes may wait for the peer.
#[derive(Debug)]
pub(super) struct WriteProgress<S> {
    stream: S,
    /// Set while bytes wait.
    behind: Option<Behind>,
}

#[derive(Debug)]
struct Behind {
    /// Bytes that the peer must still take before the deadline.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> WriteProgress<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, behind: None }
    }

    /// The result of a write or a flush, or an error once the deadline has passed.
    fn checked<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            let start = || Behind { missing: STEP_BYTES, deadline: Box::pin(sleep(STEP_WITHIN)) };
            ready!(self.behind.get_or_insert_with(start).deadline.as_mut().poll(cx));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")));
        }
        outcome
    }

    fn wrote(&mut self, bytes: usize) {
        if let Some(behind) = &mut self.behind {
            behind.missing = behind.missing.saturating_sub(bytes);
            if behind.missing == 0 {
                self.behind = None;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteProgress<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteProgress<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let written = ready!(self.checked(cx, written))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        let written = ready!(self.checked(cx, written))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The HTTP library flushes when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.checked(cx, flushed))?;
        self.behind = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.checked(cx, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::Instant,
    };

    use super::*;

    const PIPE_BYTES: usize = 1 << 10;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_loses_the_connection_at_the_deadline() {
        let (near, _far) = duplex(PIPE_BYTES);
        let begun = Instant::now();
        let mut stream = WriteProgress::new(near);
        let error = stream.write_all(&[0; 2 * PIPE_BYTES]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), STEP_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_a_few_bytes_now_and_then_loses_it_too() {
        let (near, mut far) = duplex(PIPE_BYTES);
        let reader = tokio::spawn(async move {
            let mut bytes = [0; 512];
            while far.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let error = WriteProgress::new(near).write_all(&[0; 10 * STEP_BYTES]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_keeps_the_connection() {
        let (near, mut far) = duplex(PIPE_BYTES);
        let reader = tokio::spawn(async move {
            let (mut bytes, mut total) = ([0; PIPE_BYTES], 0);
            loop {
                match far.read(&mut bytes).await.unwrap() {
                    0 => return total,
                    count => total += count,
                }
                // Eight times as fast as it must be.
                sleep(STEP_WITHIN / (8 * (STEP_BYTES / PIPE_BYTES) as u32)).await;
            }
        });
        let mut stream = WriteProgress::new(near);
        stream.write_all(&vec![0; 20 * STEP_BYTES]).await.unwrap();
        stream.flush().await.unwrap();
        // A pause without bytes to write is no delay of the peer's.
        sleep(3 * STEP_WITHIN).await;
        stream.write_all(&vec![0; 2 * STEP_BYTES]).await.unwrap();
        drop(stream);
        assert_eq!(reader.await.unwrap(), 22 * STEP_BYTES);
    }
}
