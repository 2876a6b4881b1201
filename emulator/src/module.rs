//! A loaded program: its kernels, ready to run, and its variables, placed in device memory.
//!
//! `Module::load` is in `lower.rs`, so that this module does not depend on lowering.

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::Memory;
use crate::program::Program;

pub use crate::lower::{Reuse, Text};
pub use crate::ptx::error::{LoadError, LoadErrorKind};

/// Compute capability of a device, as major and minor number.
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
    /// Keeps the variables' memory alive. Every entry shares it, so that a running kernel keeps its variables.
    pub(crate) _storage: Arc<Storage>,
}

/// A kernel that can be launched.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    /// Bytes of the parameter block, laid out as the kernel reads it.
    pub params_bytes: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Local memory of one thread in bytes, with that of the functions that it calls by name, as `cuFuncGetAttribute`
    /// reports it.
    pub frame_bytes: u32,
    /// True if a thread may need more local memory, from its stack, because functions are recursive or call through
    /// pointers.
    pub(crate) needs_stack: bool,
    /// Bytes of constant memory of the whole module.
    pub const_bytes: u32,
    /// 32-bit registers that the kernel uses, at most 255 as on a device.
    pub registers: u32,
    /// Maximum threads of a block: the kernel's own limit, or the device's.
    pub max_threads: u32,
    /// The exact block shape that the kernel requires (`.reqntid`).
    pub required_block: Option<[u32; 3]>,
    /// An unsupported instruction of the kernel or of a function that it calls by name; it refuses the launch.
    pub(crate) missing: Option<LoadError>,
    pub(crate) program: Arc<Program>,
    pub(crate) function: usize,
    pub(crate) storage: Arc<Storage>,
}

/// A module variable of type `.texref`, `.samplerref` or `.surfref`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub kind: ReferenceKind,
    /// The value of the variable: the handle of its texture, sampler or surface.
    pub handle: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    Texture,
    Sampler,
    Surface,
}

/// The place of one kernel parameter in the parameter block.
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
    /// Handles of the module's textures, samplers and surfaces.
    pub(crate) handles: Vec<u64>,
}

impl Module {
    pub fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.get(name).cloned()
    }

    /// Returns address and bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// Returns a `.texref`, `.samplerref` or `.surfref` variable.
    pub fn reference(&self, name: &str) -> Option<Reference> {
        self.references.get(name).copied()
    }

    /// Returns the module with the register count of each kernel limited to `limit`.
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
    /// Returns the reason why the kernel can't be launched, if it needs an unsupported instruction.
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
