//! Symbols: the meaning of the names of a module.

use std::collections::HashMap;

use super::layout::Width;
use super::reuse::Reuse;
use crate::program::Callee;

#[derive(Clone, Debug)]
pub enum Symbol {
    Register {
        slot: u32,
        width: Width,
    },
    /// A vector register, or if `quad` a 128-bit one.
    Tuple {
        slots: Vec<u32>,
        width: Width,
        quad: bool,
    },
    /// A variable in device memory, with its address; constants are there too.
    Global {
        address: u64,
    },
    Shared {
        offset: u32,
    },
    /// `.extern .shared`: memory behind the static shared memory of the running kernel.
    DynamicShared,
    Local {
        offset: u32,
    },
    KernelParam {
        offset: u32,
    },
    /// A parameter or result of a device function: one word plane for each four bytes.
    ParamWords(Vec<u32>),
    Function(Callee),
    /// A texture, sampler or surface reference.
    Opaque {
        handle: u64,
    },
}

/// The names of a text's module scope.
#[derive(Debug, Default)]
pub struct Symbols<'a> {
    pub names: HashMap<&'a str, Symbol>,
    /// Number of words of arguments and results of each function that is called by name, as this text declares it.
    pub signatures: HashMap<&'a str, (usize, usize)>,
    /// True if the memory requires checks in the code.
    pub checked: bool,
    /// When registers share slots.
    pub reuse: Reuse,
    /// True if kernels declare that they run in clusters, of one block each.
    pub explicit_clusters: bool,
    /// Address and bytes of constant memory.
    pub constants: (u64, u64),
    /// Architecture of `.target`, as the number in `sm_80`.
    pub target: u32,
}

impl Symbols<'_> {
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).cloned()
    }
}
