//! One device's address space. A device address is the host address of the same byte, inside one large reserved mapping
//! or inside host memory that was mapped in, so kernels need no address translation. Every access is checked against
//! the live allocations, to the byte.
//!
//! As on a device, data races between kernels are up to the kernels: this module only guarantees that a checked access
//! touches no other allocation.
//!
//! To reveal mistakes, an inaccessible guard gap follows each allocation, and freed addresses are reused only when
//! there is no other room. Neither counts as used memory or makes an allocation fail.

mod arena;
mod check;
pub mod confinement;
mod freed;
mod heap;
mod mapping;
mod pages;
pub mod physical;
mod range;
pub mod reservations;
mod shadow;

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use self::arena::Arena;
use self::freed::Freed;
use self::physical::Store;
use self::range::Range;
use self::reservations::Reservations;
use self::shadow::Shadow;
use crate::checks::Checks;
use crate::texture::registry::Textures;

pub use self::arena::ALLOCATION_ALIGN;
pub use self::range::{Nearest, Owner, Protection};

/// Address space reserved per byte of capacity. Half of it is for the guard gaps, so that allocations of 256 bytes and
/// more all have one. The rest keeps fragmentation from failing an allocation that fits by its size, except in
/// adversarial patterns.
const RESERVE_FACTOR: u64 = 4;

/// One device's memory.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    reserved: u64,
    capacity: u64,
    arena: Mutex<Arena>,
    /// Ranges that may be accessed (allocations, mappings and mapped host memory), by start address.
    live: RwLock<BTreeMap<u64, Range>>,
    /// Number of protected ranges, so that most writes by the host need not search for one.
    protected: AtomicUsize,
    freed: Mutex<Freed>,
    /// Bytes that kernels have taken from the device heap (`malloc` in kernels).
    heap_used: AtomicU64,
    store: Store,
    reservations: Arc<Reservations>,
    checks: Checks,
    shadow: Option<Shadow>,
    textures: Textures,
}

/// Error: not enough device memory is free.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("failed to allocate {wanted} bytes of device memory: {free} bytes are free")]
pub struct OutOfMemory {
    pub wanted: u64,
    pub free: u64,
}

/// Error: the address is not the start of an allocation.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("failed to free {address:#x}: not the start of an allocation")]
pub struct NotAllocated {
    pub address: u64,
}

/// Error: the range is not inside one live allocation.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("failed to access {bytes} bytes at {address:#x}: {nearest}")]
pub struct BadAddress {
    pub address: u64,
    pub bytes: u64,
    /// Describes the address relative to the allocations around it.
    pub nearest: String,
}

impl Memory {
    /// Reserves address space for `bytes` of device memory. The host provides pages when they are first touched.
    pub fn new(bytes: u64) -> io::Result<Memory> {
        Memory::checked(bytes, Checks::default())
    }

    /// Makes memory like [`Memory::new`], with checks for every kernel that runs over it.
    pub fn checked(bytes: u64, checks: Checks) -> io::Result<Memory> {
        Memory::beside(Arc::default(), bytes, checks)
    }

    /// Makes memory like [`Memory::checked`], in a process with these reserved addresses.
    pub fn beside(reservations: Arc<Reservations>, bytes: u64, checks: Checks) -> io::Result<Memory> {
        let capacity = bytes;
        let reserved = bytes
            .checked_next_multiple_of(ALLOCATION_ALIGN)
            .and_then(|b| b.max(ALLOCATION_ALIGN).checked_mul(RESERVE_FACTOR))
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let base = pages::map(reserved)?;
        let mut memory = Memory {
            base,
            reserved,
            capacity,
            arena: Mutex::new(Arena::new(base, reserved, capacity)),
            live: RwLock::new(BTreeMap::new()),
            protected: AtomicUsize::new(0),
            freed: Mutex::default(),
            heap_used: AtomicU64::new(0),
            store: Store::default(),
            reservations,
            checks,
            shadow: None,
            textures: Textures::default(),
        };
        if checks.uninitialised {
            memory.shadow = Some(Shadow::new(base, reserved)?);
        }
        Ok(memory)
    }

    /// Returns the checks for kernels that run over this memory.
    pub fn checks(&self) -> Checks {
        self.checks
    }

    /// Returns the addresses that programs have reserved.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Returns the texture and surface objects of the device.
    pub fn textures(&self) -> &Textures {
        &self.textures
    }

    /// Marks a range as written, because a write follows or because it contains zeros.
    pub fn note_written(&self, address: u64, bytes: u64) {
        if let Some(shadow) = &self.shadow {
            shadow.write(address, bytes);
        }
    }

    /// Returns the offset of the first byte of a range that was never written, if the check is on and there is one.
    pub fn first_unwritten(&self, address: u64, bytes: u64) -> Option<u64> {
        self.shadow.as_ref()?.first_unwritten(address, bytes)
    }

    /// Allocates `bytes` (at least 1), zeroed, and returns the address.
    pub fn alloc(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        self.alloc_for(Owner::Program, bytes)
    }

    /// Allocates like [`Memory::alloc`], for another owner.
    pub fn alloc_for(&self, owner: Owner, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let out = OutOfMemory { wanted: bytes, free: self.capacity - arena.used };
        if bytes > out.free {
            return Err(out);
        }
        let room = bytes.max(1).next_multiple_of(ALLOCATION_ALIGN);
        let (start, room) = arena.take(room).ok_or(out)?;
        arena.used += bytes;
        self.write_live().insert(start, Range { bytes, room, owner, is_protected: false });
        Ok(start)
    }

    /// Frees an allocation of the program. Its pages return to the host and read as zero when they are used again.
    pub fn free(&self, address: u64) -> Result<(), NotAllocated> {
        self.free_of(Owner::Program, address).map(drop)
    }

    /// Frees an allocation of this owner and returns its size in bytes.
    pub fn free_of(&self, owner: Owner, address: u64) -> Result<u64, NotAllocated> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let Range { bytes, room, is_protected, .. } = {
            let mut live = self.write_live();
            match live.get(&address).copied() {
                Some(range) if range.owner == owner && range.room > 0 => {
                    live.remove(&address);
                    range
                }
                _ => return Err(NotAllocated { address }),
            }
        };
        self.protected.fetch_sub(is_protected.into(), Ordering::Relaxed);
        pages::release(address, room);
        if let Some(shadow) = &self.shadow {
            shadow.clear(address, room);
        }
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(address, bytes);
        arena.used -= bytes;
        arena.give(address, room);
        Ok(bytes)
    }

    /// Returns the free and the total bytes.
    pub fn info(&self) -> (u64, u64) {
        let used = self.arena.lock().unwrap_or_else(PoisonError::into_inner).used;
        (self.capacity - used, self.capacity)
    }

    /// Counts `bytes` as used without taking addresses for them.
    fn count(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.capacity - arena.used;
        if bytes > free {
            return Err(OutOfMemory { wanted: bytes, free });
        }
        arena.used += bytes;
        Ok(())
    }

    fn uncount(&self, bytes: u64) {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner).used -= bytes;
    }

    /// Returns start and bytes of the allocation, mapping or mapped host range that contains `address`.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.range_at(address).map(|(base, range)| (base, range.bytes))
    }

    /// Returns the range that contains `address`, if a kernel may access it.
    pub fn find_for_kernel(&self, address: u64, writes: bool) -> Option<(u64, u64)> {
        let (base, range) = self.range_at(address)?;
        range.lets_kernels(writes).then_some((base, range.bytes))
    }

    fn range_at(&self, address: u64) -> Option<(u64, Range)> {
        let live = self.read_live();
        let (&base, range) = live.range(..=address).next_back()?;
        (address - base < range.bytes).then_some((base, *range))
    }

    /// Makes an allocation read-only for kernels that start from now on, until the host writes to it or frees it.
    pub fn protect(&self, address: u64) -> Result<(), NotAllocated> {
        let mut live = self.write_live();
        let range = live.get_mut(&address).filter(|range| range.owner == Owner::Program);
        let range = range.ok_or(NotAllocated { address })?;
        self.protected.fetch_add((!range.is_protected).into(), Ordering::Relaxed);
        range.is_protected = true;
        Ok(())
    }

    /// Ends the protection of the range that the host is about to write.
    fn unprotect(&self, address: u64) {
        if self.protected.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut live = self.write_live();
        let range = live.range_mut(..=address).next_back().map(|(_, range)| range);
        if let Some(range) = range.filter(|range| range.is_protected) {
            range.is_protected = false;
            self.protected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the range that contains `address` or is nearest to it, for reports.
    pub fn nearest(&self, address: u64) -> Option<Nearest> {
        let (below, above) = self.neighbours(address);
        below.into_iter().chain(above).min_by_key(|range| range.distance(address))
    }

    /// Returns the last range that starts at or below `address` and the first that starts at or above it.
    pub fn neighbours(&self, address: u64) -> (Option<Nearest>, Option<Nearest>) {
        let nearest = |(&base, range): (&u64, &Range)| Nearest {
            base,
            bytes: range.bytes,
            owner: range.owner,
            is_protected: range.is_protected,
        };
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        (live.range(..=address).next_back().map(nearest), live.range(address..).next().map(nearest))
    }

    /// Returns start and bytes of the latest freed allocation that contained `address`, if it is still remembered.
    pub fn freed(&self, address: u64) -> Option<(u64, u64)> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).find(address)
    }

    /// Lets kernels reach `bytes` of host memory at its own address. The caller keeps that memory alive until
    /// [`Memory::unmap_host`]. Returns false if the range overlaps a live one.
    pub fn map_host(&self, pointer: *mut u8, bytes: u64) -> bool {
        let start = pointer as u64;
        let mut live = self.write_live();
        let Some(end) = start.checked_add(bytes) else { return false };
        let overlaps = live.range(..end).next_back().is_some_and(|(&base, range)| base + range.bytes > start);
        if overlaps || bytes == 0 || self.reservations.overlaps(start, bytes) {
            return false;
        }
        live.insert(start, Range { bytes, room: 0, owner: Owner::Host, is_protected: false });
        true
    }

    /// Removes a range that was passed to [`Memory::map_host`]; returns false if none starts at `pointer`.
    pub fn unmap_host(&self, pointer: *mut u8) -> bool {
        let mut live = self.write_live();
        match live.get(&(pointer as u64)) {
            Some(range) if range.owner == Owner::Host => live.remove(&(pointer as u64)).is_some(),
            _ => false,
        }
    }

    /// Copies from the host into device memory.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    pub unsafe fn copy_in(&self, target: u64, source: *const u8, bytes: u64) -> Result<(), BadAddress> {
        self.check_writable(target, bytes)?;
        self.unprotect(target);
        // SAFETY: the target was just checked, the caller vouches for the source, and `copy` allows overlap.
        unsafe { ptr::copy(source, target as *mut u8, bytes as usize) };
        self.note_written(target, bytes);
        Ok(())
    }

    /// Copies from device memory to the host.
    ///
    /// # Safety
    /// `target` is writable for `bytes`.
    pub unsafe fn copy_out(&self, target: *mut u8, source: u64, bytes: u64) -> Result<(), BadAddress> {
        self.check(source, bytes)?;
        // SAFETY: the source was just checked, the caller vouches for the target, and `copy` allows overlap.
        unsafe { ptr::copy(source as *const u8, target, bytes as usize) };
        Ok(())
    }

    /// Copies inside device memory; the ranges may overlap.
    pub fn copy_within(&self, target: u64, source: u64, bytes: u64) -> Result<(), BadAddress> {
        self.check(source, bytes)?;
        self.check_writable(target, bytes)?;
        self.unprotect(target);
        // SAFETY: both ranges were just checked.
        unsafe { ptr::copy(source as *const u8, target as *mut u8, bytes as usize) };
        if let Some(shadow) = &self.shadow {
            shadow.copy(target, source, bytes);
        }
        Ok(())
    }

    /// Sets `count` bytes to `value`.
    pub fn fill8(&self, target: u64, value: u8, count: u64) -> Result<(), BadAddress> {
        self.fill(target, value, count)
    }

    /// Sets `count` 16-bit elements to `value`; `target` need not be aligned.
    pub fn fill16(&self, target: u64, value: u16, count: u64) -> Result<(), BadAddress> {
        self.fill(target, value, count)
    }

    /// Sets `count` 32-bit elements to `value`; `target` need not be aligned.
    pub fn fill32(&self, target: u64, value: u32, count: u64) -> Result<(), BadAddress> {
        self.fill(target, value, count)
    }

    fn fill<T: Copy>(&self, target: u64, value: T, count: u64) -> Result<(), BadAddress> {
        let size = size_of::<T>() as u64;
        let bytes = count.checked_mul(size).ok_or_else(|| self.bad(target, u64::MAX, target))?;
        self.check_writable(target, bytes)?;
        self.unprotect(target);
        self.note_written(target, bytes);
        for index in 0..count {
            // SAFETY: the whole range was just checked.
            unsafe { ((target + index * size) as *mut T).write_unaligned(value) };
        }
        Ok(())
    }

    fn read_live(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Range>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_live(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u64, Range>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        pages::unmap(self.base, self.reserved);
    }
}

#[cfg(test)]
mod tests;
