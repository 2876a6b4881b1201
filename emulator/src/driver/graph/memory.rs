//! Memory that a graph allocates. Its address is part of the graph, so the memory is taken when the node is made and
//! given back when the last graph with the node is gone.

use crate::driver::{device::Device, handle::Handle};

/// An allocation that nodes share.
#[derive(Debug)]
pub struct GraphMemory {
    pub address: u64,
    pub bytes: u64,
    /// Tells it from later allocations at the same address.
    pub(in crate::driver) mark: Handle,
    pub(in crate::driver) device: &'static Device,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.device.graph_bytes.subtract(self.bytes);
        // The context may have ended before, and taken the memory along.
        if self.device.allocations.get(self.address).is_some_and(|known| known.graph == Some(self.mark)) {
            self.device
                .allocations
                .free(self.address, &self.device.memory)
                .expect("the allocation was just found, and is freed here alone");
        }
    }
}
