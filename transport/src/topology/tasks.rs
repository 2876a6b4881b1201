//! The queues in which tasks wait for the workers of a pool: one for each priority, one for sessions and one for host programs if workers take them, and in a pool
//! with affinity one more for each slot and priority. Operators submit to a pool through an exchange of their own.

use gpufleet_schema::{AffinitySlot, PoolName, Priority, topology as names};

use super::{Step, bind, bound, quorum_that_buries};

pub(super) fn of_pool(pool: &PoolName) -> Vec<Step> {
    let queue = |priority| (names::task_queue(pool, priority), names::task_key(pool, priority));
    let mut steps = steps(Priority::ALL.map(queue));
    steps.extend(Priority::ALL.map(queue).map(|(queue, key)| bind(queue, names::TASKS_OPERATOR, key)));
    steps
}

pub(super) fn of_slots(pool: &PoolName) -> Vec<Step> {
    let queues = AffinitySlot::all().flat_map(|slot| {
        Priority::ALL.map(|priority| (names::slot_queue(pool, slot, priority), names::slot_key(pool, slot, priority)))
    });
    steps(queues)
}

pub(super) fn of_sessions(pool: &PoolName) -> Vec<Step> {
    steps([(names::session_queue(pool), names::session_key(pool))])
}

pub(super) fn of_programs(pool: &PoolName) -> Vec<Step> {
    steps([(names::program_queue(pool), names::program_key(pool))])
}

/// The queues with these names, each bound by its key.
fn steps(queues: impl IntoIterator<Item = (String, String)>) -> Vec<Step> {
    queues.into_iter().flat_map(|(queue, key)| bound(queue, quorum_that_buries([]), names::TASKS, key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_affinity_has_a_queue_for_each_slot_and_priority() {
        let pool = PoolName::default();
        // Each queue is declared and bound, that of a pool to two exchanges.
        assert_eq!(of_pool(&pool).len(), 3 * 3);
        assert_eq!(of_slots(&pool).len(), 2 * 8 * 3);
    }
}
