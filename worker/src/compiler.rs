//! Compiles CUDA C to PTX in a short-lived child process, and for a GPU also to a cubin for its architecture.
//!
//! NVRTC is a C++ front end that reads untrusted code: it may crash, loop or exhaust memory, and its log shows files that the code
//! includes. So it runs in a child with limits on time, memory and files ([`child`]), without the worker's environment, and with access
//! only to CUDA's headers, as far as the kernel supports that ([`sandbox`]). Options come from an allow list ([`options`]).
//!
//! A bounded cache keeps programs and compile errors by code, options, name expressions and target ([`cache`]). Concurrent equal requests
//! are compiled once. If the worker has a cache folder, programs are also cached on disk ([`store`]); that key includes the compiler and
//! its headers ([`toolkit`]).

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};
use tracing::{debug, info, warn};

mod cache;
mod cell;
mod check;
mod child;
mod command;
mod diagnostics;
mod error;
mod headers;
mod includes;
pub mod library;
mod nvrtc;
pub mod options;
mod parent;
mod request;
mod sandbox;
mod store;
mod toolkit;
mod turns;

pub use check::Checked;
pub use child::TIME_LIMIT;
pub use command::{CompileOptions, compile_file, compile_to_file, parse_arch};
pub(crate) use diagnostics::FILE_NAME;
pub use error::CompileError;
pub use library::{NVRTC_VARIABLE, Nvrtc};
pub use request::{CompileRequest, Compiled, Target};
pub use sandbox::{Closed, Sandbox};
pub use store::{ProgramStore, ProgramStoreError};

use cache::Cache;
use turns::Turns;

use crate::{own_executable, scheduler::PoolId};

/// Total size of the compiled programs that waiting jobs may hold, in KiB: as much as the cache holds.
const TAKEN_KIB_MAX: usize = 256 << 10;

/// A program and where it was found.
#[derive(Debug, Clone)]
pub struct Found {
    pub compiled: Arc<Compiled>,
    pub origin: ProgramOrigin,
}

/// Where a program was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOrigin {
    Memory,
    Disk,
    /// Compiled now, for this request or for an equal one.
    Compiler,
}

/// Counts of programs by origin since the start. A request that waited for another request's compilation counts as found in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub memory: u64,
    pub disk: u64,
    pub compiled: u64,
}

/// The supervisor's compiler with its cache.
#[derive(Debug)]
pub struct Compiler {
    executable: Option<PathBuf>,
    nvrtc: Option<PathBuf>,
    sandbox: Sandbox,
    user: Option<String>,
    time_limit: Duration,
    cache: Cache,
    store: Option<Arc<ProgramStore>>,
    /// The fingerprint of the default toolkit, which is used when a request names none.
    toolkit: OnceCell<blake3::Hash>,
    turns: Turns,
    taken_kib: Arc<Semaphore>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    memory: AtomicU64,
    disk: AtomicU64,
    compiled: AtomicU64,
}

impl Counters {
    fn of(&self, origin: ProgramOrigin) -> &AtomicU64 {
        match origin {
            ProgramOrigin::Memory => &self.memory,
            ProgramOrigin::Disk => &self.disk,
            ProgramOrigin::Compiler => &self.compiled,
        }
    }
}

impl Compiler {
    /// Creates a compiler. `nvrtc` is the library or its folder; without it, the usual places are searched.
    pub fn new(nvrtc: Option<PathBuf>) -> Self {
        Self {
            executable: None,
            nvrtc,
            sandbox: Sandbox::default(),
            user: None,
            time_limit: TIME_LIMIT,
            cache: Cache::default(),
            store: None,
            toolkit: OnceCell::new(),
            turns: Turns::new(1),
            taken_kib: Arc::new(Semaphore::new(TAKEN_KIB_MAX)),
            counters: Counters::default(),
        }
    }

    /// Sets the worker's executable, if it is not the running one.
    #[must_use]
    pub fn with_executable(mut self, executable: PathBuf) -> Self {
        self.executable = Some(executable);
        self
    }

    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Sets the user that compilers run as if this process is root: a name or a number; `nobody` by default.
    #[must_use]
    pub fn with_user(mut self, user: Option<String>) -> Self {
        self.user = user;
        self
    }

    /// Sets a time limit for one compilation that is shorter than [`TIME_LIMIT`].
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit.min(TIME_LIMIT);
        self
    }

    /// Shares the compilers among this many pools, so that no pool blocks the others.
    #[must_use]
    pub fn with_pools(mut self, pools: usize) -> Self {
        self.turns = Turns::new(pools);
        self
    }

    /// Runs a child in the compilers' sandbox and tests which files and calls it can still access. Cancelling kills the child.
    pub async fn check_sandbox(&self) -> Result<Checked, CompileError> {
        parent::check(self.user.clone(), self.executable.as_deref()).await
    }

    /// Sets the disk cache for programs, if there is one.
    #[must_use]
    pub fn with_store(mut self, store: Option<ProgramStore>) -> Self {
        self.store = store.map(Arc::new);
        self
    }

    pub fn counts(&self) -> Counts {
        let [memory, disk, compiled] = [&self.counters.memory, &self.counters.disk, &self.counters.compiled]
            .map(|count| count.load(Ordering::Relaxed));
        Counts { memory, disk, compiled }
    }

    /// Compiles `request` for the first pool, as [`Compiler::compile_for`] does.
    pub async fn compile(&self, request: CompileRequest) -> Result<Found, CompileError> {
        self.compile_for(PoolId(0), request).await
    }

    /// Returns the program of `request`, compiled or cached. Cancelling kills the compiler unless an equal request waits for it.
    pub async fn compile_for(&self, pool: PoolId, mut request: CompileRequest) -> Result<Found, CompileError> {
        request.options = options::canonical(&request.options).map_err(CompileError::Refused)?;
        let is_usual = request.nvrtc.is_none();
        if is_usual {
            request.nvrtc.clone_from(&self.nvrtc);
        }
        let key = request.key();
        let cell = self.cache.cell(key);
        let found = cell.get();
        let was_there = found.is_some();
        let mut is_ours = false;
        let outcome = match found {
            Some(outcome) => outcome,
            None => {
                let make = async {
                    is_ours = true;
                    self.make(&request, is_usual, key).await
                };
                cell.get_or_make(|| self.turns.take(pool), make).await
            }
        };
        if outcome.as_ref().is_err_and(CompileError::may_pass) {
            self.cache.forget(key, &cell);
        }
        let (compiled, origin) = outcome?;
        self.counters.of(if is_ours { origin } else { ProgramOrigin::Memory }).fetch_add(1, Ordering::Relaxed);
        if was_there && self.store.is_some() && self.cache.is_to_be_marked(key, cache::MARKED_EVERY) {
            self.mark_on_disk(key);
        }
        Ok(Found { compiled, origin: if was_there { ProgramOrigin::Memory } else { origin } })
    }

    /// Reserves room for the programs that a waiting job holds. Without room the job must not hold them, and the cache may evict them.
    pub fn room_for<'a>(&self, programs: impl Iterator<Item = &'a Compiled>) -> Option<OwnedSemaphorePermit> {
        let kib = programs.map(Compiled::bytes).sum::<usize>().div_ceil(1 << 10);
        Arc::clone(&self.taken_kib).try_acquire_many_owned(u32::try_from(kib).ok()?).ok()
    }

    /// Reads the program from disk, or compiles it.
    async fn make(&self, request: &CompileRequest, is_usual: bool, key: blake3::Hash) -> cache::CompileOutcome {
        let place = if is_usual { self.place(key).await } else { None };
        if let Some((store, key)) = &place
            && let Some(compiled) = read(store, *key).await
        {
            info!(%key, micros_then = compiled.micros, "program found in the disk cache");
            return Ok((Arc::new(compiled), ProgramOrigin::Disk));
        }
        let compiling = parent::compile(request, self.sandbox, self.user.clone(), self.executable.as_deref());
        let compiled = match timeout(self.time_limit, compiling).await {
            Ok(compiled) => Arc::new(compiled?),
            Err(_) => return Err(CompileError::Timeout { limit: self.time_limit }),
        };
        debug!(%key, micros = compiled.micros, has_cubin = compiled.cubin.is_some(), "program compiled");
        if let Some((store, key)) = place {
            write(store, key, Arc::clone(&compiled)).await;
        }
        Ok((compiled, ProgramOrigin::Compiler))
    }

    /// Identifies the compiler in advance, so that the first program does not wait for it.
    pub async fn prepare(&self) {
        if self.store.is_some() {
            self.toolkit_known().await;
        }
    }

    async fn toolkit_known(&self) -> Option<&blake3::Hash> {
        let found = self.toolkit.get_or_try_init(|| self.find_toolkit()).await;
        found.inspect_err(|error| debug!(%error, "NVRTC version unknown, disk cache not used")).ok()
    }

    /// Returns the store and the key of a program on disk, or `None` if the compiler can't be identified; compiling then reports the
    /// reason.
    async fn place(&self, key: blake3::Hash) -> Option<(Arc<ProgramStore>, blake3::Hash)> {
        let store = self.store.as_ref()?;
        let toolkit = self.toolkit_known().await?;
        Some((Arc::clone(store), blake3::keyed_hash(toolkit.as_bytes(), key.as_bytes())))
    }

    /// Identifies the compiler in a child, because this process loads no compiler.
    async fn find_toolkit(&self) -> Result<blake3::Hash, CompileError> {
        let nvrtc = Nvrtc::locate(self.nvrtc.as_deref()).map_err(CompileError::NotFound)?;
        let includes = nvrtc.includes.clone();
        let loaded = parent::identify(nvrtc, self.executable.as_deref()).await?;
        let is_strict = self.sandbox == Sandbox::Strict;
        let found = spawn_blocking(move || toolkit::fingerprint(&loaded, &includes, is_strict)).await;
        found
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| CompileError::Internal(format!("could not inspect the CUDA toolkit: {error}")))
    }

    /// Updates the age of the program on disk, in the background.
    fn mark_on_disk(&self, key: blake3::Hash) {
        let (Some(store), Some(toolkit)) = (&self.store, self.toolkit.get()) else { return };
        let (store, key) = (Arc::clone(store), blake3::keyed_hash(toolkit.as_bytes(), key.as_bytes()));
        spawn_blocking(move || {
            if let Err(error) = store.touch(key) {
                warn!(%key, %error, "cached program not marked as used");
            }
        });
    }
}

async fn read(store: &Arc<ProgramStore>, key: blake3::Hash) -> Option<Compiled> {
    let store = Arc::clone(store);
    let read = spawn_blocking(move || store.get(key)).await;
    read.map_err(std::io::Error::other).flatten().unwrap_or_else(|error| {
        warn!(%key, %error, "cached program unusable, compiling it again");
        None
    })
}

/// Writes the program to disk. An error, such as a full disk, fails no job: it only makes later requests slower.
async fn write(store: Arc<ProgramStore>, key: blake3::Hash, compiled: Arc<Compiled>) {
    let written = spawn_blocking(move || store.put(key, &compiled)).await;
    if let Err(error) = written.map_err(std::io::Error::other).flatten() {
        warn!(%key, %error, "program not stored in the disk cache");
    }
}

/// Compiles `request` without a cache.
pub async fn compile(mut request: CompileRequest) -> Result<Compiled, CompileError> {
    request.options = options::canonical(&request.options).map_err(CompileError::Refused)?;
    parent::compile(&request, Sandbox::default(), None, None).await
}

/// Runs a compiler child, which reads a request from standard input and writes the answer to standard output.
pub fn main() -> ExitCode {
    own_executable::show_as("gpufleet-nvrtc");
    child::main()
}

/// Returns the microseconds since `started`, for timings.
fn micros_since(started: Instant) -> u64 {
    started.elapsed().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_jobs_take_along_are_bounded() {
        let compiler = Compiler::new(None);
        let half = Compiled {
            ptx: "x".repeat(TAKEN_KIB_MAX << 9),
            cubin: None,
            log: String::new(),
            micros: 0,
            version: String::new(),
            symbols: std::collections::BTreeMap::new(),
        };
        let room = || compiler.room_for(std::iter::once(&half));
        let [first, second] = [room(), room()];
        assert!(first.is_some() && second.is_some() && room().is_none());
        assert!(compiler.room_for(std::iter::empty()).is_some(), "a job without any needs none");
        drop(first);
        assert!(room().is_some());
    }
}
