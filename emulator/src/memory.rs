//! One device's address space. A device address is the host address of the same byte, inside one large reserved
//! mapping (or inside host memory that was mapped in), so kernels need no translation; every access is checked
//! against the live allocations, to the byte.
//!
//! Data races between kernels are the kernels' business, as on a device: this module only promises that a checked
//! access touches nothing but the allocation it was checked against.

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::{Mutex, PoisonError, RwLock};

/// Every allocation starts at a multiple of this: the alignment that CUDA's own allocator keeps, which kernels rely
/// on for vector accesses.
pub const ALLOCATION_ALIGN: u64 = 512;

/// Address space reserved for each byte of capacity: fragments never make an allocation fail that fits by its size,
/// short of adversarial patterns.
const RESERVE_FACTOR: u64 = 2;

/// One device's memory.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    reserved: u64,
    capacity: u64,
    arena: Mutex<Arena>,
    /// Every range that may be accessed: allocations and mapped host memory, by start address.
    live: RwLock<BTreeMap<u64, Range>>,
}

/// Not enough memory is left.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("allocate {wanted} bytes of device memory: {free} bytes are free")]
pub struct OutOfMemory {
    pub wanted: u64,
    pub free: u64,
}

/// The address is not the start of an allocation.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("free {address:#x}: not the start of an allocation")]
pub struct NotAllocated {
    pub address: u64,
}

/// A range that is not inside one live allocation.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("access {bytes} bytes at {address:#x}: not inside one allocation")]
pub struct BadAddress {
    pub address: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    bytes: u64,
    owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Arena,
    Host,
}

#[derive(Debug)]
struct Arena {
    /// Free address ranges, start to length, both multiples of the alignment; neighbours are merged.
    holes: BTreeMap<u64, u64>,
    used: u64,
}

impl Memory {
    /// Reserves address space for `bytes` of device memory. Pages are taken from the host when first touched.
    pub fn new(bytes: u64) -> io::Result<Memory> {
        let capacity = bytes;
        let reserved = bytes
            .checked_next_multiple_of(ALLOCATION_ALIGN)
            .and_then(|b| b.max(ALLOCATION_ALIGN).checked_mul(RESERVE_FACTOR))
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let length = usize::try_from(reserved).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = mapped as u64;
        let holes = BTreeMap::from([(base, reserved)]);
        Ok(Memory {
            base,
            reserved,
            capacity,
            arena: Mutex::new(Arena { holes, used: 0 }),
            live: RwLock::new(BTreeMap::new()),
        })
    }

    /// Allocates `bytes` (at least 1), zeroed, and gives the address.
    pub fn alloc(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let out = OutOfMemory { wanted: bytes, free: self.capacity - arena.used };
        if bytes > out.free {
            return Err(out);
        }
        let room = bytes.max(1).next_multiple_of(ALLOCATION_ALIGN);
        let (&start, &hole) = arena.holes.iter().find(|(_, hole)| **hole >= room).ok_or(out)?;
        arena.holes.remove(&start);
        if hole > room {
            arena.holes.insert(start + room, hole - room);
        }
        arena.used += bytes;
        self.write_live().insert(start, Range { bytes, owner: Owner::Arena });
        Ok(start)
    }

    /// Gives an allocation back; its pages return to the host and read as zero when used again.
    pub fn free(&self, address: u64) -> Result<(), NotAllocated> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = {
            let mut live = self.write_live();
            match live.get(&address) {
                Some(range) if range.owner == Owner::Arena => {}
                _ => return Err(NotAllocated { address }),
            }
            live.remove(&address).map_or(0, |range| range.bytes)
        };
        let room = bytes.max(1).next_multiple_of(ALLOCATION_ALIGN);
        self.release_pages(address, room);
        arena.used -= bytes;
        arena.add_hole(address, room);
        Ok(())
    }

    /// Free and total bytes.
    pub fn info(&self) -> (u64, u64) {
        let used = self.arena.lock().unwrap_or_else(PoisonError::into_inner).used;
        (self.capacity - used, self.capacity)
    }

    /// The allocation or mapped host range that holds `address`: its start and its bytes.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let (&base, range) = live.range(..=address).next_back()?;
        (address - base < range.bytes).then_some((base, range.bytes))
    }

    /// The range that holds `address` or is nearest to it, for reports.
    pub fn nearest(&self, address: u64) -> Option<(u64, u64)> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let below = live.range(..=address).next_back().map(|(&base, range)| (base, range.bytes));
        let above = live.range(address..).next().map(|(&base, range)| (base, range.bytes));
        match (below, above) {
            (Some((base, bytes)), Some((next, _))) if address.saturating_sub(base + bytes) > next - address => above,
            (Some(_), _) => below,
            (None, above) => above,
        }
    }

    /// Lets kernels reach `bytes` of host memory at its own address. The caller keeps that memory alive until
    /// [`Memory::unmap_host`]. Answers false where the range overlaps one that is already live.
    pub fn map_host(&self, pointer: *mut u8, bytes: u64) -> bool {
        let start = pointer as u64;
        let mut live = self.write_live();
        let Some(end) = start.checked_add(bytes) else { return false };
        let overlaps = live.range(..end).next_back().is_some_and(|(&base, range)| base + range.bytes > start);
        if overlaps || bytes == 0 {
            return false;
        }
        live.insert(start, Range { bytes, owner: Owner::Host });
        true
    }

    /// Takes a range away that was given to [`Memory::map_host`]; answers false where there is none at `pointer`.
    pub fn unmap_host(&self, pointer: *mut u8) -> bool {
        let mut live = self.write_live();
        match live.get(&(pointer as u64)) {
            Some(range) if range.owner == Owner::Host => live.remove(&(pointer as u64)).is_some(),
            _ => false,
        }
    }

    /// Whether `bytes` at `address` lie inside one live range.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), BadAddress> {
        let bad = BadAddress { address, bytes };
        if bytes == 0 {
            return Ok(());
        }
        let (base, size) = self.find(address).ok_or(bad)?;
        if bytes <= size - (address - base) { Ok(()) } else { Err(bad) }
    }

    /// Copies from the host into device memory.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    pub unsafe fn copy_in(&self, target: u64, source: *const u8, bytes: u64) -> Result<(), BadAddress> {
        self.check(target, bytes)?;
        // SAFETY: the target was just checked, the caller vouches for the source, and `copy` allows overlap.
        unsafe { ptr::copy(source, target as *mut u8, bytes as usize) };
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
        self.check(target, bytes)?;
        // SAFETY: both ranges were just checked.
        unsafe { ptr::copy(source as *const u8, target as *mut u8, bytes as usize) };
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
        let bytes = count.checked_mul(size).ok_or(BadAddress { address: target, bytes: u64::MAX })?;
        self.check(target, bytes)?;
        for index in 0..count {
            // SAFETY: the whole range was just checked.
            unsafe { ((target + index * size) as *mut T).write_unaligned(value) };
        }
        Ok(())
    }

    fn write_live(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u64, Range>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives whole pages back to the host and zeroes what shares a page with a neighbour.
    fn release_pages(&self, start: u64, room: u64) {
        const PAGE: u64 = 4096;
        let end = start + room;
        let (first, last) = (start.next_multiple_of(PAGE).min(end), (end / PAGE * PAGE).max(start));
        // SAFETY: the range lies inside the arena and belongs to no live allocation; private anonymous pages read as
        // zero after MADV_DONTNEED.
        unsafe {
            if first < last {
                ptr::write_bytes(start as *mut u8, 0, (first - start) as usize);
                libc::madvise(first as *mut libc::c_void, (last - first) as usize, libc::MADV_DONTNEED);
                ptr::write_bytes(last as *mut u8, 0, (end - last) as usize);
            } else {
                ptr::write_bytes(start as *mut u8, 0, room as usize);
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing can use it any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.reserved as usize) };
    }
}

impl Arena {
    fn add_hole(&mut self, mut start: u64, mut room: u64) {
        if let Some((&before, &length)) = self.holes.range(..start).next_back()
            && before + length == start
        {
            self.holes.remove(&before);
            (start, room) = (before, length + room);
        }
        if let Some(length) = self.holes.remove(&(start + room)) {
            room += length;
        }
        self.holes.insert(start, room);
    }
}

#[cfg(test)]
mod tests;
