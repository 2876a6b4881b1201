//! The physical memory of all devices, and where it is mapped.

use std::collections::{BTreeMap, HashMap};

use super::{
    super::{
        device::Device,
        handle::{Handle, fresh},
        status::{Answer, Status},
    },
    Physical, Protection,
};

#[derive(Debug, Default)]
pub struct Table {
    allocations: HashMap<Handle, Allocation>,
    /// Mappings by address.
    mappings: BTreeMap<u64, Mapping>,
}

/// Physical memory, while a handle or a mapping refers to it.
#[derive(Debug)]
struct Allocation {
    device: &'static Device,
    physical: Physical,
    /// Number of references that the program has yet to release.
    references: usize,
    mappings: usize,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    bytes: u64,
    handle: Handle,
    device: &'static Device,
}

impl Table {
    /// Adds memory and returns its handle.
    pub fn add(&mut self, device: &'static Device, physical: Physical) -> Handle {
        let handle = fresh();
        self.allocations.insert(handle, Allocation { device, physical, references: 1, mappings: 0 });
        handle
    }

    /// Releases one reference.
    pub fn release(&mut self, handle: Handle) -> Answer {
        self.held(handle)?.references -= 1;
        self.drop_unused(handle);
        Ok(())
    }

    /// Adds a reference to the memory that is mapped at an address.
    pub fn retain(&mut self, address: u64) -> Answer<Handle> {
        let handle = self.at(address).ok_or(Status::InvalidValue)?;
        let allocation = self.allocations.get_mut(&handle).ok_or(Status::InvalidValue)?;
        allocation.references += 1;
        Ok(handle)
    }

    pub fn device_of(&mut self, handle: Handle) -> Answer<&'static Device> {
        self.held(handle).map(|allocation| allocation.device)
    }

    /// Returns the memory that is mapped at an address.
    pub fn at(&self, address: u64) -> Option<Handle> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some(mapping.handle)
    }

    /// Reports whether any of these addresses is mapped.
    pub fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let before = self.mappings.range(..address.saturating_add(bytes)).next_back();
        before.is_some_and(|(&base, mapping)| base + mapping.bytes > address)
    }

    /// Maps a part of a handle's memory at addresses of one reserved range.
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: Handle) -> Answer {
        if self.is_mapped(address, bytes) {
            return Err(Status::InvalidValue);
        }
        let allocation = self.held(handle)?;
        allocation.device.check()?;
        if offset.checked_add(bytes).is_none_or(|end| end > allocation.physical.bytes) {
            return Err(Status::InvalidValue);
        }
        let device = allocation.device;
        // SAFETY: the caller has checked that the addresses are reserved, and nothing is mapped there; the memory is
        // the device's and stays as long as it has a mapping.
        unsafe { device.memory.map(address, &allocation.physical, offset, bytes) }
            .map_err(|_| Status::OperatingSystem)?;
        allocation.mappings += 1;
        self.mappings.insert(address, Mapping { bytes, handle, device });
        Ok(())
    }

    /// Removes all mappings of a range.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        for (base, mapping) in self.whole(address, bytes)? {
            mapping.device.memory.unmap(base).map_err(|_| Status::OperatingSystem)?;
            self.mappings.remove(&base);
            if let Some(allocation) = self.allocations.get_mut(&mapping.handle) {
                allocation.mappings -= 1;
            }
            self.drop_unused(mapping.handle);
        }
        Ok(())
    }

    /// Sets a device's access to all mappings of a range.
    pub fn set_access(&mut self, address: u64, bytes: u64, device: &Device, protection: Protection) -> Answer {
        let mappings = self.whole(address, bytes)?;
        let is_own = |mapping: &Mapping| mapping.device.ordinal == device.ordinal;
        if protection != Protection::None && !mappings.iter().all(|(_, mapping)| is_own(mapping)) {
            return Err(Status::InvalidDevice);
        }
        device.check()?;
        for (base, _) in mappings.iter().filter(|(_, mapping)| is_own(mapping)) {
            device.memory.set_protection(*base, protection);
        }
        Ok(())
    }

    /// Returns the mappings that make up a range; an error if it has gaps or contains only a part of a mapping.
    fn whole(&self, address: u64, bytes: u64) -> Answer<Vec<(u64, Mapping)>> {
        let end = address.checked_add(bytes).ok_or(Status::InvalidValue)?;
        let found: Vec<_> = self.mappings.range(address..end).map(|(base, mapping)| (*base, *mapping)).collect();
        let mut reached = address;
        for (base, mapping) in &found {
            if *base != reached {
                return Err(Status::InvalidValue);
            }
            reached += mapping.bytes;
        }
        if found.is_empty() || reached != end { Err(Status::InvalidValue) } else { Ok(found) }
    }

    /// Returns the memory behind a handle that the program has not released.
    fn held(&mut self, handle: Handle) -> Answer<&mut Allocation> {
        let allocation = self.allocations.get_mut(&handle).filter(|allocation| allocation.references > 0);
        allocation.ok_or(Status::InvalidValue)
    }

    fn drop_unused(&mut self, handle: Handle) {
        let is_unused = |allocation: &Allocation| allocation.references == 0 && allocation.mappings == 0;
        if self.allocations.get(&handle).is_some_and(is_unused) {
            self.allocations.remove(&handle);
        }
    }
}
