//! Programs, and the modules that jobs share.
//!
//! The first job that needs a module without variables loads it, and all other jobs share it. A module with variables would carry the state
//! of one job into the next and mix that of concurrent jobs, so each job loads its own.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::module::{LoadError, Loaded, Module};
use crate::{
    executor::{
        cubin,
        ptx::{self, Declarations, Entry},
    },
    ipc::message::Image,
};

/// A program from the supervisor, and its module if that is cached.
#[derive(Debug)]
pub(crate) struct Program {
    image: Image,
    /// Read by the first job on its own thread, so that a long text delays no other job.
    declared: OnceLock<Declared>,
    /// Locked by the job that loads the module.
    loading: Mutex<()>,
    /// Never locked for long, because memory reports must count an idle module.
    kept: Mutex<Option<Arc<Module>>>,
}

#[derive(Debug)]
struct Declared {
    entries: Arc<[Entry]>,
    has_variables: bool,
    device_bytes: u64,
}

/// The programs with a cached module. Modules can be unloaded if memory is short.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    programs: Mutex<Vec<Weak<Program>>>,
    /// The total size of all loaded modules in bytes, including unshared ones.
    loaded_bytes: Arc<AtomicU64>,
}

impl Declared {
    fn of(image: &Image) -> Self {
        let device_bytes = image.code().device_bytes();
        match image {
            // The PTX contains more information, and both come from the same source.
            Image::Ptx(text) | Image::Both { ptx: text, .. } => {
                let Declarations { entries, has_variables, .. } = ptx::declarations(text);
                Self { entries: entries.into(), has_variables, device_bytes }
            }
            Image::Cubin(bytes) => {
                Self { entries: Arc::default(), has_variables: cubin::has_variables(bytes), device_bytes }
            }
        }
    }
}

impl Program {
    pub(crate) fn new(image: Image) -> Self {
        Self { image, declared: OnceLock::new(), loading: Mutex::default(), kept: Mutex::default() }
    }

    /// Returns the program's module, if it is cached and not being loaded.
    pub(crate) fn kept(&self) -> Option<Arc<Module>> {
        self.lock_kept().clone()
    }

    fn lock_kept(&self) -> MutexGuard<'_, Option<Arc<Module>>> {
        self.kept.lock().expect("no thread panics while it looks at a module")
    }

    fn load(&self, declared: &Declared, all: &Arc<AtomicU64>) -> Result<Arc<Module>, LoadError> {
        let loaded = || Loaded::new(declared.device_bytes, all);
        Module::load(&self.image, Arc::clone(&declared.entries), loaded).map(Arc::new)
    }

    /// Returns the size of the program's module in bytes, if it is cached and no job uses it.
    fn idle_bytes(&self) -> u64 {
        self.lock_kept().as_ref().filter(|module| Arc::strong_count(module) == 1).map_or(0, |module| module.bytes())
    }

    /// Unloads the module unless a job uses or loads it. Returns whether it was unloaded.
    fn unload_idle(&self) -> bool {
        // Jobs get a module only under this lock, so a module that is unused now stays unused. It is unloaded after the lock is released.
        let idle = self.lock_kept().take_if(|module| Arc::strong_count(module) == 1);
        idle.is_some()
    }
}

impl Shelf {
    /// Returns the module for a job, and whether it was already loaded. If another job is loading a shared module, waits for that.
    pub(crate) fn module(&self, program: &Arc<Program>) -> Result<(Arc<Module>, bool), LoadError> {
        let declared = program.declared.get_or_init(|| Declared::of(&program.image));
        if declared.has_variables {
            return Ok((program.load(declared, &self.loaded_bytes)?, false));
        }
        if let Some(module) = program.kept() {
            return Ok((module, true));
        }
        let _loading = program.loading.lock().expect("no thread panics while loading");
        // Another job may have loaded it in the meantime.
        if let Some(module) = program.kept() {
            return Ok((module, true));
        }
        let module = program.load(declared, &self.loaded_bytes)?;
        *program.lock_kept() = Some(Arc::clone(&module));
        self.remember(program);
        Ok((module, false))
    }

    /// Returns the total size of all loaded modules, in bytes.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// Returns the total size of the modules that no job uses, in bytes.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.known().iter().map(|program| program.idle_bytes()).sum()
    }

    /// Unloads every module that no job uses. Returns whether there was one.
    pub(crate) fn unload_idle(&self) -> bool {
        self.known().iter().filter(|program| program.unload_idle()).count() > 0
    }

    /// Returns a copy of the list, to be used without its lock. Dropping the last reference unloads a module, which waits for running
    /// kernels.
    fn known(&self) -> Vec<Arc<Program>> {
        self.programs().iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a program. The list is bounded, because this removes programs that the supervisor has evicted.
    fn remember(&self, program: &Arc<Program>) {
        let mut programs = self.programs();
        programs.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(program));
        programs.push(Arc::downgrade(program));
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Weak<Program>>> {
        self.programs.lock().expect("no thread panics while holding the shelf")
    }
}
