//! Mappings: physical memory at reserved addresses (`cuMemMap`), and the access that `cuMemSetAccess` allows there.

use std::io;
use std::ptr;

use super::physical::Physical;
use super::{Memory, Owner, Protection, Range};

impl Memory {
    /// Maps a part of physical memory at reserved addresses. No device has access to the mapping yet.
    ///
    /// # Safety
    /// The addresses are reserved, nothing is mapped there, and the physical memory is this device's and outlives the
    /// mapping.
    pub unsafe fn map(&self, address: u64, physical: &Physical, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: the caller vouches for the addresses.
        unsafe { physical.show_at(address, offset, bytes)? };
        let owner = Owner::Mapping(Protection::None);
        self.write_live().insert(address, Range { bytes, room: 0, owner, is_protected: false });
        Ok(())
    }

    /// Ends the mapping that starts at an address; the addresses stay reserved.
    pub fn unmap(&self, address: u64) -> io::Result<()> {
        let mut live = self.write_live();
        let Some(&range) = live.get(&address).filter(|range| matches!(range.owner, Owner::Mapping(_))) else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        hide(address, range.bytes)?;
        live.remove(&address);
        Ok(())
    }

    /// Sets the access to the mapping that starts at an address.
    pub fn set_protection(&self, address: u64, protection: Protection) {
        if let Some(range) = self.write_live().get_mut(&address)
            && matches!(range.owner, Owner::Mapping(_))
        {
            range.owner = Owner::Mapping(protection);
        }
    }

    /// Returns the access to the mapping that contains an address.
    pub fn protection(&self, address: u64) -> Option<Protection> {
        match self.range_at(address)?.1.owner {
            Owner::Mapping(protection) => Some(protection),
            _ => None,
        }
    }
}

/// Replaces a mapping by empty memory, because a kernel that still runs may use the addresses.
fn hide(address: u64, bytes: u64) -> io::Result<()> {
    let target = ptr::with_exposed_provenance_mut(address as usize);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the addresses are those of a mapping of ours, inside a range that is reserved.
    let mapped = unsafe { libc::mmap(target, bytes as usize, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
