//! Programs and who may use their modules.
//!
//! A module without variables is loaded by the first job that needs it and kept for all others. One with variables would carry what a job
//! left in them to the next, and mix up two that run at once; so each job gets its own, as new as the text is.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak,
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

/// A program as the supervisor sent it, and its module if that is kept.
#[derive(Debug)]
pub(crate) struct Program {
    image: Image,
    /// Read by the first job, on its stream: a long text holds up nobody else.
    declared: OnceLock<Declared>,
    kept: Mutex<Option<Arc<Module>>>,
}

#[derive(Debug)]
struct Declared {
    entries: Arc<[Entry]>,
    has_variables: bool,
    device_bytes: u64,
}

/// Which programs have a kept module, so that those can be unloaded where memory is short.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    programs: Mutex<Vec<Weak<Program>>>,
    /// Of every module that is loaded, jobs' own ones included.
    loaded_bytes: Arc<AtomicU64>,
}

impl Declared {
    fn of(image: &Image) -> Self {
        let device_bytes = image.code().device_bytes();
        match image {
            // The text says more, and both come from one source.
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
        Self { image, declared: OnceLock::new(), kept: Mutex::default() }
    }

    /// Its module if that is kept, and nobody is just loading it.
    pub(crate) fn kept(&self) -> Option<Arc<Module>> {
        self.kept.try_lock().ok()?.clone()
    }

    fn load(&self, declared: &Declared, all: &Arc<AtomicU64>) -> Result<Arc<Module>, LoadError> {
        let loaded = || Loaded::new(declared.device_bytes, all);
        Module::load(&self.image, Arc::clone(&declared.entries), loaded).map(Arc::new)
    }

    /// The bytes of its module, if it is kept and no job has it.
    fn idle_bytes(&self) -> u64 {
        let idle = |kept: &Option<Arc<Module>>| {
            kept.as_ref().filter(|module| Arc::strong_count(module) == 1).map(|module| module.bytes())
        };
        // One that is being loaded is for a job.
        self.kept.try_lock().ok().and_then(|kept| idle(&kept)).unwrap_or(0)
    }

    /// Unloads the module unless a job has it or just loads it. Answers whether it did.
    fn unload_idle(&self) -> bool {
        let mut kept = match self.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(_)) => unreachable!("no thread panics while loading"),
        };
        // Jobs get theirs only under this lock, so one that nobody has stays so.
        let is_idle = kept.as_ref().is_some_and(|module| Arc::strong_count(module) == 1);
        if is_idle {
            *kept = None;
        }
        is_idle
    }
}

impl Shelf {
    /// The module for a job, and whether it was there before. Whoever comes while a shared one is being loaded waits.
    pub(crate) fn module(&self, program: &Arc<Program>) -> Result<(Arc<Module>, bool), LoadError> {
        let declared = program.declared.get_or_init(|| Declared::of(&program.image));
        if declared.has_variables {
            return Ok((program.load(declared, &self.loaded_bytes)?, false));
        }
        let mut kept = program.kept.lock().expect("no thread panics while loading");
        if let Some(module) = &*kept {
            return Ok((Arc::clone(module), true));
        }
        let module = program.load(declared, &self.loaded_bytes)?;
        *kept = Some(Arc::clone(&module));
        drop(kept);
        self.remember(program);
        Ok((module, false))
    }

    /// What all loaded modules take.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// What those take that no job has.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.known().iter().map(|program| program.idle_bytes()).sum()
    }

    /// Unloads every module that no job has. Answers whether there was one.
    pub(crate) fn unload_idle(&self) -> bool {
        self.known().iter().filter(|program| program.unload_idle()).count() > 0
    }

    /// Who lets go of one last unloads its module, which waits for the kernels that run: not before the shelf is free again.
    fn known(&self) -> Vec<Arc<Program>> {
        self.programs().iter().filter_map(Weak::upgrade).collect()
    }

    /// Bounded by what the supervisor lets this process hold: it forgets programs, and they are dropped from here then.
    fn remember(&self, program: &Arc<Program>) {
        let mut programs = self.programs();
        programs.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(program));
        programs.push(Arc::downgrade(program));
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Weak<Program>>> {
        self.programs.lock().expect("no thread panics while holding the shelf")
    }
}
