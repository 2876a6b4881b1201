//! A loaded program: its kernels, lowered and ready to run, and its variables, placed in device memory.
//!
//! `Module::load` is in `lower.rs`, so that this module does not depend on lowering.

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::Memory;
use crate::program::Program;

pub use crate::lower::{Reuse, Text};
pub use crate::ptx::error::{LoadError, LoadErrorKind};

/// What the device that runs a program can do, as major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

/// A loaded program. Dropping it frees its variables.
#[derive(Debug)]
pub struct Module {
    pub(crate) entries: HashMap<String, Arc<Entry>>,
    pub(crate) globals: HashMap<String, (u64, u64)>,
    pub(crate) references: HashMap<String, Reference>,
    /// Keeps the variables' memory; shared with every entry, so that a kernel in flight keeps its variables.
    pub(crate) _storage: Arc<Storage>,
}

/// A kernel that can be launched.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    /// Bytes of all parameters laid out as the kernel reads them.
    pub params_bytes: u32,
    /// Statically declared shared memory.
    pub shared_bytes: u32,
    /// Local memory of one thread, with that of the functions that it calls by name, as a device's driver tells it.
    pub frame_bytes: u32,
    /// A thread may need more: functions call themselves, or others through pointers. That comes from its stack.
    pub(crate) needs_stack: bool,
    /// Constant memory of the whole module.
    pub const_bytes: u32,
    /// 32-bit registers that the kernel declares and uses, at most 255 as on a device.
    pub registers: u32,
    /// Threads in a block: what the kernel declares, or the device's limit.
    pub max_threads: u32,
    /// The exact block shape the kernel demands, where it does.
    pub required_block: Option<[u32; 3]>,
    /// An instruction of it, or of a function that it calls by name, that the emulator does not have.
    pub(crate) missing: Option<LoadError>,
    pub(crate) program: Arc<Program>,
    pub(crate) function: usize,
    pub(crate) storage: Arc<Storage>,
}

/// A variable of a module that stands for a texture, a sampler or a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub kind: ReferenceKind,
    /// What the program finds in the variable.
    pub handle: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    Texture,
    Sampler,
    Surface,
}

/// One kernel parameter's place in the parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    pub offset: u32,
    pub bytes: u32,
    pub align: u32,
}

/// The device memory of a module's variables.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) memory: Arc<Memory>,
    pub(crate) addresses: Vec<u64>,
    /// The handles of its textures, samplers and surfaces.
    pub(crate) handles: Vec<u64>,
}

impl Module {
    pub fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.get(name).cloned()
    }

    /// Address and bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// A `.texref`, `.samplerref` or `.surfref` variable.
    pub fn reference(&self, name: &str) -> Option<Reference> {
        self.references.get(name).copied()
    }

    /// The same program, whose kernels count at most so many registers.
    pub(crate) fn with_registers_max(mut self, limit: Option<u32>) -> Self {
        for entry in self.entries.values_mut() {
            let registers = limit.map_or(entry.registers, |limit| entry.registers.min(limit));
            let entry = Arc::get_mut(entry).expect("nothing else has a kernel of a program that is being loaded");
            entry.registers = registers;
        }
        self
    }

    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }
}

impl Entry {
    /// Why the kernel can't be launched, where it has an instruction that the emulator does not have.
    pub fn refusal(&self) -> Option<String> {
        let missing = self.missing.as_ref()?;
        Some(format!("kernel `{}` can't run: {missing}", self.name))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        for handle in &self.handles {
            self.memory.textures().remove(*handle);
        }
        for address in &self.addresses {
            self.memory.free(*address).expect("a module's variables are freed by the module alone");
        }
    }
}
