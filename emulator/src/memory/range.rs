//! Ranges of device memory that may be accessed, and who may access them.

/// A range that may be accessed: an allocation, a mapping, or mapped host memory.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub bytes: u64,
    /// Bytes that the arena took for the range, with its guard gap; 0 for host memory and mappings.
    pub room: u64,
    pub owner: Owner,
    /// True if kernels may only read the range.
    pub is_protected: bool,
}

/// The owner of a range, which decides what may free and reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Program,
    /// The device heap: `malloc` in kernels.
    Heap,
    /// CUDA arrays, which kernels reach only through textures and surfaces.
    Image,
    Host,
    /// Physical memory mapped at reserved addresses.
    Mapping(Protection),
}

/// The access that kernels and copies have to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    Read,
    ReadWrite,
}

/// The live range that contains an address or is nearest to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    pub base: u64,
    pub bytes: u64,
    pub owner: Owner,
    pub is_protected: bool,
}

impl Range {
    /// Reports whether kernels may read the range, or write it.
    pub fn lets_kernels(&self, writes: bool) -> bool {
        match self.owner {
            Owner::Image => false,
            Owner::Mapping(protection) => protection.allows(writes),
            Owner::Program | Owner::Heap | Owner::Host => !(writes && self.is_protected),
        }
    }
}

impl Protection {
    pub fn allows(self, writes: bool) -> bool {
        match self {
            Self::None => false,
            Self::Read => !writes,
            Self::ReadWrite => true,
        }
    }
}

impl Nearest {
    /// Returns the bytes between the range and an address; 0 inside the range.
    pub fn distance(self, address: u64) -> u64 {
        address.saturating_sub(self.base + self.bytes).max(self.base.saturating_sub(address))
    }
}
