//! Runs an engine for one process of the program.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gpufleet_schema::SessionUse;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::UnixStream,
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{door::Tls, keeper::Happening};
use crate::{
    executor::{CudaSpec, Incoming, KillOnDrop, VISIBLE_DEVICES, receive},
    own_executable,
    session::{driver_file::DriverFile, engine::EngineReport},
};

/// Time within which an engine must exit after the program's connection has ended. Then it is killed.
const EXIT_DEADLINE: Duration = Duration::from_secs(1);
/// Maximum time for the last bytes of an engine that has exited.
const LAST_BYTES_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 128 << 10;

/// Options for starting engines.
#[derive(Debug)]
pub(super) struct EngineOptions {
    pub(super) cuda: CudaSpec,
    pub(super) file: DriverFile,
    /// The UUID of the device.
    pub(super) uuid: String,
    /// Device memory of the lease, in bytes.
    pub(super) memory_bytes: u64,
    pub(super) user: Option<String>,
}

/// An engine with its program.
#[derive(Debug)]
pub(super) struct Engine {
    live: Arc<Live>,
    stop: CancellationToken,
}

/// What an engine has done so far.
#[derive(Debug, Default)]
struct Live {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    report: Mutex<EngineReport>,
}

impl Engine {
    /// Starts an engine for a connection. [`Happening::EngineEnded`] says that it has ended.
    pub(super) fn start(options: Arc<EngineOptions>, connection: Tls, happenings: mpsc::Sender<Happening>) -> Self {
        let (live, stop) = (Arc::<Live>::default(), CancellationToken::new());
        let engine = Self { live: Arc::clone(&live), stop: stop.clone() };
        tokio::spawn(async move {
            if let Err(error) = run(&options, connection, &live, &stop).await {
                eprintln!("failed to start an engine: {error}");
            }
            drop(happenings.send(Happening::EngineEnded).await);
        });
        engine
    }

    /// Ends the engine and its program's connection.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn report(&self) -> EngineReport {
        *self.live.report()
    }

    /// Returns what the engine has done so far.
    pub(super) fn used(&self) -> SessionUse {
        let EngineReport { calls, waits, busy_us, memory_bytes_peak, .. } = self.report();
        SessionUse {
            processes: 1,
            calls,
            waits,
            sent_bytes: self.live.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.live.received_bytes.load(Ordering::Relaxed),
            busy_us,
            memory_bytes_peak,
            ..SessionUse::default()
        }
    }
}

impl Live {
    fn report(&self) -> MutexGuard<'_, EngineReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs an engine until it or the connection ends.
async fn run(options: &EngineOptions, connection: Tls, live: &Arc<Live>, stop: &CancellationToken) -> io::Result<()> {
    let (reports, theirs) = StdUnixStream::pair()?;
    options.file.send(&reports)?;
    let (child, mut incoming, mut outgoing) =
        KillOnDrop::spawn(command(options), Some(OwnedFd::from(theirs).into())).await?;
    let engine = child.release();
    reports.set_nonblocking(true)?;
    let (reports, _) = UnixStream::from_std(reports)?.into_split();
    let listening = tokio::spawn(listen(Incoming::new(reports), Arc::clone(live)));
    let (mut from_program, mut to_program) = split(connection);
    {
        let sent = copy(&mut from_program, &mut outgoing, &live.sent_bytes);
        let mut received = std::pin::pin!(copy(&mut incoming, &mut to_program, &live.received_bytes));
        tokio::select! {
            () = stop.cancelled() => {}
            // An engine that has ended reads nothing more, but its last answers may be under way.
            Err(_) = sent => drop(timeout(LAST_BYTES_DEADLINE, received).await),
            _ = &mut received => {}
            _ = engine.exit() => drop(timeout(LAST_BYTES_DEADLINE, received).await),
        }
    }
    // The engine sees the end of its connection.
    drop(outgoing);
    let exit = match timeout(EXIT_DEADLINE, engine.exit()).await {
        Ok(exit) => exit,
        Err(_) => {
            engine.kill();
            engine.exit().await
        }
    };
    if !exit.status.is_some_and(|status| status.success()) {
        eprintln!("an engine ended: {}", exit.describe());
    }
    // The socket ends with the engine, unless that hangs in the driver.
    if exit.is_stuck() {
        listening.abort();
    }
    drop(listening.await);
    Ok(())
}

fn command(options: &EngineOptions) -> Command {
    let EngineOptions { cuda, uuid, memory_bytes, user, .. } = options;
    let mut command = own_executable::command(None, "session-engine");
    command.env(VISIBLE_DEVICES, uuid).arg("--cuda").arg(cuda.to_string());
    command.arg("--memory-bytes").arg(memory_bytes.to_string());
    if let Some(user) = user {
        command.arg("--user").arg(user);
    }
    command
}

/// Takes the engine's counters until its end.
async fn listen(mut reports: Incoming, live: Arc<Live>) {
    while let Ok(Some(report)) = receive(&mut reports).await {
        *live.report() = report;
    }
}

/// Copies bytes until the end of `from`, and counts them.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; COPIED_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}
