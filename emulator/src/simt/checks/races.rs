//! Race detection in shared memory: for each byte, the last write and the reads since, and whether the next access is
//! ordered after them.
//!
//! A word is tracked as a whole until an access touches only a part of it. From then on its bytes are tracked
//! separately.

use super::clocks::Clocks;
use crate::ops::lanes::LANES;
use crate::program::memory::Kinds;

const WORD: u64 = 4;

/// An earlier access: thread, place in the code, and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub thread: u16,
    pub function: u16,
    pub pc: u32,
    /// Number of the access in its block.
    pub visit: u32,
    time: u32,
    strong: bool,
}

/// An access by one thread.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub thread: u32,
    pub function: usize,
    pub pc: u32,
    pub visit: u32,
    pub offset: u64,
    pub bytes: u64,
    pub kinds: Kinds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HazardKind {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

/// A race: two accesses that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hazard {
    pub kind: HazardKind,
    pub earlier: Stamp,
    /// The first byte that both access.
    pub offset: u64,
}

/// State of a word or a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Number of the block; state of another block is void.
    block: u32,
    is_split: bool,
    writer: Option<Stamp>,
    /// Reads since the last write. Two unordered reads suffice to detect a race with a third access.
    readers: [Option<Stamp>; 2],
}

#[derive(Debug)]
pub struct Races {
    words: Vec<Cell>,
    /// Allocated at the first access narrower than a word.
    bytes: Vec<Cell>,
    block: u32,
}

impl Races {
    pub fn new(shared_bytes: u64) -> Races {
        Races { words: vec![Cell::default(); shared_bytes.div_ceil(WORD) as usize], bytes: Vec::new(), block: 0 }
    }

    pub fn start_block(&mut self) {
        self.block += 1;
    }

    /// Records an access, or returns the race that it is part of. `same` reports whether a write stores the value that
    /// an earlier write has stored at a location.
    pub fn touch(
        &mut self,
        touch: &Touch,
        clocks: &Clocks,
        same: impl Fn(&Stamp, u64, u64) -> bool,
    ) -> Result<(), Hazard> {
        let end = touch.offset + touch.bytes;
        let mut at = touch.offset;
        while at < end {
            let whole = at.is_multiple_of(WORD) && end - at >= WORD;
            let word = self.word(at / WORD, !whole);
            let is_split = word.is_split;
            let next = (at / WORD + 1) * WORD;
            if !is_split {
                word.touch(touch, clocks, |earlier| same(earlier, at, WORD)).map_err(|hazard| hazard.at(at))?;
            } else {
                for byte in at..next.min(end) {
                    let cell = &mut self.bytes[byte as usize];
                    cell.touch(touch, clocks, |earlier| same(earlier, byte, 1)).map_err(|hazard| hazard.at(byte))?;
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Returns the state of a word in this block; with `split`, prepares the state of its bytes.
    fn word(&mut self, index: u64, split: bool) -> &mut Cell {
        let word = &mut self.words[index as usize];
        if word.block != self.block {
            *word = Cell { block: self.block, ..Cell::default() };
        }
        if split && !word.is_split {
            self.bytes.resize(self.bytes.len().max(self.words.len() * WORD as usize), Cell::default());
            let word = &mut self.words[index as usize];
            self.bytes[(index * WORD) as usize..][..WORD as usize].fill(*word);
            word.is_split = true;
        }
        &mut self.words[index as usize]
    }
}

impl Hazard {
    fn at(self, offset: u64) -> Hazard {
        Hazard { offset, ..self }
    }
}

impl Cell {
    fn touch(&mut self, touch: &Touch, clocks: &Clocks, same: impl Fn(&Stamp) -> bool) -> Result<(), Hazard> {
        let races = |earlier: &Stamp| {
            let both_strong = earlier.strong && touch.kinds.strong;
            !both_strong && !clocks.ordered(earlier.thread.into(), earlier.time, touch.thread)
        };
        let hazard = |kind, earlier: Stamp| Err(Hazard { kind, earlier, offset: 0 });
        if let Some(writer) = self.writer.filter(|writer| races(writer)) {
            if touch.kinds.reads {
                return hazard(HazardKind::ReadAfterWrite, writer);
            }
            if !same(&writer) {
                return hazard(HazardKind::WriteAfterWrite, writer);
            }
        }
        if touch.kinds.writes
            && let Some(reader) = self.readers.iter().flatten().find(|reader| races(reader))
        {
            return hazard(HazardKind::WriteAfterRead, *reader);
        }
        let stamp = Stamp {
            thread: touch.thread as u16,
            function: touch.function as u16,
            pc: touch.pc,
            visit: touch.visit,
            time: clocks.now(touch.thread / LANES as u32),
            strong: touch.kinds.strong,
        };
        if touch.kinds.writes {
            self.writer = Some(stamp);
            self.readers = [None; 2];
        } else {
            self.read(stamp, clocks);
        }
        Ok(())
    }

    /// Records a read; it replaces a read that comes before it.
    fn read(&mut self, stamp: Stamp, clocks: &Clocks) {
        let replaces = |known: &Option<Stamp>| {
            known.is_none_or(|known| clocks.ordered(known.thread.into(), known.time, stamp.thread.into()))
        };
        if let Some(place) = self.readers.iter_mut().find(|known| replaces(known)) {
            *place = Some(stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clocks, Hazard, HazardKind, Kinds, Races, Touch};

    const READ: Touch = Touch {
        thread: 0,
        function: 0,
        pc: 0,
        visit: 0,
        offset: 0,
        bytes: 4,
        kinds: Kinds { reads: true, writes: false, strong: false },
    };
    const WRITE: Touch = Touch { kinds: Kinds { reads: false, writes: true, strong: false }, ..READ };

    fn run(touches: &[Touch]) -> Result<(), HazardKind> {
        let (mut races, clocks) = (Races::new(64), Clocks::new(64));
        races.start_block();
        let mut touch = |touch: &Touch| races.touch(touch, &clocks, |_, _, _| false);
        touches.iter().try_for_each(|next| touch(next).map_err(|Hazard { kind, .. }| kind))
    }

    #[test]
    fn accesses_of_different_threads_race_if_one_writes() {
        let other = |touch| Touch { thread: 40, ..touch };
        assert_eq!(run(&[READ, other(READ)]), Ok(()));
        assert_eq!(run(&[WRITE, READ, WRITE]), Ok(()));
        assert_eq!(run(&[WRITE, other(READ)]), Err(HazardKind::ReadAfterWrite));
        assert_eq!(run(&[READ, other(WRITE)]), Err(HazardKind::WriteAfterRead));
        assert_eq!(run(&[WRITE, other(WRITE)]), Err(HazardKind::WriteAfterWrite));
        assert_eq!(run(&[READ, other(READ), WRITE]), Err(HazardKind::WriteAfterRead));
    }

    #[test]
    fn strong_accesses_race_with_weak_ones_alone() {
        let strong = Touch { kinds: Kinds { reads: true, writes: true, strong: true }, ..READ };
        assert_eq!(run(&[strong, Touch { thread: 1, ..strong }]), Ok(()));
        assert_eq!(run(&[strong, Touch { thread: 1, ..READ }]), Err(HazardKind::ReadAfterWrite));
        assert_eq!(run(&[WRITE, Touch { thread: 1, ..strong }]), Err(HazardKind::ReadAfterWrite));
    }

    #[test]
    fn bytes_of_a_word_are_told_apart() {
        let byte = |thread, offset| Touch { thread, offset, bytes: 1, ..WRITE };
        assert_eq!(run(&[byte(0, 0), byte(1, 1), byte(2, 2), byte(3, 3)]), Ok(()));
        assert_eq!(run(&[byte(0, 0), byte(1, 1), byte(2, 1)]), Err(HazardKind::WriteAfterWrite));
        assert_eq!(run(&[byte(0, 0), byte(1, 1), Touch { thread: 0, ..READ }]), Err(HazardKind::ReadAfterWrite));
        assert_eq!(run(&[WRITE, byte(1, 3)]), Err(HazardKind::WriteAfterWrite));
        assert_eq!(run(&[Touch { bytes: 16, ..WRITE }, byte(1, 17)]), Ok(()));
    }
}
