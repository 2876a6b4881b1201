//! What a list of a store shows, and what a removal did.

use std::time::SystemTime;

use gpufleet_schema::BlobDigest;

/// A blob in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobEntry {
    pub digest: BlobDigest,
    pub bytes: u64,
    /// When it was last stored, by the clock of the store.
    pub stored_at: SystemTime,
}

/// The number and size of the blobs that were removed and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: u64,
    pub removed_bytes: u64,
    pub left: u64,
    pub left_bytes: u64,
}
