//! The messages of this process to the supervisor.

use std::{
    io::Write as _,
    mem,
    os::unix::net::UnixStream,
    sync::{Mutex, MutexGuard},
};

use crate::ipc::{
    FromExecutor,
    frame::{Frame, FrameError},
};

/// The sending half of the socket to the supervisor.
#[derive(Debug)]
pub(crate) struct Upstream(Mutex<State>);

#[derive(Debug)]
struct State {
    socket: UnixStream,
    /// The frames that wait for the next one, so that one write sends them all.
    held: Vec<u8>,
}

impl Upstream {
    pub(crate) fn over(socket: UnixStream) -> Self {
        Self(Mutex::new(State { socket, held: Vec::new() }))
    }

    /// Sends a message, and before it those that wait. Blocks until the socket has accepted them.
    pub(crate) fn say(&self, message: &FromExecutor) -> Result<(), FrameError> {
        self.state().say(message)
    }

    /// Keeps a message until the next one is sent.
    pub(crate) fn hold(&self, message: &FromExecutor) -> Result<(), FrameError> {
        self.state().hold(message)
    }

    /// Sends the messages that wait.
    pub(crate) fn flush(&self) -> Result<(), FrameError> {
        self.state().flush()
    }

    /// Sends the last message of the process, which is made under the lock, so that no other follows.
    pub(super) fn say_last(&self, message: impl FnOnce() -> FromExecutor) -> Result<(), FrameError> {
        let mut state = self.state();
        let said = state.say(&message());
        mem::forget(state);
        said
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while holding the socket")
    }
}

impl State {
    fn hold(&mut self, message: &FromExecutor) -> Result<(), FrameError> {
        self.held.extend_from_slice(&Frame::encode(message, None)?.bytes);
        Ok(())
    }

    fn say(&mut self, message: &FromExecutor) -> Result<(), FrameError> {
        self.hold(message)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), FrameError> {
        let sent = self.socket.write_all(&self.held);
        self.held.clear();
        Ok(sent?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::frame::FrameReader;

    #[test]
    fn messages_that_wait_are_sent_before_the_next_one() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (upstream, mut theirs) = (Upstream::over(ours), FrameReader::over(theirs));
        upstream.hold(&FromExecutor::Released { job: 1 }).unwrap();
        upstream.hold(&FromExecutor::Released { job: 2 }).unwrap();
        assert!(theirs.read::<FromExecutor>().is_err(), "nothing was sent");
        upstream.say(&FromExecutor::Released { job: 3 }).unwrap();
        upstream.hold(&FromExecutor::Released { job: 4 }).unwrap();
        upstream.flush().unwrap();
        for expected in 1..=4 {
            let (message, _) = theirs.read().unwrap().unwrap();
            assert!(matches!(message, FromExecutor::Released { job } if job == expected), "{message:?}");
        }
    }
}
