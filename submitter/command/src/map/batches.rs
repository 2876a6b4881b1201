//! How the rows of a table are cut into batches.

use std::ops::Range;

use gpufleet::schema::bounds::BLOB_BYTES_MIN;

/// Large enough that a job's own cost is small, and a usual size of row groups.
const ROWS_MAX: u64 = 1 << 17;
/// The most bytes of an array. Larger ones go through the blob store.
const ARRAY_BYTES_MAX: u64 = BLOB_BYTES_MIN / 2;
/// The most bytes of a batch in memory. Some batches are in memory at once: those in flight.
const BYTES_MAX: u64 = 16 << 20;

/// The batches of a table, by index. All but the last have the same number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    rows: u64,
    rows_each: u64,
}

impl Batches {
    pub fn of(rows: u64, rows_each: u64) -> Self {
        Self { rows, rows_each: rows_each.max(1) }
    }

    pub fn count(&self) -> usize {
        // A file has less than 2^63 rows, and each batch takes memory for an index.
        self.rows.div_ceil(self.rows_each) as usize
    }

    pub fn rows_each(&self) -> u64 {
        self.rows_each
    }

    /// The rows of a batch.
    pub fn rows(&self, index: usize) -> Range<u64> {
        let start = index as u64 * self.rows_each;
        start.min(self.rows)..(start + self.rows_each).min(self.rows)
    }
}

/// The rows of a batch of a table with so many rows and bytes. The elements of the kernel's arrays have at most so many
/// bytes.
pub fn rows_each(rows: u64, bytes: u64, element_bytes: usize) -> u64 {
    let row_bytes = bytes.div_ceil(rows.max(1)).max(1);
    (BYTES_MAX / row_bytes).clamp(1, ROWS_MAX.min(ARRAY_BYTES_MAX / element_bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_all_rows_once() {
        for (rows, rows_each, count) in [(0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2), (12, 5, 3)] {
            let batches = Batches::of(rows, rows_each);
            assert_eq!(batches.count(), count);
            let all: Vec<u64> = (0..count).flat_map(|index| batches.rows(index)).collect();
            assert_eq!(all, (0..rows).collect::<Vec<_>>());
            assert!(batches.rows(count).is_empty());
        }
    }

    #[test]
    fn batches_of_wide_tables_have_fewer_rows() {
        assert_eq!(rows_each(10_000_000, 160_000_000, 4), ROWS_MAX);
        assert_eq!(rows_each(1_000, 1_000 * 1_024, 4), 16 << 10);
        assert_eq!(rows_each(1, 1 << 30, 4), 1);
        assert_eq!(rows_each(0, 0, 1), ROWS_MAX);
        assert_eq!(rows_each(10_000_000, 160_000_000, 8), ROWS_MAX / 2);
    }
}
