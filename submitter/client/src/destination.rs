//! Where a job goes.

use gpufleet_schema::{AffinitySlot, PoolName, Priority, topology};

/// A queue of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub(crate) pool: PoolName,
    pub(crate) priority: Priority,
    /// The affinity slot, if the client uses them and the job has a large input.
    pub(crate) slot: Option<AffinitySlot>,
}

impl Destination {
    pub(crate) fn routing_key(&self) -> String {
        match self.slot {
            Some(slot) => topology::slot_key(&self.pool, slot, self.priority),
            None => topology::task_key(&self.pool, self.priority),
        }
    }
}
