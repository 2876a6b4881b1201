//! Runs operations of the blob store, with limits on their number and duration.
//!
//! A step on a folder has a thread of its own, because a network file system can hang for a long time. A step without progress is given
//! up; its thread ends when the file system responds and keeps its permit until then, which bounds the threads that a hanging store can
//! hold. A step on a server is a task of a runtime that all stores share, where hashing delays nothing else. Giving it up ends it.

use std::{
    io,
    pin::pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{self, Runtime},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

/// Steps that run at once: enough to keep a disk busy. Each hanging step holds one thread.
pub(super) const AT_ONCE: usize = 16;
/// How long a step may make no progress.
pub(super) const STALL: Duration = Duration::from_secs(30);
/// Rate of the slowest usable store. A longer transfer gets more time at this rate.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// How long a step waits for a permit while no other step makes progress: longer than it takes to recognise a hanging store.
pub(super) const PLACE_DEADLINE: Duration = Duration::from_secs(120);
/// How long an upload may make no progress. At the slowest usable rate, the four parts that move at once take 32 s.
const UPLOAD_STALL: Duration = Duration::from_secs(30 + 32);
/// Time limit of a walk. A folder may have a million files, and removing one takes milliseconds.
const WALK_DEADLINE: Duration = Duration::from_secs(2 * 3600);

/// Threads of the runtime for servers: enough to hash for several steps while others move.
const RUNTIME_THREADS: usize = 4;

/// The kind of a step, which determines its time limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A few system calls. They have permits of their own, so that they never wait for large transfers.
    Look,
    Transfer {
        bytes: u64,
    },
    /// Like a transfer, but its progress shows only when a server has confirmed a part of it.
    Upload {
        bytes: u64,
    },
    /// A walk over all blobs.
    Walk,
}

impl Kind {
    const fn stall(self) -> Duration {
        match self {
            Self::Look | Self::Transfer { .. } => STALL,
            Self::Upload { .. } => UPLOAD_STALL,
            Self::Walk => WALK_DEADLINE,
        }
    }

    const fn bytes(self) -> u64 {
        match self {
            Self::Transfer { bytes } | Self::Upload { bytes } => bytes,
            Self::Look | Self::Walk => 0,
        }
    }
}

/// Why a step has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("gave up after {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Shared between the thread of a step and its caller.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes processed, counted again if the step repeats them. The caller only checks that the number grows.
    moved: AtomicU64,
    expected: AtomicU64,
    given_up: AtomicBool,
    /// The bytes of all steps.
    all: Arc<AtomicU64>,
}

impl Progress {
    fn expecting(bytes: u64, all: &Arc<AtomicU64>) -> Self {
        Self { expected: bytes.into(), all: Arc::clone(all), ..Self::default() }
    }

    /// Records a processed piece; fails once the caller has given up.
    pub(super) fn moved(&self, bytes: usize) -> io::Result<()> {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.given_up.load(Ordering::Relaxed) { Err(io::Error::other("the caller gave up")) } else { Ok(()) }
    }

    /// Raises the expected bytes if there are more than was known.
    pub(super) fn expect(&self, bytes: u64) {
        self.expected.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Extends the limit of a step that waits for another process.
    pub(super) fn wait_for(&self, time: Duration) {
        self.expected.fetch_add(time.as_secs() * BYTES_PER_SECOND_MIN, Ordering::Relaxed);
    }

    fn limit(&self, stall: Duration) -> Duration {
        stall + Duration::from_secs(self.expected.load(Ordering::Relaxed) / BYTES_PER_SECOND_MIN)
    }
}

/// Gives up the step when its caller is cancelled or the deadline has passed.
struct GiveUpOnDrop(Arc<Progress>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Limits the steps that run at once. Clones share the limits.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    looks: Arc<Semaphore>,
    transfers: Arc<Semaphore>,
    /// The bytes that all steps have processed, as in [`Progress`].
    moved: Arc<AtomicU64>,
    /// Replaces the times without progress, in tests.
    stall: Option<Duration>,
}

impl Steps {
    pub(super) fn new() -> Self {
        let places = || Arc::new(Semaphore::new(AT_ONCE));
        Self { looks: places(), transfers: places(), moved: Arc::default(), stall: None }
    }

    #[cfg(test)]
    pub(super) fn with_stall(stall: Duration) -> Self {
        Self { stall: Some(stall), ..Self::new() }
    }

    /// Runs a step to its end, or gives it up. If cancelled, its thread ends at its next piece.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnOnce(&Progress) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let place = self.place(kind).await?;
        let progress = Arc::new(Progress::expecting(kind.bytes(), &self.moved));
        let guard = GiveUpOnDrop(Arc::clone(&progress));
        let (done, doing) = oneshot::channel();
        // A thread of its own, because a hanging runtime thread would keep the process from exiting.
        thread::Builder::new().name("blob-store".to_owned()).spawn(move || {
            let result = work(&progress);
            // A hanging step keeps its permit for as long as its thread runs.
            drop(place);
            // The caller may have been cancelled.
            drop(done.send(result));
        })?;
        wait(doing, &guard.0, self.stall.unwrap_or_else(|| kind.stall())).await
    }

    /// Runs a step as a task to its end, or gives it up. If cancelled, the task ends.
    pub(super) async fn spawn<T, F, W>(&self, kind: Kind, work: W) -> Result<T, Stopped>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
        W: FnOnce(Arc<Progress>) -> F,
    {
        let place = self.place(kind).await?;
        let progress = Arc::new(Progress::expecting(kind.bytes(), &self.moved));
        let guard = GiveUpOnDrop(Arc::clone(&progress));
        let (done, doing) = oneshot::channel();
        let working = work(progress);
        let task = runtime()?.spawn(async move {
            let result = working.await;
            drop(place);
            // The caller may have been cancelled.
            drop(done.send(result));
        });
        let _ended_with_its_caller = AbortOnDropHandle::new(task);
        wait(doing, &guard.0, self.stall.unwrap_or_else(|| kind.stall())).await
    }

    async fn place(&self, kind: Kind) -> Result<OwnedSemaphorePermit, Stopped> {
        let places = match kind {
            Kind::Look => &self.looks,
            Kind::Transfer { .. } | Kind::Upload { .. } | Kind::Walk => &self.transfers,
        };
        let started = Instant::now();
        let mut acquiring = pin!(Arc::clone(places).acquire_owned());
        loop {
            let seen = self.moved.load(Ordering::Relaxed);
            match timeout(PLACE_DEADLINE, &mut acquiring).await {
                Ok(place) => return Ok(place.expect("the semaphore is never closed")),
                // The store is busy with large transfers, and not hanging.
                Err(_) if self.moved.load(Ordering::Relaxed) != seen => {}
                Err(_) => return Err(Stopped::Timeout(started.elapsed())),
            }
        }
    }
}

/// The runtime of all steps on servers. It is not the caller's, whose tasks must not wait for hashing, and whose time tests may stop.
fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
        let mut builder = runtime::Builder::new_multi_thread();
        builder.worker_threads(RUNTIME_THREADS).thread_name("blob-store").enable_all().build()
    });
    RUNTIME.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

/// Runs a part of a step on a server that blocks or computes. The tasks of other steps continue on other threads.
pub(super) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Runs a task that outlives its step.
pub(super) fn spawn_detached(task: impl Future<Output: Send + 'static> + Send + 'static) {
    if let Ok(runtime) = runtime() {
        runtime.spawn(task);
    }
}

async fn wait<T>(
    mut doing: oneshot::Receiver<io::Result<T>>,
    progress: &Progress,
    stall: Duration,
) -> Result<T, Stopped> {
    let started = Instant::now();
    let mut seen = 0;
    loop {
        let next = (Instant::now() + stall).min(started + progress.limit(stall));
        if let Ok(done) = timeout_at(next, &mut doing).await {
            return Ok(done.map_err(|_| io::Error::other("the operation panicked"))??);
        }
        let moved = progress.moved.load(Ordering::Relaxed);
        // The limit may have grown in the meantime.
        if moved == seen || started.elapsed() >= progress.limit(stall) {
            return Err(Stopped::Timeout(started.elapsed()));
        }
        seen = moved;
    }
}

#[cfg(test)]
mod tests;
