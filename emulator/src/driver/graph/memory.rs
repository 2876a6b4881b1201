//! Memory that a graph allocates. Its address is part of the graph, so the memory is taken when the node is made and
//! given back when the last graph with the node is gone.

use std::sync::Arc;

use crate::driver::{
    context::Context,
    device::Device,
    handle::{Handle, fresh},
    memory,
    status::Answer,
};

/// An allocation that nodes share.
#[derive(Debug)]
pub struct GraphMemory {
    pub address: u64,
    pub bytes: u64,
    /// Tells it from later allocations at the same address.
    mark: Handle,
    device: &'static Device,
}

impl GraphMemory {
    pub fn new(context: &Arc<Context>, bytes: usize) -> Answer<Arc<Self>> {
        let mark = fresh();
        let address = memory::allocate_for_graph(context, bytes, mark)?;
        Ok(Arc::new(Self { address, bytes: bytes as u64, mark, device: context.device }))
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        // The context may have ended before, and taken the memory along.
        if self.device.allocations.get(self.address).is_some_and(|known| known.graph == Some(self.mark)) {
            self.device.free(self.address).expect("the allocation was just found, and is freed here alone");
        }
    }
}
