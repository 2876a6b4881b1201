//! The byte stream under a connection: plain or TLS, as lapin would open it. It checks what the broker sends before lapin reads it, and tells
//! when something has come.
//!
//! lapin parses, copies and drops header tables recursively, on stacks of unknown size, so one message with a deep table would crash
//! every process that reads it. lapin also closes its connection over a text that is not UTF-8. RabbitMQ passes both on to consumers.
//! [`content`] changes such messages in place; frames keep their lengths.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use lapin::AsyncTcpStream;
use tokio::sync::watch;

mod arrivals;
mod content;
mod frames;
mod runtime;

use arrivals::Arrivals;
use frames::Frames;

pub(super) use runtime::{connect, open};

/// Changes whenever bytes have come. They may be read already, or only later.
pub(crate) type Arrived = watch::Receiver<()>;

/// A frame to check is read in steps of at most this size, so that memory follows the received bytes and not the claimed
/// length.
const READ_STEP_BYTES: usize = 16 << 10;

/// A stream in which the reader finds neither a deep table nor a text that is not UTF-8.
pub(super) struct Socket<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> {
    stream: AsyncTcpStream<S>,
    arrivals: Arrivals,
    frames: Frames,
    /// The received part of a frame that must be complete before it is passed on. No later frame is read in the meantime.
    held: Vec<u8>,
    /// How much of a complete `held` was passed on.
    handed_on: Option<usize>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket<S> {
    fn new(stream: AsyncTcpStream<S>, arrivals: Arrivals) -> Self {
        Self { stream, arrivals, frames: Frames::default(), held: Vec::new(), handed_on: None }
    }

    /// Reads into the reader's buffer and holds back an incomplete frame. Returns how many bytes the reader gets.
    fn read_through(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Option<usize>>> {
        let read = ready!(self.arrivals.poll_read(&mut self.stream, cx, buffer))?;
        if read == 0 {
            return Poll::Ready(Ok(Some(0)));
        }
        let released = self.frames.release(&mut buffer[..read]);
        self.held.extend_from_slice(&buffer[released..read]);
        Poll::Ready(Ok((released > 0).then_some(released)))
    }

    /// Reads exactly the missing bytes of the held frame.
    fn complete_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let have = self.held.len();
        let lacking = Frames::lacking(&self.held)?.min(READ_STEP_BYTES);
        self.held.resize(have + lacking, 0);
        let outcome = self.arrivals.poll_read(&mut self.stream, cx, &mut self.held[have..]);
        let read = match &outcome {
            Poll::Ready(Ok(read)) => *read,
            _ => 0,
        };
        self.held.truncate(have + read);
        let read = ready!(outcome)?;
        // At the end of the stream the incomplete frame is passed on, and lapin rejects it.
        if read == 0 || self.frames.release(&mut self.held) > 0 {
            self.handed_on = Some(0);
        }
        Poll::Ready(Ok(()))
    }

    fn hand_on(&mut self, from: usize, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.held.len() - from);
        buffer[..count].copy_from_slice(&self.held[from..from + count]);
        self.handed_on = Some(from + count);
        if from + count == self.held.len() {
            self.held.clear();
            self.handed_on = None;
        }
        count
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if let Some(from) = socket.handed_on {
                return Poll::Ready(Ok(socket.hand_on(from, buffer)));
            }
            if !socket.held.is_empty() {
                ready!(socket.complete_held(cx))?;
            } else if let Some(read) = ready!(socket.read_through(cx, buffer))? {
                return Poll::Ready(Ok(read));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("held_bytes", &self.held.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
