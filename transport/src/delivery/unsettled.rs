//! Tracks the unsettled deliveries of a channel, so that one frame can acknowledge several.
//!
//! The consumer of a channel is cancelled and replaced when its prefetch changes. A quorum queue counts a cancelled consumer until its last
//! delivery is settled, so the deliveries of each consumer are tracked too.

use std::collections::BTreeSet;

/// The broker's number of a delivery. A channel counts its deliveries from 1.
pub(crate) type Tag = u64;

#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    tags: BTreeSet<Tag>,
    /// The last tag that was delivered.
    last: Tag,
    /// The last tags of the cancelled consumers that have unsettled deliveries.
    cancelled: Vec<Tag>,
}

/// Acknowledges one delivery or, with `multiple`, all unsettled deliveries up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: Tag,
    pub(crate) multiple: bool,
}

impl Unsettled {
    pub(crate) fn delivered(&mut self, tag: Tag) {
        self.tags.insert(tag);
        self.last = tag;
    }

    /// The consumer is cancelled. Later deliveries come to its successor.
    pub(crate) fn consumer_cancelled(&mut self) {
        self.cancelled.push(self.last);
        self.forget_settled_consumers();
    }

    /// The number of cancelled consumers that have unsettled deliveries.
    pub(crate) fn cancelled_consumers(&mut self) -> usize {
        self.forget_settled_consumers();
        self.cancelled.len()
    }

    fn forget_settled_consumers(&mut self) {
        let (tags, mut first) = (&self.tags, 0);
        self.cancelled.retain(|last| {
            let has_unsettled = tags.range(first..last + 1).next().is_some();
            first = last + 1;
            has_unsettled
        });
    }

    /// The delivery is settled by a frame of its own. Returns whether it was unsettled.
    pub(crate) fn settle(&mut self, tag: Tag) -> bool {
        self.tags.remove(&tag)
    }

    /// The frames that acknowledge these deliveries: one for those that are older than every other unsettled delivery, and one for each of
    /// the rest. Deliveries that are settled already are left out.
    pub(crate) fn ack(&mut self, tags: impl IntoIterator<Item = Tag>) -> Vec<Ack> {
        let mut tags: Vec<Tag> = tags.into_iter().filter(|tag| self.tags.remove(tag)).collect();
        tags.sort_unstable();
        let oldest_other = self.tags.first().copied().unwrap_or(Tag::MAX);
        let (together, apart) = tags.split_at(tags.partition_point(|tag| *tag < oldest_other));
        let together = together.last().map(|tag| Ack { tag: *tag, multiple: together.len() > 1 });
        together.into_iter().chain(apart.iter().map(|tag| Ack { tag: *tag, multiple: false })).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delivered(tags: impl IntoIterator<Item = Tag>) -> Unsettled {
        let mut unsettled = Unsettled::default();
        tags.into_iter().for_each(|tag| unsettled.delivered(tag));
        unsettled
    }

    #[test]
    fn a_cancelled_consumer_counts_until_its_last_delivery_is_settled() {
        let mut unsettled = delivered(1..=2);
        assert_eq!(unsettled.cancelled_consumers(), 0);
        unsettled.consumer_cancelled();
        unsettled.consumer_cancelled();
        assert_eq!(unsettled.cancelled_consumers(), 1, "the second consumer had no deliveries");
        unsettled.delivered(3);
        unsettled.consumer_cancelled();
        unsettled.delivered(4);
        assert_eq!(unsettled.cancelled_consumers(), 2);
        unsettled.settle(2);
        unsettled.settle(4);
        assert_eq!(unsettled.cancelled_consumers(), 2);
        unsettled.settle(1);
        assert_eq!(unsettled.cancelled_consumers(), 1);
        unsettled.settle(3);
        assert_eq!(unsettled.cancelled_consumers(), 0);
    }

    #[test]
    fn the_oldest_deliveries_share_a_frame() {
        let (one, several) = (|tag| Ack { tag, multiple: false }, |tag| Ack { tag, multiple: true });
        for (tags, frames) in [
            (vec![], vec![]),
            (vec![1], vec![one(1)]),
            (vec![2], vec![one(2)]),
            (vec![3, 1, 2], vec![several(3)]),
            (vec![1, 2, 4, 5], vec![several(2), one(4), one(5)]),
            (vec![2, 3], vec![one(2), one(3)]),
            (vec![6, 7], vec![one(6)]),
        ] {
            let mut unsettled = delivered(1..=6);
            assert_eq!(unsettled.ack(tags.clone()), frames, "{tags:?}");
        }
    }

    proptest! {
        /// The broker closes a channel that acknowledges a tag which is not unsettled.
        #[test]
        fn in_any_order_of_acks_each_frame_settles_just_the_chosen_deliveries(rounds: Vec<(u8, Vec<bool>)>) {
            let (mut here, mut broker, mut last) = (Unsettled::default(), BTreeSet::new(), 0);
            for (delivered, choice) in rounds {
                for tag in last + 1..=last + u64::from(delivered % 8) {
                    here.delivered(tag);
                    broker.insert(tag);
                    last = tag;
                }
                let chosen: BTreeSet<Tag> =
                    broker.iter().zip(choice).filter(|(_, chosen)| *chosen).map(|(tag, _)| *tag).collect();
                let left: BTreeSet<Tag> = broker.difference(&chosen).copied().collect();
                for Ack { tag, multiple } in here.ack(chosen) {
                    prop_assert!(broker.contains(&tag));
                    broker.retain(|unsettled| if multiple { *unsettled > tag } else { *unsettled != tag });
                }
                prop_assert_eq!(&broker, &left);
            }
        }
    }
}
