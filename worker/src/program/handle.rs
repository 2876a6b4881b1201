//! The supervisor's side of a program.

use std::{fs, io, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use tokio::{
    io::{AsyncWriteExt as _, Interest, unix::AsyncFd},
    net::unix::OwnedWriteHalf,
    sync::mpsc,
    time::timeout,
};
use tracing::warn;

use super::message::{FromGuard, HostEvent, ProgramSpec, ToGuard};
use crate::{
    executor::{ChildProcess, Incoming, KillOnDrop, receive},
    ipc::frame::Frame,
    own_executable,
};

/// Time limit for making the namespaces.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Time limit for a message to a guard.
const SAY_DEADLINE: Duration = Duration::from_secs(2);
/// Time within which a guard that has closed its socket must exit.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// Time within which the kernel ends killed processes, unless they hang in a driver.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum events that wait for the supervisor: 1 MiB of output.
const EVENTS_MAX: usize = 16;

/// The processes of a program. Dropping it kills them all.
#[derive(Debug)]
pub struct HostProcess {
    guard: ChildProcess,
    namespace: Arc<Namespace>,
    outgoing: OwnedWriteHalf,
    events: mpsc::Receiver<HostEvent>,
}

/// Why a program was not isolated and started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("failed to start the program's guard: {0}")]
    Spawn(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the program's guard died: {0}")]
    Died(String),
    #[error("the program's guard was not ready within {} s", READY_DEADLINE.as_secs())]
    Timeout,
}

/// The first process of the program's PID namespace. It ends when all others have ended.
#[derive(Debug)]
struct Namespace(AsyncFd<OwnedFd>);

impl HostProcess {
    /// Isolates a program and starts it. The command may still be refused, because of the user's files. Cancelling kills everything.
    pub async fn start(spec: &ProgramSpec) -> Result<Self, HostError> {
        Self::start_program(None, spec).await
    }

    /// Starts a program with a guard of this executable; by default the running one.
    pub async fn start_program(executable: Option<&Path>, spec: &ProgramSpec) -> Result<Self, HostError> {
        let command = own_executable::command(executable, "program");
        let (child, mut incoming, mut outgoing) = KillOnDrop::spawn(command, None).await?;
        let prepare = async {
            // A guard that has died says so by the end of its socket.
            drop(write(&mut outgoing, spec).await);
            receive(&mut incoming).await
        };
        let init = match timeout(READY_DEADLINE, prepare).await {
            Ok(Ok(Some(FromGuard::Ready { init }))) => init,
            Ok(Ok(Some(FromGuard::Failed(reason)))) => return Err(HostError::Refused(reason)),
            Ok(_) => return Err(HostError::Died(child.end().await.describe())),
            Err(_) => return Err(HostError::Timeout),
        };
        let guard = child.release();
        let namespace = Namespace::of(init, guard.pid()).inspect_err(|_| guard.kill())?;
        let namespace = Arc::new(namespace);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(listen(incoming, guard.clone(), Arc::clone(&namespace), sender));
        let mut started = Self { guard, namespace, outgoing, events };
        started.say(&ToGuard::Go).await;
        Ok(started)
    }

    /// Returns the process id of the guard.
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Waits for the next event. Cancelling loses nothing. After the last event there is none.
    pub async fn next(&mut self) -> HostEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Sends SIGTERM to the program's processes, and SIGKILL to those that are left after the grace period. The last event says when
    /// nothing is left.
    pub async fn stop(&mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.say(&ToGuard::Stop { grace_ms }).await;
    }

    /// Kills everything, and waits until the kernel has ended it. Processes that hang in a driver are left after 10 s, with a warning.
    pub async fn kill(self) {
        self.guard.kill();
        self.namespace.kill();
        if self.guard.exit().await.is_stuck() || timeout(KILL_DEADLINE, self.namespace.end()).await.is_err() {
            warn!(guard = self.guard.pid(), "processes of a killed program did not end");
        }
    }

    async fn say(&mut self, message: &ToGuard) {
        // A guard that has died says so by its end.
        drop(timeout(SAY_DEADLINE, write(&mut self.outgoing, message)).await);
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.guard.kill();
    }
}

impl Namespace {
    /// Watches the init of a guard that has not reaped it.
    fn of(init: u32, guard: u32) -> io::Result<Self> {
        let pid = Pid::from_raw(init.cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        // If both have died, the id may name another process.
        if parent(init)? != Some(guard) {
            return Err(io::Error::other("it died"));
        }
        // SAFETY: the descriptor is owned, so it is open and stays the same until it is dropped.
        Ok(Self(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?))
    }

    fn kill(&self) {
        // An error means that it has ended.
        pidfd_send_signal(self.0.get_ref(), Signal::KILL).ok();
    }

    /// Waits until the init has ended, and everything else in the namespace before it.
    async fn end(&self) {
        drop(self.0.readable().await);
    }
}

/// Returns the parent of a process.
fn parent(process: u32) -> io::Result<Option<u32>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before it is in brackets, and may have any characters.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    Ok(fields.and_then(|mut fields| fields.nth(1)?.parse().ok()))
}

async fn write(outgoing: &mut OwnedWriteHalf, message: &impl Serialize) -> io::Result<()> {
    let Frame { bytes, .. } = Frame::encode(message, None).map_err(io::Error::other)?;
    outgoing.write_all(&bytes).await
}

/// Passes on the guard's events until the last one.
async fn listen(
    mut incoming: Incoming,
    guard: ChildProcess,
    namespace: Arc<Namespace>,
    events: mpsc::Sender<HostEvent>,
) {
    while let Ok(Some(message)) = receive(&mut incoming).await {
        // It is not the time for other messages.
        let FromGuard::Event(event) = message else { continue };
        let is_last = event.is_last();
        // Without a receiver, the program is being killed.
        if events.send(event).await.is_err() || is_last {
            return;
        }
    }
    let exit = match timeout(EXIT_DEADLINE, guard.exit()).await {
        Ok(exit) => exit,
        Err(_) => {
            guard.kill();
            guard.exit().await
        }
    };
    // The kernel kills the init with its guard.
    if timeout(KILL_DEADLINE, namespace.end()).await.is_err() {
        warn!(guard = guard.pid(), "processes of a program outlive its guard");
    }
    drop(events.send(HostEvent::Died(exit.describe())).await);
}
