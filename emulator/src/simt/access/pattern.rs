//! Patterns of addresses: rows of evenly spaced addresses, as they are in an address register.

use crate::program::memory::Index;

/// A row of addresses, before offsets are added and checks are made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub first: u64,
    pub step: u64,
}

/// The rows of both halves of a warp whose lanes are all on.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub first: [u64; 2],
    pub step: u64,
}

/// The row of the lanes of half a warp that are on: `lanes` adjacent lanes from `start` on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Half {
    pub start: usize,
    pub lanes: usize,
    pub row: Row,
}

/// The pattern in an address register, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern {
    /// The rows of all lanes, if all are on and both halves have one step.
    pub pair: Option<Rows>,
    /// The lanes for which `halves` is valid; 0 if there is no pattern.
    pub mask: u32,
    pub halves: [Half; 2],
}

impl Row {
    /// Returns the row of addresses for a row of indices, if the addresses are evenly spaced too.
    #[inline(always)]
    pub fn indexed(self, lanes: usize, index: &Index, start: u64) -> Option<Row> {
        let (first, step) = (self.first as u32, self.step as u32);
        // Indices wrap around at 32 bits, or at their sign; addresses do not wrap with them.
        let behind = (lanes as u64).saturating_sub(1);
        let fits = if index.signed {
            step <= i32::MAX as u32 && i64::from(first as i32) + (behind * u64::from(step)) as i64 <= i32::MAX.into()
        } else {
            u64::from(first) + behind * u64::from(step) <= u32::MAX.into()
        };
        let step = u64::from(step) * u64::from(index.factor);
        let first = start.wrapping_add_signed(index.distance(first));
        (fits && step <= u32::MAX.into()).then_some(Row { first, step })
    }
}
