//! Lets jobs that are submitted one by one share messages.
//!
//! While a message to a queue is unconfirmed, later jobs for that queue gather in a packet. The packet is published
//! when the confirm arrives, or earlier if it is full. There is no timer: a job is published at once if nothing is
//! unconfirmed.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use crate::{packing::Packet, submission::Destination};

/// The jobs that gather for one queue.
#[derive(Debug)]
struct Gathering<T> {
    waiting: Packet<T>,
    /// Messages that were published and are not confirmed yet.
    unconfirmed: u32,
}

/// The queues with unconfirmed messages of one connection.
#[derive(Debug)]
pub(crate) struct Gatherings<T>(Mutex<HashMap<Destination, Gathering<T>>>);

impl<T> Gathering<T> {
    fn new() -> Self {
        Self { waiting: Packet::new(), unconfirmed: 0 }
    }

    /// Adds a job. Returns the packet to publish now, if there is one.
    fn add(&mut self, body: Vec<u8>, run_us: u64, member: T) -> Option<Packet<T>> {
        let full = self.waiting.add(body, run_us, member);
        if full.is_some() {
            self.unconfirmed += 1;
            return full;
        }
        if self.unconfirmed == 0 { self.take_packet() } else { None }
    }

    /// Counts a message that the broker has confirmed or refused. Returns the packet to publish next, if there is one.
    fn settled(&mut self) -> Option<Packet<T>> {
        self.unconfirmed -= 1;
        self.take_packet()
    }

    fn take_packet(&mut self) -> Option<Packet<T>> {
        if self.waiting.is_empty() {
            return None;
        }
        self.unconfirmed += 1;
        Some(std::mem::replace(&mut self.waiting, Packet::new()))
    }
}

impl<T> Default for Gatherings<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> Gatherings<T> {
    /// Adds a job. The caller publishes the packet that this returns, and then calls [`Gatherings::settled`].
    pub(crate) fn add(&self, to: &Destination, body: Vec<u8>, run_us: u64, member: T) -> Option<Packet<T>> {
        let mut all = self.lock();
        match all.get_mut(to) {
            Some(gathering) => gathering.add(body, run_us, member),
            None => all.entry(to.clone()).or_insert_with(Gathering::new).add(body, run_us, member),
        }
    }

    /// Counts a packet that the broker has confirmed or refused. The caller publishes the packet that this returns.
    pub(crate) fn settled(&self, to: &Destination) -> Option<Packet<T>> {
        let mut all = self.lock();
        let gathering = all.get_mut(to).expect("a queue with an unconfirmed message stays in the map");
        let next = gathering.settled();
        if gathering.unconfirmed == 0 {
            all.remove(to);
        }
        next
    }

    /// The packets of all queues. The caller publishes them, and then calls [`Gatherings::settled`] for each.
    pub(crate) fn take_all(&self) -> Vec<(Destination, Packet<T>)> {
        let mut all = self.lock();
        all.iter_mut().filter_map(|(to, gathering)| Some((to.clone(), gathering.take_packet()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Destination, Gathering<T>>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Priority;
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;
    use crate::packing::{PACKED_RUN_US_MAX, PACKED_TASKS_MAX};

    fn queue() -> Destination {
        Destination { pool: "default".parse().unwrap(), priority: Priority::Normal, slot: None }
    }

    fn members(packet: Option<Packet<u32>>) -> Option<Vec<u32>> {
        packet.map(|packet| packet.into_message().1)
    }

    #[test]
    fn jobs_gather_while_a_message_is_unconfirmed_and_its_confirm_sends_them() {
        let (jobs, to) = (Gatherings::default(), queue());
        assert_eq!(members(jobs.add(&to, vec![0], 1, 0)), Some(vec![0]), "the first job does not wait");
        assert_eq!(members(jobs.add(&to, vec![0], 1, 1)), None);
        assert_eq!(members(jobs.add(&to, vec![0], 1, 2)), None);
        assert_eq!(members(jobs.settled(&to)), Some(vec![1, 2]));
        assert_eq!(members(jobs.settled(&to)), None);
        assert!(jobs.lock().is_empty(), "an idle queue is removed");
        assert_eq!(members(jobs.add(&to, vec![0], 1, 3)), Some(vec![3]));
    }

    #[test]
    fn a_full_message_does_not_wait_for_a_confirm() {
        let (jobs, to) = (Gatherings::default(), queue());
        jobs.add(&to, vec![0], 1, 0).unwrap();
        for job in 1..=PACKED_TASKS_MAX as u32 {
            assert!(jobs.add(&to, vec![0], 1, job).is_none());
        }
        assert_eq!(members(jobs.add(&to, vec![0], 1, 99)).unwrap().len(), PACKED_TASKS_MAX);
    }

    #[test]
    fn queues_do_not_wait_for_each_other() {
        let jobs = Gatherings::default();
        let high = Destination { priority: Priority::High, ..queue() };
        jobs.add(&queue(), vec![0], 1, 0).unwrap();
        assert_eq!(members(jobs.add(&high, vec![0], 1, 1)), Some(vec![1]));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64),
        Settle,
        TakeAll,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..2 * PACKED_RUN_US_MAX).prop_map(Step::Add),
            3 => any::<bool>().prop_map(|_| Step::Settle),
            1 => any::<bool>().prop_map(|_| Step::TakeAll),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn every_job_is_published_once_and_in_order(steps in steps()) {
            let (jobs, to) = (Gatherings::default(), queue());
            let (mut count, mut unconfirmed, mut published) = (0_u32, 0_u32, Vec::new());
            for step in steps {
                let packet = match step {
                    Step::Add(run_us) => {
                        count += 1;
                        members(jobs.add(&to, vec![0], run_us, count))
                    }
                    Step::Settle if unconfirmed > 0 => {
                        unconfirmed -= 1;
                        members(jobs.settled(&to))
                    }
                    Step::Settle => None,
                    Step::TakeAll => jobs.take_all().pop().map(|(_, packet)| packet.into_message().1),
                };
                unconfirmed += u32::from(packet.is_some());
                published.extend(packet.into_iter().flatten());
                prop_assert!(unconfirmed > 0 || published.len() == count as usize, "jobs wait though nothing is unconfirmed");
            }
            while unconfirmed > 0 {
                unconfirmed -= 1;
                let packet = members(jobs.settled(&to));
                unconfirmed += u32::from(packet.is_some());
                published.extend(packet.into_iter().flatten());
            }
            prop_assert_eq!(published, (1..=count).collect::<Vec<_>>());
            prop_assert!(jobs.lock().is_empty());
        }
    }
}
