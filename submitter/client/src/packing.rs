//! Packs several small tasks into one message.
//!
//! A message with a hundred tiny tasks costs the broker little more than a message with one. So tasks for the same
//! queue share messages, within bounds on bytes, number of tasks and expected run time. The body of several tasks is a
//! MessagePack list: a header, then each task encoded as it would be alone. So each task is encoded once, before its
//! message is chosen.

use gpufleet_schema::{
    Encoding,
    bounds::{MESSAGE_BYTES_MAX, TASKS_PER_MESSAGE_MAX},
};
use gpufleet_transport::Group;

/// Maximum size of the tasks that share a message, in bytes. From 64 KiB on, the broker's cost per byte exceeds its
/// cost per message, and spreading the tasks over several workers gains more than saving messages.
pub(crate) const PACKED_BYTES_MAX: usize = 64 << 10;
/// Maximum number of tasks in one message. They run on one worker and are acknowledged together, so a message should
/// not hold a large part of the jobs that are submitted together.
pub(crate) const PACKED_TASKS_MAX: usize = 64;
/// Maximum expected run time of one message's tasks together, in microseconds. With longer messages, other workers
/// would be idle.
pub(crate) const PACKED_RUN_US_MAX: u64 = 4_000;
/// Length of MessagePack's `array 16` header, for fewer than 2^16 items.
const LIST_HEADER_BYTES: usize = 3;

const _: () = assert!(PACKED_TASKS_MAX <= TASKS_PER_MESSAGE_MAX && PACKED_TASKS_MAX <= u16::MAX as usize);
const _: () = assert!(PACKED_BYTES_MAX + LIST_HEADER_BYTES <= MESSAGE_BYTES_MAX);

/// A task to add to a packet: its body, its expected run time in microseconds, and a value of the caller's.
pub(crate) type Packed<T> = (Vec<u8>, u64, T);

/// Encoded tasks for one message, each with a value of the caller's.
#[derive(Debug)]
pub(crate) struct Packet<T> {
    bodies: Vec<Vec<u8>>,
    members: Vec<T>,
    bytes: usize,
    run_us: u64,
}

impl<T> Default for Packet<T> {
    fn default() -> Self {
        Self { bodies: Vec::new(), members: Vec::new(), bytes: 0, run_us: 0 }
    }
}

impl<T> Group for Packet<T> {
    type Item = Packed<T>;
    /// A full packet does not wait: the caller bounds what is in flight.
    const UNCONFIRMED_MAX: usize = usize::MAX;

    fn add(&mut self, (body, run_us, member): Packed<T>) -> Option<Self> {
        let fits = self.is_empty()
            || (self.bodies.len() < PACKED_TASKS_MAX
                && self.bytes + body.len() <= PACKED_BYTES_MAX
                && self.run_us.saturating_add(run_us) <= PACKED_RUN_US_MAX);
        let full = (!fits).then(|| std::mem::take(self));
        self.bytes += body.len();
        self.run_us = self.run_us.saturating_add(run_us);
        self.bodies.push(body);
        self.members.push(member);
        full
    }

    fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }
}

impl<T> Packet<T> {
    /// The body of the message, and the callers' values in the order of the tasks. A single task is not wrapped in a
    /// list.
    pub(crate) fn into_message(mut self) -> (Vec<u8>, Vec<T>) {
        if self.bodies.len() == 1 {
            return (self.bodies.remove(0), self.members);
        }
        (Encoding::MessagePack.join(&self.bodies), self.members)
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{OneOrMany, Program, Task};
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    fn pack(bodies: &[Vec<u8>], run_us: &[u64]) -> Vec<(Vec<u8>, Vec<usize>)> {
        let mut packet = Packet::default();
        let mut sent = Vec::new();
        for (index, (body, run_us)) in bodies.iter().zip(run_us).enumerate() {
            sent.extend(packet.add((body.clone(), *run_us, index)));
        }
        sent.extend((!packet.is_empty()).then_some(packet));
        sent.into_iter().map(Packet::into_message).collect()
    }

    fn task(name_bytes: usize) -> Task<'static> {
        Task { name: Some("n".repeat(name_bytes)), ..Task::new(Program::Catalog("saxpy".to_owned())) }
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(
            (any::<bool>(), 0_usize..50_000).prop_map(|(big, n)| if big { n } else { n % 100 }),
            0..200,
        )
    }

    proptest! {
        #[test]
        fn every_task_arrives_once_in_order_within_the_bounds(
            (lengths, run_us) in lengths().prop_flat_map(|lengths| {
                let count = lengths.len();
                (Just(lengths), prop::collection::vec(prop_oneof![Just(0), 0..2 * PACKED_RUN_US_MAX], count))
            })
        ) {
            let tasks: Vec<Task<'_>> = lengths.into_iter().map(task).collect();
            let encode =
                |task: &Task<'static>| Encoding::MessagePack.encode_tasks(&OneOrMany::One(task.clone())).unwrap();
            let bodies: Vec<Vec<u8>> = tasks.iter().map(encode).collect();
            let messages = pack(&bodies, &run_us);
            let members: Vec<usize> = messages.iter().flat_map(|(_, members)| members.clone()).collect();
            prop_assert_eq!(members, (0..tasks.len()).collect::<Vec<_>>());
            let mut decoded = Vec::new();
            for (body, members) in &messages {
                prop_assert!(members.len() <= PACKED_TASKS_MAX);
                prop_assert!(members.len() == 1 || body.len() <= PACKED_BYTES_MAX + LIST_HEADER_BYTES);
                let sum: u64 = members.iter().map(|index| run_us[*index]).sum();
                prop_assert!(members.len() == 1 || sum <= PACKED_RUN_US_MAX);
                let items = Encoding::MessagePack.decode_tasks(body).unwrap();
                prop_assert_eq!(matches!(items, OneOrMany::One(_)), members.len() == 1);
                decoded.extend(items.into_vec().into_iter().map(Task::into_owned));
            }
            prop_assert_eq!(decoded, tasks);
        }
    }
}
