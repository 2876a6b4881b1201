//! Ranges of addresses that programs reserve (`cuMemAddressReserve`) to map memory at them.
//!
//! To the host a reserved range is ordinary memory that is never touched: only the mappings decide what may be
//! accessed. So a kernel that still runs when its memory is unmapped does no harm. For that reason a freed range stays
//! reserved for some time too.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ptr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::pages::{self, unmap};

/// Maximum number of freed ranges that other memory can't take yet and that reports can still name.
const FREED_MAX: usize = 64;

/// End of the addresses that Linux hands out unless a program asks for higher ones. Pointers above have more bits than
/// others.
const HINT_MAX: u64 = 1 << 47;

/// The reserved ranges of a process.
#[derive(Debug, Default)]
pub struct Reservations {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start to bytes.
    live: BTreeMap<u64, u64>,
    /// Freed ranges, the latest last.
    freed: VecDeque<Reserved>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub base: u64,
    pub bytes: u64,
}

impl Reserved {
    pub fn holds(self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset < self.bytes)
    }
}

impl Reservations {
    /// Reserves addresses from a multiple of `align`, a power of two; at `hint` if that is a multiple and free.
    pub fn reserve(&self, bytes: u64, align: u64, hint: u64) -> io::Result<u64> {
        let at_hint = if hint.is_multiple_of(align) { reserve_at(hint, bytes) } else { None };
        let base = at_hint.map_or_else(|| reserve_aligned(bytes, align), Ok)?;
        self.write().live.insert(base, bytes);
        Ok(base)
    }

    /// Frees a whole range; returns false if no range has this base and size.
    pub fn free(&self, base: u64, bytes: u64) -> bool {
        let mut state = self.write();
        if state.live.get(&base) != Some(&bytes) {
            return false;
        }
        state.live.remove(&base);
        state.freed.push_back(Reserved { base, bytes });
        if state.freed.len() > FREED_MAX
            && let Some(oldest) = state.freed.pop_front()
        {
            unmap(oldest.base, oldest.bytes);
        }
        true
    }

    /// Returns the reserved range that contains an address.
    pub fn find(&self, address: u64) -> Option<Reserved> {
        let state = self.read();
        let (&base, &bytes) = state.live.range(..=address).next_back()?;
        Some(Reserved { base, bytes }).filter(|range| range.holds(address))
    }

    /// Returns the recently freed range that contained an address.
    pub fn find_freed(&self, address: u64) -> Option<Reserved> {
        self.read().freed.iter().rev().find(|range| range.holds(address)).copied()
    }

    /// Reports whether an address is reserved, or was until recently.
    pub fn holds(&self, address: u64) -> bool {
        self.find(address).is_some() || self.find_freed(address).is_some()
    }

    /// Reports whether any address of a range is reserved, or was until recently.
    pub fn overlaps(&self, base: u64, bytes: u64) -> bool {
        let state = self.read();
        let meets = |range: Reserved| range.base < base.saturating_add(bytes) && base < range.base + range.bytes;
        let live = state.live.iter().map(|(&base, &bytes)| Reserved { base, bytes });
        live.chain(state.freed.iter().copied()).any(meets)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservations {
    fn drop(&mut self) {
        let state = self.read();
        state.live.iter().for_each(|(&base, &bytes)| unmap(base, bytes));
        state.freed.iter().for_each(|range| unmap(range.base, range.bytes));
    }
}

/// Reserves addresses at `address` exactly, if all of them are free.
fn reserve_at(address: u64, bytes: u64) -> Option<u64> {
    let end = address.checked_add(bytes)?;
    if address == 0 || end > HINT_MAX {
        return None;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let hint = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the flags let the kernel take only addresses that nothing is mapped at.
    let mapped = unsafe { libc::mmap(hint, bytes as usize, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // Kernels before 4.17 ignore `MAP_FIXED_NOREPLACE` and may choose another address.
    if mapped as u64 != address {
        unmap(mapped as u64, bytes);
        return None;
    }
    Some(address)
}

/// Reserves addresses of the kernel's choice: maps more than needed and unmaps the surplus on both sides.
fn reserve_aligned(bytes: u64, align: u64) -> io::Result<u64> {
    let wide = bytes.checked_add(align).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let start = pages::map(wide)?;
    let base = start.next_multiple_of(align);
    unmap(start, base - start);
    unmap(base + bytes, start + wide - (base + bytes));
    Ok(base)
}
