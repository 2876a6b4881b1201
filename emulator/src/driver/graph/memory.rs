//! Memory that a graph allocates. Its address is part of the graph, so it is allocated when the node is created and
//! freed when the last graph with the node is gone.

use crate::driver::{device::Device, handle::Handle};

/// An allocation that nodes share.
#[derive(Debug)]
pub struct GraphMemory {
    pub address: u64,
    pub bytes: u64,
    /// Distinguishes it from later allocations at this address.
    pub(in crate::driver) mark: Handle,
    pub(in crate::driver) device: &'static Device,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.device.graph_bytes.subtract(self.bytes);
        // The context may have ended before and freed the memory.
        if self.device.allocations.get(self.address).is_some_and(|known| known.graph == Some(self.mark)) {
            self.device
                .allocations
                .free(self.address, &self.device.memory)
                .expect("the allocation was just found, and is freed here alone");
        }
    }
}
