//! Reads an output from the device.

use std::{io, ops::Range, sync::Arc};

use gpufleet_blobs::BlobSource;

use super::{Exchange, Lane};
use crate::{
    executor::flight::Shared,
    ipc::{ToExecutor, slab::StagingMemory},
};

/// A reader of an output on the device.
pub(in crate::executor) struct OutputReader {
    exchange: Exchange,
    cursor: PieceCursor,
    /// The piece that is being read.
    piece: Option<StagingMemory>,
}

/// Which pieces of an output have been requested and read. While one is read, the child copies the next ones.
#[derive(Debug)]
struct PieceCursor {
    bytes: u64,
    piece_bytes: u64,
    /// The range of the piece that is being read.
    read: Range<u64>,
    /// The start of the first piece that was not requested. The child is copying the pieces between `read` and this
    /// offset.
    next: u64,
}

impl OutputReader {
    /// Creates a reader of an output of this length, in bytes.
    pub(in crate::executor) fn new(shared: &Arc<Shared>, job: u64, buffer: u32, bytes: u64, lane: Lane) -> Self {
        let piece_bytes = lane.front().map_or(0, |part| part.len() as u64);
        Self {
            exchange: Exchange::new(shared, job, buffer, lane),
            cursor: PieceCursor::new(bytes, piece_bytes),
            piece: None,
        }
    }

    /// Returns the memory for the next array, if the whole output was read.
    pub(in crate::executor) fn into_lane(mut self) -> Lane {
        let mut lane = std::mem::take(&mut self.exchange.free);
        lane.extend(self.piece.take());
        lane
    }

    /// Makes the piece at this offset the one that is read.
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if self.cursor.read.contains(&offset) {
            return Ok(());
        }
        self.exchange.free.extend(self.piece.take());
        if offset != self.cursor.read.end {
            self.exchange.settle()?;
            self.cursor.restart(offset);
        }
        while !self.exchange.free.is_empty()
            && let Some(piece) = self.cursor.ask()
        {
            self.exchange.send(ToExecutor::Take, piece.start, piece.end - piece.start);
        }
        self.piece = self.exchange.receive()?;
        self.cursor.advance();
        Ok(())
    }
}

impl BlobSource for OutputReader {
    fn length(&self) -> u64 {
        self.cursor.bytes
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn read_at(&mut self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            self.go_to(offset)?;
            let part = self.piece.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
            let Range { start, end } = self.cursor.read;
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(into.len());
            let (now, rest) = into.split_at_mut(length);
            let from = (offset - start) as usize;
            now.copy_from_slice(part.bytes(from..from + length));
            (into, offset) = (rest, offset + length as u64);
        }
        Ok(())
    }
}

impl PieceCursor {
    const fn new(bytes: u64, piece_bytes: u64) -> Self {
        Self { bytes, piece_bytes, read: 0..0, next: 0 }
    }

    /// Returns the next piece to request from the child.
    fn ask(&mut self) -> Option<Range<u64>> {
        let piece = self.next..self.end_of(self.next);
        self.next = piece.end;
        (!piece.is_empty()).then_some(piece)
    }

    /// Records that the next piece has arrived and is now read.
    fn advance(&mut self) {
        self.read = self.read.end..self.end_of(self.read.end);
    }

    /// Continues at another offset. The child must not be copying a piece.
    const fn restart(&mut self, offset: u64) {
        (self.read, self.next) = (offset..offset, offset);
    }

    fn end_of(&self, start: u64) -> u64 {
        start.saturating_add(self.piece_bytes).min(self.bytes).max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_the_last_is_shorter() {
        let mut cursor = PieceCursor::new(10, 4);
        let asked: Vec<_> = std::iter::from_fn(|| cursor.ask()).collect();
        assert_eq!(asked, [0..4, 4..8, 8..10]);
        for piece in asked {
            cursor.advance();
            assert_eq!(cursor.read, piece);
        }
    }

    #[test]
    fn the_child_copies_the_next_piece_while_one_is_read() {
        let mut cursor = PieceCursor::new(10, 4);
        assert_eq!((cursor.ask(), cursor.ask()), (Some(0..4), Some(4..8)));
        cursor.advance();
        assert_eq!((cursor.read.clone(), cursor.ask()), (0..4, Some(8..10)));
        cursor.advance();
        assert_eq!((cursor.read.clone(), cursor.ask()), (4..8, None));
    }

    #[test]
    fn a_second_reading_starts_anywhere() {
        let mut cursor = PieceCursor::new(10, 4);
        cursor.restart(3);
        assert_eq!((cursor.ask(), cursor.ask(), cursor.ask()), (Some(3..7), Some(7..10), None));
        cursor.advance();
        assert_eq!(cursor.read, 3..7);
        cursor.restart(0);
        assert_eq!(cursor.ask(), Some(0..4));
    }
}
