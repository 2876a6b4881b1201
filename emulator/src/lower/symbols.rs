//! What the names of a module stand for.

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
    /// A vector register, or where `quad` one of 128 bits.
    Tuple {
        slots: Vec<u32>,
        width: Width,
        quad: bool,
    },
    /// A variable in device memory, at its address; constants lie there too.
    Global {
        address: u64,
    },
    Shared {
        offset: u32,
    },
    /// `.extern .shared`: behind the static shared memory of whichever kernel runs.
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
    /// A variable for a texture, a sampler or a surface.
    Opaque {
        handle: u64,
    },
}

/// The names of a text's top level.
#[derive(Debug, Default)]
pub struct Symbols<'a> {
    pub names: HashMap<&'a str, Symbol>,
    /// Words of arguments and of results of each function that is called by name, as this text declares them.
    pub signatures: HashMap<&'a str, (usize, usize)>,
    /// Whether code gets the checks of the memory that it runs over.
    pub checked: bool,
    /// When registers share slots.
    pub reuse: Reuse,
    /// Whether kernels say that they run in clusters, of one block each.
    pub explicit_clusters: bool,
    /// Where the constants lie.
    pub constants: (u64, u64),
    /// The architecture that the text is for, as the number in `sm_80`.
    pub target: u32,
}

impl Symbols<'_> {
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).cloned()
    }
}
