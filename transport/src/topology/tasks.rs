//! The queues in which tasks wait for the workers of a pool: one for each priority, and in a pool with affinity one more for each slot and
//! priority. Operators submit to a pool through an exchange of their own.

use gpufleet_schema::{PoolName, Priority, Slot, topology as names};
use lapin::types::FieldTable;

use super::{QueueKind, Step, bind, bound, dead_letters, quorum_that_buries, table};

pub(super) fn of_pool(pool: &PoolName, kind: QueueKind) -> Vec<Step> {
    let queue = |priority| (names::task_queue(pool, priority), names::task_key(pool, priority));
    let mut steps = steps(Priority::ALL.map(queue), kind);
    steps.extend(Priority::ALL.map(queue).map(|(queue, key)| bind(queue, names::TASKS_OPERATOR, key)));
    steps
}

pub(super) fn of_slots(pool: &PoolName, kind: QueueKind) -> Vec<Step> {
    let queues = Slot::all().flat_map(|slot| {
        Priority::ALL.map(|priority| (names::slot_queue(pool, slot, priority), names::slot_key(pool, slot, priority)))
    });
    steps(queues, kind)
}

/// The queues with these names, each bound by its key.
fn steps(queues: impl IntoIterator<Item = (String, String)>, kind: QueueKind) -> Vec<Step> {
    queues.into_iter().flat_map(|(queue, key)| bound(queue, arguments(kind), names::TASKS, key)).collect()
}

fn arguments(kind: QueueKind) -> FieldTable {
    match kind {
        QueueKind::Quorum => quorum_that_buries([]),
        QueueKind::Classic => table(dead_letters()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_task_queues_have_no_arguments_of_quorum_queues() {
        let arguments = arguments(QueueKind::Classic);
        for name in ["x-queue-type", "x-overflow", "x-dead-letter-strategy", "x-delivery-limit"] {
            assert!(!arguments.inner().contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_pool_with_affinity_has_a_queue_for_each_slot_and_priority() {
        let pool = PoolName::default();
        // Each queue is declared and bound, that of a pool to two exchanges.
        assert_eq!(of_pool(&pool, QueueKind::Quorum).len(), 3 * 3);
        assert_eq!(of_slots(&pool, QueueKind::Quorum).len(), 2 * 8 * 3);
    }
}
