//! Sends frames to a child directly from the caller, because waking a task takes longer than sending a frame. If the socket does not accept
//! a frame at once, a task sends it and the frames after it.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{io::Interest, net::unix::OwnedWriteHalf, runtime::Handle};
use tokio_util::sync::CancellationToken;

use crate::ipc::frame::{self, Frame};

/// The sending half of a child's socket. It stays open until the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Outgoing(Arc<Line>);

#[derive(Debug)]
struct Line {
    socket: OwnedWriteHalf,
    runtime: Handle,
    /// The frames that a task sends once the socket is writable.
    waiting: Mutex<VecDeque<Unsent>>,
    /// Cancelled when the child accepts no more frames.
    closed: CancellationToken,
}

/// A frame or the rest of one. Its descriptor is closed once it has been sent.
#[derive(Debug)]
struct Unsent {
    frame: Frame,
    sent: usize,
}

impl Outgoing {
    /// Creates the sending half. Call it in the runtime that will send the frames.
    pub(super) fn over(socket: OwnedWriteHalf) -> Self {
        let (runtime, waiting, closed) = (Handle::current(), Mutex::default(), CancellationToken::new());
        Self(Arc::new(Line { socket, runtime, waiting, closed }))
    }

    /// Sends a frame; frames are sent in the order of the calls. Frames to a child that has ended are dropped: the listener detects the end
    /// of the socket and answers the child's jobs.
    pub(super) fn send(&self, frame: Frame) {
        if self.0.closed.is_cancelled() {
            return;
        }
        let mut unsent = Unsent { frame, sent: 0 };
        let mut waiting = self.0.waiting();
        if waiting.is_empty() {
            match self.0.take(&mut unsent) {
                Ok(true) => return,
                Ok(false) => drop(self.0.runtime.spawn(Arc::clone(&self.0).send_waiting())),
                Err(_) => return self.0.give_up(),
            }
        }
        waiting.push_back(unsent);
    }

    /// Drops unsent and later frames, because a stuck child may never read its socket.
    pub(super) fn close(&self) {
        self.0.closed.cancel();
    }
}

impl Line {
    async fn send_waiting(self: Arc<Self>) {
        let sending = async {
            loop {
                self.socket.writable().await?;
                if self.take_waiting()? {
                    return io::Result::Ok(());
                }
            }
        };
        match self.closed.run_until_cancelled(sending).await {
            Some(Ok(())) => return,
            Some(Err(_)) => self.give_up(),
            None => {}
        }
        self.waiting().clear();
    }

    /// Closes the socket after an error. Usually the child has ended. If it still runs, it must not wait for frames that never arrive.
    fn give_up(&self) {
        self.closed.cancel();
        // The socket may already be disconnected, so errors are ignored.
        let socket = self.socket.as_ref().as_fd().try_clone_to_owned().map(UnixStream::from);
        drop(socket.and_then(|socket| socket.shutdown(Shutdown::Both)));
    }

    /// Sends the waiting frames. Returns whether the socket accepted all of them.
    fn take_waiting(&self) -> io::Result<bool> {
        let mut waiting = self.waiting();
        while let Some(first) = waiting.front_mut() {
            if !self.take(first)? {
                return Ok(false);
            }
            waiting.pop_front();
        }
        Ok(true)
    }

    /// Sends the rest of a frame. Returns whether the socket accepted all of it.
    fn take(&self, unsent: &mut Unsent) -> io::Result<bool> {
        let socket = self.socket.as_ref();
        let Unsent { frame, sent } = unsent;
        while *sent < frame.bytes.len() {
            let descriptor = frame.descriptor.as_ref().map(AsFd::as_fd);
            let rest = &frame.bytes[*sent..];
            match socket.try_io(Interest::WRITABLE, || frame::send(socket, rest, descriptor)) {
                Ok(taken) => {
                    *sent += taken;
                    frame.descriptor = None;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Unsent>> {
        self.waiting.lock().expect("no thread panics while sending")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::{net::UnixStream as AsyncUnixStream, task::spawn_blocking};

    use super::*;

    fn frame(byte: u8, bytes: usize) -> Frame {
        Frame { bytes: vec![byte; bytes], descriptor: None }
    }

    async fn line() -> (Outgoing, UnixStream) {
        let (ours, theirs) = AsyncUnixStream::pair().unwrap();
        let theirs = theirs.into_std().unwrap();
        theirs.set_nonblocking(false).unwrap();
        (Outgoing::over(ours.into_split().1), theirs)
    }

    #[tokio::test]
    async fn frames_keep_their_order_also_where_the_socket_is_full() {
        let (outgoing, mut theirs) = line().await;
        let sizes = [10, 4 << 20, 10, 1 << 20, 0, 10];
        for (byte, bytes) in (0..).zip(sizes) {
            outgoing.send(frame(byte, bytes));
        }
        let expected: Vec<u8> = (0..).zip(sizes).flat_map(|(byte, bytes)| vec![byte; bytes]).collect();
        let mut got = vec![0; expected.len()];
        let got = spawn_blocking(move || theirs.read_exact(&mut got).map(|()| got)).await.unwrap().unwrap();
        assert!(got == expected);
    }

    #[tokio::test]
    async fn the_other_side_sees_the_end_when_the_last_clone_is_dropped() {
        let (outgoing, mut theirs) = line().await;
        outgoing.clone().send(frame(7, 1));
        drop(outgoing);
        let mut all = Vec::new();
        let all = spawn_blocking(move || theirs.read_to_end(&mut all).map(|_| all)).await.unwrap().unwrap();
        assert_eq!(all, [7]);
    }

    #[tokio::test]
    async fn nothing_waits_for_a_child_that_is_gone() {
        let (outgoing, theirs) = line().await;
        outgoing.send(frame(0, 4 << 20));
        drop(theirs);
        outgoing.0.closed.cancelled().await;
        outgoing.send(frame(1, 1));
        while !outgoing.0.waiting().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn nothing_waits_for_a_child_that_takes_nothing_once_it_is_given_up() {
        let (outgoing, _theirs) = line().await;
        outgoing.send(frame(0, 4 << 20));
        assert!(!outgoing.0.waiting().is_empty());
        outgoing.close();
        while !outgoing.0.waiting().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
