//! Divides a slot, so that several operations write to it at once.

use std::{ops::Range, sync::Arc};

use super::StagingMemory;

/// A range of a slot that no other part has.
#[derive(Debug)]
pub struct StagingPart {
    slot: Arc<StagingMemory>,
    range: Range<usize>,
}

/// A slot that is divided into parts.
#[derive(Debug)]
pub struct DividedSlot(Arc<StagingMemory>);

impl StagingMemory {
    /// Divides the slot into these ranges.
    ///
    /// # Panics
    /// If a range goes beyond the slot, or does not begin at or after the end of the range before it.
    pub fn divide(self, ranges: &[Range<usize>]) -> (DividedSlot, Vec<StagingPart>) {
        let mut end = 0;
        for range in ranges {
            let is_next = end <= range.start && range.start <= range.end && range.end <= self.len();
            assert!(is_next, "{range:?} does not follow {end} in a slot of {} bytes", self.len());
            end = range.end;
        }
        let slot = Arc::new(self);
        let part = |range: &Range<usize>| StagingPart { slot: Arc::clone(&slot), range: range.clone() };
        let parts = ranges.iter().map(part).collect();
        (DividedSlot(slot), parts)
    }
}

impl DividedSlot {
    /// The whole slot, once all its parts have been dropped.
    pub fn join(self) -> Option<StagingMemory> {
        Arc::into_inner(self.0)
    }
}

impl AsMut<[u8]> for StagingPart {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `StagingMemory::bytes`. Parts do not overlap, this one is borrowed exclusively, and a divided slot gives no other
        // access to its bytes.
        unsafe { std::slice::from_raw_parts_mut(self.slot.start().add(self.range.start), self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Slab, tests::Count},
        *,
    };

    async fn slot() -> StagingMemory {
        Slab::new(Box::new(Count::default())).take(100).await.unwrap()
    }

    #[tokio::test]
    async fn parts_are_written_separately_and_the_whole_comes_back_after_the_last() {
        let (divided, mut parts) = slot().await.divide(&[0..10, 10..10, 20..30]);
        for (part, value) in parts.iter_mut().zip(1..) {
            part.as_mut().fill(value);
        }
        drop(parts);
        let slot = divided.join().unwrap();
        assert_eq!((slot.bytes(0..10), slot.bytes(20..30)), (&[1; 10][..], &[3; 10][..]));
    }

    #[tokio::test]
    async fn a_slot_with_a_part_in_use_does_not_come_back() {
        let (divided, parts) = slot().await.divide(&[0..10, 10..20]);
        assert!(divided.join().is_none());
        drop(parts);
    }

    #[tokio::test]
    #[should_panic(expected = "5..15 does not follow 10")]
    async fn parts_never_overlap() {
        slot().await.divide(&[0..10, 5..15]);
    }
}
