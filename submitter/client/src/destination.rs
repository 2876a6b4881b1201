//! Where a job goes.

use gpufleet_schema::{AffinitySlot, PoolName, Priority, topology};

/// A queue of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Destination {
    Tasks {
        pool: PoolName,
        priority: Priority,
        /// The affinity slot, if the client uses them and the job has a large input.
        slot: Option<AffinitySlot>,
    },
    /// The queue of sessions, which have no priorities.
    Sessions { pool: PoolName },
    /// The queue of host programs, which have no priorities.
    Programs { pool: PoolName },
}

impl Destination {
    pub(crate) fn routing_key(&self) -> String {
        match self {
            Self::Tasks { pool, priority, slot: Some(slot) } => topology::slot_key(pool, *slot, *priority),
            Self::Tasks { pool, priority, slot: None } => topology::task_key(pool, *priority),
            Self::Sessions { pool } => topology::session_key(pool),
            Self::Programs { pool } => topology::program_key(pool),
        }
    }
}
