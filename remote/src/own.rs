//! The messages that are not calls of a driver.

use gpufleet_surface::launch::limits::KernelLimits;

use crate::codec::{Malformed, Put, Reader};

/// A parameter of a kernel, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub offset: usize,
    pub bytes: usize,
}

/// What the program's library must know about a function to launch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionFacts {
    pub parameters: Vec<Parameter>,
    pub limits: KernelLimits,
}

impl FunctionFacts {
    pub fn put(&self, to: &mut Vec<u8>) {
        let KernelLimits { block_threads_max, required_block: _, registers, shared_bytes, dynamic_shared_max } =
            self.limits;
        [block_threads_max, registers, shared_bytes, dynamic_shared_max].into_iter().for_each(|limit| to.u32(limit));
        to.u64(self.parameters.len() as u64);
        for Parameter { offset, bytes } in &self.parameters {
            to.u64(*offset as u64);
            to.u64(*bytes as u64);
        }
    }

    pub fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [block_threads_max, registers, shared_bytes, dynamic_shared_max] =
            [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
        let required_block = None;
        let limits = KernelLimits { block_threads_max, required_block, registers, shared_bytes, dynamic_shared_max };
        let size = |from: &mut Reader<'_>| usize::try_from(from.u64()?).map_err(|_| Malformed);
        let parameter = |from: &mut Reader<'_>| Ok(Parameter { offset: size(from)?, bytes: size(from)? });
        let parameters = (0..from.length()?).map(|_| parameter(from)).collect::<Result<_, _>>()?;
        Ok(Self { parameters, limits })
    }
}
