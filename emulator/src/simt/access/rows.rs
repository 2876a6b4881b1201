//! Accesses to rows: lanes access contiguous elements, elements at a constant distance, or one element. Most often this
//! applies to the whole warp, or to each half of it, since blocks are often 16 threads wide ([`pair`]). Otherwise some
//! lanes of a half are off, and those that are on are adjacent ([`halves`]).

use super::pattern::{Half, Pattern, Row, Rows};
use super::reach::{Range, View};
use super::run::Access;
#[cfg(target_arch = "x86_64")]
use super::steps;
use crate::ops::lanes::{FULL, HALF, LANES};
use crate::program::memory::{Address, REMEMBERED_MAX, Reach, Repeat};

/// The rows that all lanes access, checked.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Host address of the first lane's elements in each half.
    pub first: [u64; 2],
    /// Bytes from lane to lane.
    pub step: u64,
}

/// The row that the lanes of half a warp access, checked.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first lane that is on.
    pub start: usize,
    /// Number of lanes that are on; they are adjacent.
    pub lanes: usize,
    /// Host address of the first lane's elements.
    pub first: u64,
    /// Bytes from lane to lane: 0, the bytes of the access, or more.
    pub step: u64,
}

/// Finds the rows that all lanes access, if all lanes are on, both halves have one step, and everything is accessible.
/// It does not report what is invalid.
///
/// # Safety
/// The slot is inside the frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn pair<const VECTOR: bool>(
    access: &Access,
    stride: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
) -> Option<Pair> {
    if mask != FULL {
        return None;
    }
    let address = &access.address;
    // SAFETY: here and below, the caller vouches for the slot and the machine.
    let look = || unsafe { rows_of_all::<VECTOR>(address, frame) };
    let Rows { first: [low, high], step } = match access.repeat {
        Repeat::Never => return None,
        Repeat::Again(number) => view.patterns[usize::from(number) % REMEMBERED_MAX].pair?,
        Repeat::No => look()?,
        Repeat::First(number) => {
            let found = look();
            let pattern = &mut view.patterns[usize::from(number) % REMEMBERED_MAX];
            (pattern.pair, pattern.mask) = (found, 0);
            found?
        }
    };
    let allowed = Allowed::new(address, stride, view)?;
    // SAFETY: as above.
    let span = |first: u64, lanes: usize| unsafe { allowed.span(Row { first, step }, 0, lanes, address, frame) };
    if low.wrapping_add(step.wrapping_mul(HALF as u64)) == high {
        let Span { first, step, .. } = span(low, LANES)?;
        return Some(Pair { first: [first, first + HALF as u64 * step], step });
    }
    let (low, high) = (span(low, HALF)?, span(high, HALF)?);
    Some(Pair { first: [low.first, high.first], step: low.step })
}

/// Finds the rows that the halves of a warp access, if they are accessible. Used when [`pair`] found none.
///
/// # Safety
/// The slot is inside the frame.
#[inline(always)]
pub unsafe fn halves(access: &Access, stride: u64, frame: *mut u8, mask: u32, view: &mut View) -> Option<[Span; 2]> {
    let address = &access.address;
    // SAFETY: here and below, the caller vouches for the slot.
    let look = || unsafe { rows(address, frame, mask) };
    let [low, high] = match access.repeat {
        Repeat::Never => return None,
        Repeat::Again(number) => {
            let pattern = &view.patterns[usize::from(number) % REMEMBERED_MAX];
            if pattern.mask == mask { pattern.halves } else { look()? }
        }
        Repeat::No => look()?,
        Repeat::First(number) => {
            let found = look();
            let halves = found.unwrap_or_default();
            let mask = if found.is_some() { mask } else { 0 };
            view.patterns[usize::from(number) % REMEMBERED_MAX] = Pattern { pair: None, mask, halves };
            found?
        }
    };
    let allowed = Allowed::new(address, stride, view)?;
    // SAFETY: as above.
    let span = |half: Half| unsafe { allowed.span(half.row, half.start, half.lanes, address, frame) };
    Some([span(low)?, span(high)?])
}

/// # Safety
/// The slot is inside the frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
unsafe fn rows_of_all<const VECTOR: bool>(address: &Address, frame: *mut u8) -> Option<Rows> {
    #[cfg(target_arch = "x86_64")]
    if VECTOR {
        // SAFETY: the caller vouches for the slot and the machine.
        let found = unsafe {
            let plane = frame.add(address.slot as usize);
            if address.wide { steps::rows64(&*plane.cast()) } else { steps::rows32(&*plane.cast()) }
        };
        return found.map(|(first, step)| Rows { first, step });
    }
    let _ = (address, frame);
    None
}

/// # Safety
/// The slot is inside the frame.
#[inline(always)]
unsafe fn rows(address: &Address, frame: *mut u8, mask: u32) -> Option<[Half; 2]> {
    let masks = [mask & 0xffff, mask >> HALF];
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let plane = frame.add(address.slot as usize);
        if address.wide {
            let [low, high] = &*plane.cast::<[[u64; HALF]; 2]>();
            Some([row64(low, masks[0])?, row64(high, masks[1])?])
        } else {
            let [low, high] = &*plane.cast::<[[u32; HALF]; 2]>();
            Some([row32(low, masks[0])?, row32(high, masks[1])?])
        }
    }
}

/// The limits of a row.
struct Allowed {
    range: Range,
    stride: u64,
    /// True for 32-bit addresses, which wrap around.
    truncate: bool,
}

impl Allowed {
    /// Returns the range that an access of `stride` bytes may use, as far as the cache knows it.
    #[inline(always)]
    fn new(address: &Address, stride: u64, view: &View) -> Option<Allowed> {
        let truncate = address.reach == Reach::Shared;
        let range = if truncate { Range::shared(view) } else { view.caches.get(address.cache as usize)?.range };
        Some(Allowed { range, stride, truncate })
    }

    /// Returns what the lanes of a row access, if all of it is accessible.
    ///
    /// # Safety
    /// The slots of the address are inside the frame.
    #[inline(always)]
    unsafe fn span(&self, row: Row, start: usize, lanes: usize, address: &Address, frame: *mut u8) -> Option<Span> {
        let Row { first, step } = match &address.index {
            // SAFETY: the caller vouches for the slots.
            Some(index) => row.indexed(lanes, index, unsafe { index.start(frame) })?,
            None => row,
        };
        if lanes == 0 {
            return Some(Span { start, lanes, first: 0, step });
        }
        let address = first.wrapping_add_signed(address.offset);
        let address = if self.truncate { address & 0xffff_ffff } else { address };
        // Steps have 32 bits, so this does not overflow; nor does the row, if it fits.
        let bytes = (lanes as u64 - 1) * step + self.stride;
        let first = self.range.host(address, bytes)?;
        ((address | step) & (self.stride - 1) == 0).then_some(Span { start, lanes, first, step })
    }
}

/// Defines the search for a row among addresses of one width. Addresses wrap around at that width, and a row that wraps
/// is outside any range.
macro_rules! row {
    ($name:ident, $word:ty, $width:literal) => {
        #[inline(always)]
        fn $name(plane: &[$word; HALF], mask: u32) -> Option<Half> {
            if mask == 0 {
                return Some(Half::default());
            }
            let start = mask.trailing_zeros() as usize;
            let lanes = (mask >> start).trailing_ones() as usize;
            if mask >> start >> lanes != 0 {
                return None;
            }
            let first = plane[start];
            let step = if lanes > 1 { plane[start + 1].wrapping_sub(first) } else { 0 };
            // Descending rows are rare and look like enormous steps.
            if u64::from(step) > u64::from(u32::MAX) {
                return None;
            }
            if lanes == HALF {
                const WIDTH: usize = $width;
                let mut expected: [$word; WIDTH] =
                    std::array::from_fn(|lane| first.wrapping_add(step.wrapping_mul(lane as $word)));
                let mut differs = [0; WIDTH];
                for part in plane.chunks_exact(WIDTH) {
                    for lane in 0..WIDTH {
                        differs[lane] |= part[lane] ^ expected[lane];
                        expected[lane] = expected[lane].wrapping_add(step.wrapping_mul(WIDTH as $word));
                    }
                }
                if differs.iter().fold(0, |all, bits| all | bits) != 0 {
                    return None;
                }
            } else {
                let expected = |lane: usize| first.wrapping_add(step.wrapping_mul(lane as $word));
                if (1..lanes).any(|lane| plane[start + lane] != expected(lane)) {
                    return None;
                }
            }
            Some(Half { start, lanes, row: Row { first: first.into(), step: step.into() } })
        }
    };
}

row!(row32, u32, 8);
row!(row64, u64, 4);
