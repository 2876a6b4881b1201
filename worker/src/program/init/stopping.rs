//! Listens to the guard while a program runs. Stops the program when the guard says so, and ends with the guard.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use super::next;
use crate::{ipc::frame::FrameReader, program::message::ToInit};

const TERMINATING: u8 = 1;
const KILLING: u8 = 2;

/// How far the program's end has come.
#[derive(Debug, Default)]
pub(super) struct Stopping(AtomicU8);

impl Stopping {
    /// Starts the thread that listens. The exit code of a command in a container goes to `ended`.
    pub(super) fn listen(self: &Arc<Self>, mut guard: FrameReader, ended: Sender<i32>) -> io::Result<()> {
        let stopping = Arc::clone(self);
        let listen = move || {
            while let Ok((message, _)) = next(&mut guard) {
                match message {
                    ToInit::Stop { grace_ms } if stopping.stop(Duration::from_millis(grace_ms)).is_err() => {
                        stopping.signal(KILLING);
                    }
                    ToInit::ContainerStarted => stopping.catch_up(),
                    // Without a receiver, the program has ended.
                    ToInit::ContainerEnded { exit_code } => drop(ended.send(exit_code)),
                    _ => {}
                }
            }
            // The guard has ended. The kernel kills all other processes in the namespace after this one.
            // SAFETY: _exit ends the process without running any of its code.
            unsafe { libc::_exit(1) }
        };
        thread::Builder::new().name("stopping".into()).spawn(listen).map(drop)
    }

    /// Returns whether the program must stop.
    pub(super) fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Sends the signal again that a command may have missed, because it started meanwhile.
    pub(super) fn catch_up(&self) {
        match self.0.load(Ordering::SeqCst) {
            KILLING => signal_all(libc::SIGKILL),
            TERMINATING => signal_all(libc::SIGTERM),
            _ => {}
        }
    }

    /// Sends SIGTERM, and starts the thread that sends SIGKILL after the grace period.
    fn stop(self: &Arc<Self>, grace: Duration) -> io::Result<()> {
        self.signal(TERMINATING);
        let stopping = Arc::clone(self);
        let kill = move || {
            thread::sleep(grace);
            stopping.signal(KILLING);
        };
        thread::Builder::new().name("grace".into()).spawn(kill).map(drop)
    }

    /// The state is written before the signal: a command that misses the signal sees the state.
    fn signal(&self, state: u8) {
        self.0.fetch_max(state, Ordering::SeqCst);
        self.catch_up();
    }
}

/// Sends a signal to all other processes in the namespace.
pub(super) fn signal_all(signal: libc::c_int) {
    // Without other processes the call fails.
    // SAFETY: the call takes integers only.
    unsafe { libc::kill(-1, signal) };
}
