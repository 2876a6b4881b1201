//! Accesses to rows. Half a warp at a time, since blocks are often 16 threads wide: its lanes that are on are the
//! first ones, and reach elements one behind the other, or so many bytes apart, or all the same element.

use std::mem::MaybeUninit;

use super::element::{Element, Plane};
use super::reach::{Range, View};
use super::spread::{narrow, widen};
#[cfg(target_arch = "x86_64")]
use super::{steps, turn};
use crate::ops::lanes::{FULL, LANES, NO_SLOT};
use crate::program::memory::{Access, Address, Index, Reach, Repeat};

/// Lanes that are looked at together.
pub const HALF: usize = LANES / 2;

/// Bytes that come from memory together.
const CACHE_LINE: usize = 64;

/// What half a warp reaches, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Lanes that are on: none before the last of them is off.
    pub lanes: usize,
    /// Where on the host the first lane's elements are.
    pub first: u64,
    /// Bytes from lane to lane: none, those of the access, or more.
    pub step: u64,
}

impl Half {
    /// The halves of a row of all lanes.
    #[inline(always)]
    fn split(self) -> [Half; 2] {
        let Half { first, step, .. } = self;
        [Half { lanes: HALF, ..self }, Half { lanes: HALF, first: first.wrapping_add(HALF as u64 * step), step }]
    }
}

/// How the addresses of half a warp lie to each other, before anything is added to them or checked. The first may be that
/// of all lanes; there is no second one then.
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern {
    /// The lanes that were looked at; none where there is no pattern, and no access is by none.
    mask: u32,
    halves: [Row; 2],
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
) -> Option<[Half; 2]> {
    let address = &access.address;
    let range = match address.reach {
        _ if access.ordered => return None,
        Reach::Shared => Range::shared(view),
        Reach::Global | Reach::Generic => *view.caches.get(address.cache as usize)?,
        Reach::Local | Reach::Param => return None,
    };
    let allowed = Allowed { range, stride, truncate: address.reach == Reach::Shared };
    let mut halves = match access.repeat {
        Repeat::Again(number) if view.patterns[usize::from(number)].mask == mask => {
            view.patterns[usize::from(number)].halves
        }
        // SAFETY: the caller vouches for the slot.
        Repeat::Again(_) | Repeat::No => unsafe { rows::<VECTOR>(address, frame, mask) }?,
        Repeat::First(number) => {
            // SAFETY: as above.
            let halves = unsafe { rows::<VECTOR>(address, frame, mask) };
            let found = halves.map_or(Pattern::default(), |halves| Pattern { mask, halves });
            view.patterns[usize::from(number)] = found;
            halves?
        }
    };
    if let Some(index) = &address.index {
        // SAFETY: as above.
        let start = unsafe { index.start(frame) };
        halves = [halves[0].indexed(index, start)?, halves[1].indexed(index, start)?];
    }
    let (low, high) = (allowed.half(halves[0], address.offset)?, allowed.half(halves[1], address.offset)?);
    Some(if low.lanes == LANES { low.split() } else { [low, high] })
}

/// # Safety
/// The slot lies inside the frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
unsafe fn rows<const VECTOR: bool>(address: &Address, frame: *mut u8, mask: u32) -> Option<[Row; 2]> {
    let masks = [mask & 0xffff, mask >> HALF];
    // Other addresses of 32 bits do not wrap around there.
    let is_word = address.reach == Reach::Shared || address.index.is_some();
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let plane = frame.add(address.slot as usize);
        #[cfg(target_arch = "x86_64")]
        if VECTOR && mask == FULL {
            let whole = match address.wide {
                true => steps::row64(&*plane.cast()),
                false if is_word => steps::row32(&*plane.cast()),
                false => return None,
            };
            if let Some((first, step)) = whole {
                return Some([Row { lanes: LANES, first, step }, Row::default()]);
            }
        }
        if address.wide {
            let [low, high] = &*plane.cast::<[[u64; HALF]; 2]>();
            Some([row64(low, masks[0])?, row64(high, masks[1])?])
        } else if is_word {
            let [low, high] = &*plane.cast::<[[u32; HALF]; 2]>();
            Some([row32(low, masks[0])?, row32(high, masks[1])?])
        } else {
            None
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
    /// The half whose addresses are those of `row` and `offset`, if all of it may be reached.
    #[inline(always)]
    fn half(&self, row: Row, offset: i64) -> Option<Half> {
        let Row { lanes, first, step } = row;
        if lanes == 0 {
            return Some(Half { lanes, first: 0, step });
        }
        let address = first.wrapping_add_signed(offset);
        let address = if self.truncate { address & 0xffff_ffff } else { address };
        // Steps have 32 bits, so that this does not overflow; nor does the row, where it fits.
        let bytes = (lanes as u64 - 1) * step + self.stride;
        let first = self.range.host(address, bytes)?;
        ((address | step) & (self.stride - 1) == 0).then_some(Half { lanes, first, step })
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

/// Asks for the row after this one, where rows come at even distances as they did so far. The processor sees for itself
/// only what lies side by side: threads of a grid that go through memory together leap.
#[inline(always)]
pub fn fetch_next<E>(halves: &[Half; 2], reached: Option<&mut u64>) {
    let side_by_side = |half: &Half| half.lanes == HALF && half.step == size_of::<E>() as u64;
    if let (true, Some(reached)) = (halves.iter().all(side_by_side), reached) {
        let first = halves[0].first;
        let next = first.wrapping_add(first.wrapping_sub(*reached));
        *reached = first;
        (0..(LANES * size_of::<E>()) as u64).step_by(CACHE_LINE).for_each(|byte| fetch(next.wrapping_add(byte)));
    }
}

/// Asks for what is at an address soon, if anything is.
#[inline(always)]
fn fetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Loads `COUNT` elements for each lane.
///
/// # Safety
/// The halves come from [`find`] for this access and frame; with `VECTOR`, the machine has its vectors.
#[inline(always)]
pub unsafe fn load<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    halves: &[Half; 2],
    access: &Access,
    frame: *mut u8,
) {
    let mut unwanted = MaybeUninit::<[[P; LANES]; COUNT]>::uninit();
    let unwanted: *mut [P; LANES] = unwanted.as_mut_ptr().cast();
    for (index, half) in halves.iter().enumerate() {
        let first = half.first as *const [E; COUNT];
        // SAFETY: the rows were checked and are aligned, the slots are planes of the frame; other threads' writes to
        // the same memory are the kernel's race, as for single lanes.
        unsafe {
            let targets: [*mut P; COUNT] = std::array::from_fn(|component| match access.slots[component] {
                NO_SLOT => unwanted.add(component).cast::<P>().add(index * HALF),
                slot => frame.add(slot as usize).cast::<P>().add(index * HALF),
            });
            if half.lanes < HALF {
                for lane in 0..half.lanes {
                    let elements = *first.byte_add(lane * half.step as usize);
                    for component in 0..COUNT {
                        *targets[component].add(lane) = P::from_element(elements[component]);
                    }
                }
            } else if half.step == 0 {
                let elements = *first;
                for component in 0..COUNT {
                    *targets[component].cast::<[P; HALF]>() = [P::from_element(elements[component]); HALF];
                }
            } else {
                load_row::<E, P, COUNT, VECTOR>(first, half.step as usize, targets);
            }
        }
    }
}

/// # Safety
/// The row can be read, and the targets have room for half a plane each; the vectors as for [`load`].
#[inline(always)]
unsafe fn load_row<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    first: *const [E; COUNT],
    step: usize,
    targets: [*mut P; COUNT],
) {
    // SAFETY: the caller vouches for all pointers. Elements and registers of four bytes are words for `turn`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR && COUNT == 4 && size_of::<E>() == 4 && size_of::<P>() == 4 {
            turn::split(first.cast(), step, std::array::from_fn(|component| targets[component].cast()));
            return;
        }
        if COUNT == 1 && step == size_of::<E>() {
            widen::<E, P, VECTOR>(first.cast(), targets[0]);
            return;
        }
        if step == size_of::<[E; COUNT]>() {
            let row = &*first.cast::<[[E; COUNT]; HALF]>();
            for (component, target) in targets.into_iter().enumerate() {
                let plane: [P; HALF] = std::array::from_fn(|lane| P::from_element(row[lane][component]));
                *target.cast::<[P; HALF]>() = plane;
            }
            return;
        }
        for (component, target) in targets.into_iter().enumerate() {
            let element = |lane: usize| *first.byte_add(lane * step).cast::<E>().add(component);
            let plane: [P; HALF] = std::array::from_fn(|lane| P::from_element(element(lane)));
            *target.cast::<[P; HALF]>() = plane;
        }
    }
}

/// Stores `COUNT` elements of each lane. Where lanes reach the same place, the last one's are there in the end.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn store<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    halves: &[Half; 2],
    access: &Access,
    frame: *mut u8,
) {
    for (index, half) in halves.iter().enumerate() {
        let first = half.first as *mut [E; COUNT];
        // SAFETY: as for loads.
        unsafe {
            let sources: [*const P; COUNT] = std::array::from_fn(|component| {
                frame.add(access.slots[component] as usize).cast::<P>().add(index * HALF).cast_const()
            });
            let elements = |lane: usize| -> [E; COUNT] {
                std::array::from_fn(|component| (*sources[component].add(lane)).to_element())
            };
            match half.lanes {
                0 => {}
                lanes if half.step == 0 => *first = elements(lanes - 1),
                HALF => store_row::<E, P, COUNT, VECTOR>(first, half.step as usize, sources),
                lanes => {
                    for lane in 0..lanes {
                        *first.byte_add(lane * half.step as usize) = elements(lane);
                    }
                }
            }
        }
    }
}

/// # Safety
/// The row can be written, and the sources hold half a plane each; the vectors as for [`load`].
#[inline(always)]
unsafe fn store_row<E: Element, P: Plane, const COUNT: usize, const VECTOR: bool>(
    first: *mut [E; COUNT],
    step: usize,
    sources: [*const P; COUNT],
) {
    // SAFETY: as for loading a row.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if VECTOR && COUNT == 4 && size_of::<E>() == 4 && size_of::<P>() == 4 {
            turn::join(std::array::from_fn(|component| sources[component].cast()), first.cast(), step);
            return;
        }
        if COUNT == 1 && step == size_of::<E>() {
            narrow::<E, P, VECTOR>(sources[0], first.cast());
            return;
        }
        let planes: [[P; HALF]; COUNT] = std::array::from_fn(|component| *sources[component].cast::<[P; HALF]>());
        let elements =
            |lane: usize| -> [E; COUNT] { std::array::from_fn(|component| planes[component][lane].to_element()) };
        if step == size_of::<[E; COUNT]>() {
            *first.cast::<[[E; COUNT]; HALF]>() = std::array::from_fn(elements);
            return;
        }
        for lane in 0..HALF {
            *first.byte_add(lane * step) = elements(lane);
        }
    }
}
