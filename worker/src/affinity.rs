//! Computes the consumer priorities that decide which worker gets the jobs of an affinity slot.
//!
//! Every worker of a pool consumes the queues of all slots. Its priority on each queue is a hash of the worker and the slot. RabbitMQ gives
//! a job to the connected consumer with the highest priority that has prefetch left, which amounts to a rendezvous hash over the connected
//! workers. No worker needs to know the others, and when a worker comes or goes, only its own slots move.

use gpufleet_schema::{AffinitySlot, PoolName, WorkerName};

/// Returns the priority with which a worker consumes the queues of a slot; at least 1. A worker has the highest priority for a share of the
/// slots in proportion to its number of devices. Two workers with the same priority share the slot.
pub fn priority(worker: &WorkerName, devices: usize, pool: &PoolName, slot: AffinitySlot) -> u16 {
    let hash = blake3::hash(format!("{pool}.{slot}.{worker}").as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    let uniform = f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX);
    // The largest of n uniform numbers is distributed like the n-th root of one.
    let largest = uniform.powf(1.0 / devices.max(1) as f64);
    1 + (largest * f64::from(u16::MAX - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    type Host = (WorkerName, usize);

    fn hosts(devices: impl IntoIterator<Item = usize>) -> Vec<Host> {
        let named = |(index, devices)| (format!("host-{index}").parse().unwrap(), devices);
        devices.into_iter().enumerate().map(named).collect()
    }

    /// Returns the slots of many pools.
    fn slots() -> impl Iterator<Item = (PoolName, AffinitySlot)> {
        (0..200).flat_map(|pool| AffinitySlot::all().map(move |slot| (format!("pool-{pool}").parse().unwrap(), slot)))
    }

    /// Returns the worker to which RabbitMQ gives the jobs of a slot.
    fn first<'a>(hosts: &'a [Host], pool: &PoolName, slot: AffinitySlot) -> &'a WorkerName {
        &hosts.iter().max_by_key(|(name, devices)| priority(name, *devices, pool, slot)).unwrap().0
    }

    #[test]
    fn only_the_slots_of_a_worker_that_leaves_move() {
        let all = hosts([1, 1, 1, 1]);
        let left = &all[1..];
        for (pool, slot) in slots() {
            let before = first(&all, &pool, slot);
            assert!(before == &all[0].0 || before == first(left, &pool, slot), "{pool} {slot}");
        }
    }

    #[test]
    fn slots_are_shared_in_proportion_to_the_devices() {
        let hosts = hosts([1, 1, 2, 4]);
        for (name, devices) in &hosts {
            let share = slots().filter(|(pool, slot)| first(&hosts, pool, *slot) == name).count() as f64 / 1600.0;
            assert!((share - *devices as f64 / 8.0).abs() < 0.04, "{name}: {share}");
        }
    }

    #[test]
    fn a_priority_depends_on_nothing_but_names_and_devices() {
        let (worker, pool, slot) =
            ("host-1".parse().unwrap(), PoolName::default(), AffinitySlot::all().next().unwrap());
        assert_eq!(priority(&worker, 1, &pool, slot), priority(&worker, 1, &pool, slot));
        assert!(priority(&worker, 0, &pool, slot) >= 1, "a worker without devices divides by nothing");
        assert!(priority(&worker, 256, &pool, slot) > priority(&worker, 1, &pool, slot));
    }
}
