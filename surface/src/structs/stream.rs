//! Operations on words of memory.

use crate::kinds::Address;

/// `CUstreamBatchMemOpParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WordOperation {
    pub kind: u32,
    /// Flags of the kinds without an address.
    pub own_flags: u32,
    pub address: Address,
    pub value: u64,
    pub flags: u32,
    pub alias: Address,
    pub rest: u64,
}
