//! Accesses to rows. Half a warp at a time, since blocks are often 16 threads wide: its lanes that are on are the
//! first ones, and reach elements one behind the other, or so many bytes apart, or all the same element.

use super::reach::{Range, View};
#[cfg(target_arch = "x86_64")]
use super::steps;
use crate::ops::lanes::{FULL, LANES};
use crate::program::memory::{Access, Address, Index, Reach, Repeat};

/// Lanes that are looked at together.
pub const HALF: usize = LANES / 2;

/// One thing for all lanes, where all are on and lie in one row, or one for each half of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows<T> {
    Whole(T),
    Halves([T; 2]),
}

/// What lanes reach, checked: all of them, or half a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Lanes that are on: none before the last of them is off.
    pub lanes: usize,
    /// Where on the host the first lane's elements are.
    pub first: u64,
    /// Bytes from lane to lane: none, those of the access, or more.
    pub step: u64,
}

/// How the addresses of lanes lie to each other, before anything is added to them or checked.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    lanes: usize,
    first: u64,
    step: u64,
}

impl Row {
    /// The addresses that a row of indices stands for, where they are a row too.
    #[inline(always)]
    fn indexed(self, index: &Index, start: u64) -> Option<Row> {
        let Row { lanes, first, step } = self;
        let (first, step) = (first as u32, step as u32);
        // Indices wrap around at 32 bits, or at their sign; addresses do not wrap with them.
        let behind = (lanes as u64).saturating_sub(1);
        let fits = if index.signed {
            step <= i32::MAX as u32 && i64::from(first as i32) + (behind * u64::from(step)) as i64 <= i32::MAX.into()
        } else {
            u64::from(first) + behind * u64::from(step) <= u32::MAX.into()
        };
        let step = u64::from(step) * u64::from(index.factor);
        let first = start.wrapping_add_signed(index.distance(first));
        (fits && step <= u32::MAX.into()).then_some(Row { lanes, first, step })
    }
}

/// What is in an address's register, where that has a pattern.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// The lanes that were looked at; none where there is no pattern, and no access is by none.
    mask: u32,
    rows: Rows<Row>,
}

impl Default for Pattern {
    fn default() -> Pattern {
        Pattern { mask: 0, rows: Rows::Whole(Row::default()) }
    }
}

/// The rows that the lanes reach, where they do and may. It never says what is wrong.
///
/// # Safety
/// The slot lies inside the frame.
#[inline(always)]
pub unsafe fn find<const VECTOR: bool>(
    access: &Access,
    stride: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
) -> Option<Rows<Span>> {
    let address = &access.address;
    let shared = Range::shared(view);
    let found;
    let rows = match access.repeat {
        Repeat::Never => return None,
        Repeat::Again(number) if view.patterns[usize::from(number)].mask == mask => {
            &view.patterns[usize::from(number)].rows
        }
        Repeat::Again(_) | Repeat::No => {
            // SAFETY: the caller vouches for the slot.
            found = unsafe { rows::<VECTOR>(address, frame, mask) }?;
            &found
        }
        Repeat::First(number) => {
            // SAFETY: as above.
            let found = unsafe { rows::<VECTOR>(address, frame, mask) };
            let pattern = &mut view.patterns[usize::from(number)];
            *pattern = found.map_or(Pattern::default(), |rows| Pattern { mask, rows });
            found?;
            &pattern.rows
        }
    };
    let truncate = address.reach == Reach::Shared;
    let range = if truncate { shared } else { *view.caches.get(address.cache as usize)? };
    let allowed = Allowed { range, stride, truncate };
    // SAFETY: as above.
    unsafe {
        Some(match rows {
            Rows::Whole(row) => Rows::Whole(allowed.span(row, address, frame)?),
            Rows::Halves([low, high]) => {
                Rows::Halves([allowed.span(low, address, frame)?, allowed.span(high, address, frame)?])
            }
        })
    }
}

/// # Safety
/// The slot lies inside the frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
unsafe fn rows<const VECTOR: bool>(address: &Address, frame: *mut u8, mask: u32) -> Option<Rows<Row>> {
    let masks = [mask & 0xffff, mask >> HALF];
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let plane = frame.add(address.slot as usize);
        #[cfg(target_arch = "x86_64")]
        if VECTOR && mask == FULL {
            let whole = match address.wide {
                true => steps::row64(&*plane.cast()),
                false => steps::row32(&*plane.cast()),
            };
            if let Some((first, step)) = whole {
                return Some(Rows::Whole(Row { lanes: LANES, first, step }));
            }
        }
        if address.wide {
            let [low, high] = &*plane.cast::<[[u64; HALF]; 2]>();
            Some(Rows::Halves([row64(low, masks[0])?, row64(high, masks[1])?]))
        } else {
            let [low, high] = &*plane.cast::<[[u32; HALF]; 2]>();
            Some(Rows::Halves([row32(low, masks[0])?, row32(high, masks[1])?]))
        }
    }
}

/// What a row has to keep to.
struct Allowed {
    range: Range,
    stride: u64,
    /// Addresses have 32 bits.
    truncate: bool,
}

impl Allowed {
    /// What the lanes of a row reach, if they may reach all of it.
    ///
    /// # Safety
    /// The slots of the address lie inside the frame.
    #[inline(always)]
    unsafe fn span(&self, row: &Row, address: &Address, frame: *mut u8) -> Option<Span> {
        let Row { lanes, first, step } = match &address.index {
            // SAFETY: the caller vouches for the slots.
            Some(index) => row.indexed(index, unsafe { index.start(frame) })?,
            None => *row,
        };
        if lanes == 0 {
            return Some(Span { lanes, first: 0, step });
        }
        let address = first.wrapping_add_signed(address.offset);
        let address = if self.truncate { address & 0xffff_ffff } else { address };
        // Steps have 32 bits, so that this does not overflow; nor does the row, where it fits.
        let bytes = (lanes as u64 - 1) * step + self.stride;
        let first = self.range.host(address, bytes)?;
        ((address | step) & (self.stride - 1) == 0).then_some(Span { lanes, first, step })
    }
}

/// Defines the search for a row among addresses of one width. Addresses wrap around at that width; a row that does
/// is outside of any range.
macro_rules! row {
    ($name:ident, $word:ty, $width:literal) => {
        #[inline(always)]
        fn $name(plane: &[$word; HALF], mask: u32) -> Option<Row> {
            let lanes = mask.trailing_ones() as usize;
            if lanes == 0 || mask >> lanes != 0 {
                return (mask == 0).then_some(Row::default());
            }
            let first = plane[0];
            let step = if lanes > 1 { plane[1].wrapping_sub(first) } else { 0 };
            // Rows from behind to the front are rare, and look like enormous steps.
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
                if (1..lanes).any(|lane| plane[lane] != expected(lane)) {
                    return None;
                }
            }
            Some(Row { lanes, first: first.into(), step: step.into() })
        }
    };
}

row!(row32, u32, 8);
row!(row64, u64, 4);
