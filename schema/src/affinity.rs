//! Affinity slots: jobs with the same largest input share a queue, so that most of them reach the same worker, which
//! then has the input on its device.

use std::{fmt, str::FromStr};

use crate::{BlobDigest, Task};

/// The number of affinity slots of a pool. It is part of the contract, so that no producer and no worker can differ on it.
pub const SLOTS: u8 = 8;

/// One of a pool's [`SLOTS`] affinity slots, each of which has a queue for each priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AffinitySlot(u8);

/// A text that is not a slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a slot is a digit from 0 to {}", SLOTS - 1)]
pub struct InvalidAffinitySlot;

impl AffinitySlot {
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        (0..SLOTS).map(Self)
    }

    /// The slot of a task: that of its largest input from the blob store. A task without such inputs has none, because
    /// no worker has an advantage with it.
    pub fn of(task: &Task<'_>) -> Option<Self> {
        task.largest_blob().map(Self::of_input)
    }

    /// The last byte of the digest modulo [`SLOTS`]. Digests are uniform, so they need no further hash.
    fn of_input(digest: BlobDigest) -> Self {
        let [.., last] = digest.bytes();
        Self(last % SLOTS)
    }
}

impl fmt::Display for AffinitySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for AffinitySlot {
    type Err = InvalidAffinitySlot;

    fn from_str(text: &str) -> Result<Self, InvalidAffinitySlot> {
        Self::all().find(|slot| slot.to_string() == text).ok_or(InvalidAffinitySlot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Data, Dtype, Program};

    fn buffer(length: u64, data: Data<'static>) -> Buffer<'static> {
        Buffer::new("x", Dtype::U8, vec![length], data)
    }

    #[test]
    fn the_largest_blob_of_a_task_decides_its_slot() {
        let mut task = Task::new(Program::Catalog("saxpy".to_owned()));
        task.buffers = vec![buffer(1 << 30, Data::Zeros)];
        assert_eq!(AffinitySlot::of(&task), None);
        let [small, large] = [b"small", b"large"].map(|bytes| BlobDigest::of(bytes));
        task.buffers.extend([buffer(1, Data::Blob(small)), buffer(2, Data::Blob(large))]);
        assert_eq!(AffinitySlot::of(&task), Some(AffinitySlot::of_input(large)));
        assert_ne!(AffinitySlot::of_input(small), AffinitySlot::of_input(large));
        // Producers in other languages compute it too: the last digit modulo 8.
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".parse().unwrap();
        assert_eq!(AffinitySlot::of_input(digest).to_string(), "5");
    }

    #[test]
    fn inputs_are_spread_over_all_slots() {
        let mut counts = [0; SLOTS as usize];
        for number in 0..8_000_u32 {
            counts[usize::from(AffinitySlot::of_input(BlobDigest::of(&number.to_le_bytes())).0)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_slot_has_one_spelling() {
        for slot in AffinitySlot::all() {
            assert_eq!(slot.to_string().parse(), Ok(slot));
        }
        for text in ["", "8", "00", "+1", "high"] {
            assert_eq!(text.parse::<AffinitySlot>(), Err(InvalidAffinitySlot), "{text}");
        }
    }
}
