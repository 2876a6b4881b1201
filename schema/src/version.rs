//! The version of the contract.

/// The major version of the contract. A body that names another one is refused with a reason; additions within a
/// major version are new optional fields, which older readers ignore.
pub const VERSION: u32 = 1;
