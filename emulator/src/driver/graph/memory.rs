//! Memory that a graph allocates. Its address is part of the graph, so the memory is taken when the node is made and
//! given back when the last graph with the node is gone.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::driver::{
    context::Context,
    device::Device,
    handle::{Handle, fresh},
    memory,
    status::{Answer, Status},
};

/// Bytes of all graphs of a device: the current number, and the maximum since the last reset.
#[derive(Debug, Default)]
pub struct GraphBytes {
    current: AtomicU64,
    /// Of what is used, and of what is reserved, which is the same but for the marks.
    high: [AtomicU64; 2],
}

impl GraphBytes {
    /// The attribute by its number in the C headers: used now, used at most, reserved now, reserved at most.
    pub fn attribute(&self, number: u32) -> Answer<u64> {
        match number {
            0 | 2 => Ok(self.current.load(Ordering::Relaxed)),
            1 | 3 => Ok(self.high[number as usize / 2].load(Ordering::Relaxed)),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Starts a mark anew, which takes only 0.
    pub fn reset(&self, number: u32, value: u64) -> Answer {
        if !matches!(number, 1 | 3) || value != 0 {
            return Err(Status::InvalidValue);
        }
        self.high[number as usize / 2].store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    fn add(&self, bytes: u64) {
        let current = self.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.high.iter().for_each(|high| {
            high.fetch_max(current, Ordering::Relaxed);
        });
    }
}

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
        context.device.graph_bytes.add(bytes as u64);
        Ok(Arc::new(Self { address, bytes: bytes as u64, mark, device: context.device }))
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.device.graph_bytes.current.fetch_sub(self.bytes, Ordering::Relaxed);
        // The context may have ended before, and taken the memory along.
        if self.device.allocations.get(self.address).is_some_and(|known| known.graph == Some(self.mark)) {
            self.device.free(self.address).expect("the allocation was just found, and is freed here alone");
        }
    }
}
