//! Resolves the addresses of a warp to host addresses, after all checks.

use super::pattern::Pattern;
use crate::fault::FaultKind;
use crate::memory::Memory;
use crate::memory::confinement::Confinement;
use crate::ops::lanes::{FULL, LANES, Word, flags_of};
use crate::program::memory::{
    Address, FUNCTION_WINDOW, Index, LOCAL_WINDOW, PARAM_WINDOW, REMEMBERED_MAX, Reach, SHARED_WINDOW, WINDOW_BITS,
};
use crate::simt::texture::bound::Bound;

/// Addresses in a vector register. Loops handle this many at a time: the compiler unrolls loops over all lanes before
/// it vectorises, and then fails to vectorise some of them.
pub const WIDTH: usize = 4;

/// The memory that a warp can access.
#[derive(Debug)]
pub struct View<'a> {
    pub memory: &'a Memory,
    pub shared: *mut u8,
    pub shared_bytes: u64,
    pub params: &'a [u8],
    /// Cache of each memory instruction of the program.
    pub caches: Vec<Cache>,
    /// Patterns of address registers in the current stretch of code, by the numbers of
    /// [`crate::program::memory::Repeat`].
    pub patterns: [Pattern; REMEMBERED_MAX],
    pub textures: Bound,
    /// The memory that the kernel may access, if it is confined.
    pub confined: Option<Confined<'a>>,
}

/// The memory that a confined launch may access: its job's, its module's variables, and the workspace of a cooperative
/// launch.
#[derive(Clone, Copy, Debug)]
pub struct Confined<'a> {
    pub confinement: &'a Confinement,
    pub variables: &'a [u64],
    pub workspace: u64,
}

impl View<'_> {
    /// Reports whether the allocation that starts at `base` may be accessed.
    pub fn allows(&self, base: u64) -> bool {
        self.confined.is_none_or(|confined| {
            confined.confinement.allows(base) || confined.variables.contains(&base) || confined.workspace == base
        })
    }
}

/// What a memory instruction accessed last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cache {
    /// The range that contained its last address.
    pub range: Range,
    /// Host address of the start of its last row.
    pub reached: u64,
}

/// Addresses that may be accessed, and their host address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    start: u64,
    bytes: u64,
    host: u64,
}

/// Local memory of one warp: the bytes of each lane are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub start: *mut u8,
    pub lane_bytes: u64,
}

/// An access that is not allowed: the lane, the address and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub lane: usize,
    pub address: u64,
    pub bytes: u64,
    pub space: &'static str,
    pub kind: FaultKind,
    /// Lanes that may have failed too.
    pub among: u32,
}

/// Computes the lanes' addresses. Lanes that are off get the address of the first lane that is on, so that every
/// address can be used.
///
/// # Safety
/// The slot is inside the frame.
#[inline(always)]
pub unsafe fn addresses<const VECTOR: bool>(found: &mut [u64; LANES], address: &Address, frame: *mut u8, mask: u32) {
    // Addresses in shared and local memory have 32 bits; upper bits are dropped, as on devices.
    let kept = if matches!(address.reach, Reach::Shared | Reach::Local) { 0xffff_ffff } else { u64::MAX };
    // SAFETY: the caller vouches for the slot.
    unsafe {
        if let Some(index) = &address.index {
            indexed(found, address, index, frame);
            found.iter_mut().for_each(|one| *one &= kept);
        } else if address.wide {
            let plane = &*frame.add(address.slot as usize).cast::<[u64; LANES]>();
            for (part, plane) in found.chunks_exact_mut(WIDTH).zip(plane.chunks_exact(WIDTH)) {
                for lane in 0..WIDTH {
                    part[lane] = plane[lane].wrapping_add_signed(address.offset) & kept;
                }
            }
        } else {
            let plane = &*frame.add(address.slot as usize).cast::<[u32; LANES]>();
            for (part, plane) in found.chunks_exact_mut(WIDTH).zip(plane.chunks_exact(WIDTH)) {
                for lane in 0..WIDTH {
                    part[lane] = u64::from(plane[lane]).wrapping_add_signed(address.offset) & kept;
                }
            }
        }
    }
    if mask != FULL {
        let on = std::mem::replace(found, [found[mask.trailing_zeros() as usize & 31]; LANES]);
        // SAFETY: the caller vouches for the machine.
        unsafe { u64::merge::<VECTOR>(found, &on, mask) };
    }
}

/// Computes the addresses for the lanes' indices.
///
/// # Safety
/// The slots are inside the frame.
#[inline(always)]
unsafe fn indexed(found: &mut [u64; LANES], address: &Address, index: &Index, frame: *mut u8) {
    // SAFETY: the caller vouches for the slots.
    unsafe {
        let start = index.start(frame).wrapping_add_signed(address.offset);
        let plane = &*frame.add(address.slot as usize).cast::<[u32; LANES]>();
        for (part, plane) in found.chunks_exact_mut(WIDTH).zip(plane.chunks_exact(WIDTH)) {
            if index.signed {
                let factor = i64::from(index.factor as i32);
                for lane in 0..WIDTH {
                    part[lane] = start.wrapping_add_signed(i64::from(plane[lane] as i32) * factor);
                }
            } else {
                let factor = u64::from(index.factor);
                for lane in 0..WIDTH {
                    part[lane] = start.wrapping_add(u64::from(plane[lane]) * factor);
                }
            }
        }
    }
}

impl Index {
    /// Returns the address of index 0.
    ///
    /// # Safety
    /// The base is inside the frame.
    #[inline(always)]
    pub unsafe fn start(&self, frame: *mut u8) -> u64 {
        // SAFETY: the caller vouches for the slot; all lanes have equal values there.
        unsafe { *frame.add(self.base as usize).cast::<u64>() }
    }

    /// Returns the distance of an index from that address.
    pub fn distance(&self, index: u32) -> i64 {
        // A factor has the bits of its own type, so neither product exceeds 64 bits.
        if self.signed {
            i64::from(index as i32) * i64::from(self.factor as i32)
        } else {
            (u64::from(index) * u64::from(self.factor)) as i64
        }
    }
}

/// Combines the parts of a vector by OR.
#[inline(always)]
pub fn any_bit(parts: [u64; WIDTH]) -> u64 {
    parts[0] | parts[1] | parts[2] | parts[3]
}

/// Resolves the host addresses of the lanes, after all checks. Those of lanes that are off are readable.
///
/// # Safety
/// The slot is inside the frame; the view's and the local memory's pointers are live for their sizes.
#[inline(always)]
unsafe fn body<const VECTOR: bool>(
    found: &mut [u64; LANES],
    address: &Address,
    bytes: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: the caller vouches for the slot.
    unsafe { addresses::<VECTOR>(found, address, frame, mask) };
    let range = match address.reach {
        Reach::Shared => Range::shared(view),
        Reach::Local => Range { start: 0, bytes: local.lane_bytes, host: local.start as u64 },
        Reach::Global | Reach::Generic | Reach::Param => view.caches[address.cache as usize].range,
    };
    // An offset above the last valid one sets the top bit of one of the two values, because no range is so large that
    // it would otherwise. Combining bits is much faster than comparing 64-bit numbers.
    let last = range.bytes.wrapping_sub(bytes);
    let (mut outside, mut bits) = ([last; WIDTH], [0; WIDTH]);
    for part in found.chunks_exact(WIDTH) {
        for lane in 0..WIDTH {
            let offset = part[lane].wrapping_sub(range.start);
            outside[lane] |= offset | last.wrapping_sub(offset);
            bits[lane] |= part[lane];
        }
    }
    if any_bit(outside) >> 63 != 0 || any_bit(bits) & (bytes - 1) != 0 {
        return slow(found, address, bytes, view, local);
    }
    let by = range.host.wrapping_sub(range.start);
    if by != 0 {
        for part in found.chunks_exact_mut(WIDTH) {
            for one in part {
                *one = one.wrapping_add(by);
            }
        }
    }
    if address.reach == Reach::Local {
        for (lane, one) in found.iter_mut().enumerate() {
            *one += lane as u64 * local.lane_bytes;
        }
    }
    Ok(())
}

/// Resolves the host addresses of the lanes, after all checks, in the portable build. Those of lanes that are off are
/// readable.
///
/// # Safety
/// The slot is inside the frame; the view's and the local memory's pointers are live for their sizes.
pub unsafe fn portable(
    found: &mut [u64; LANES],
    address: &Address,
    bytes: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: the same contract.
    unsafe { body::<false>(found, address, bytes, frame, mask, view, local) }
}

/// Resolves host addresses like [`portable`], in the build for the machine's vectors.
///
/// # Safety
/// As for [`portable`], on a machine that has these vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
pub unsafe fn vector(
    found: &mut [u64; LANES],
    address: &Address,
    bytes: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    // SAFETY: the same contract.
    unsafe { body::<{ cfg!(target_arch = "x86_64") }>(found, address, bytes, frame, mask, view, local) }
}

/// Resolves each address separately. The range that contains the last one is cached for the next time.
#[cold]
#[inline(never)]
fn slow(found: &mut [u64; LANES], address: &Address, bytes: u64, view: &mut View, local: Local) -> Result<(), Refused> {
    let reach = address.reach;
    if let Some(lane) = found.iter().position(|one| one & (bytes - 1) != 0) {
        let (address, space) = (found[lane], space_of(reach, found[lane]));
        return Err(Refused { lane, address, bytes, space, kind: FaultKind::MisalignedAddress, among: FULL });
    }
    let mut range = view.caches[address.cache as usize].range;
    for (lane, one) in found.iter_mut().enumerate() {
        // The lanes of a warp mostly access one allocation, so it is looked up once.
        if !range.holds(*one, bytes) {
            let host = host_address(*one, reach, address.writes, bytes, lane, view, local)?;
            range = match space_of(reach, *one) {
                "global" => global_range(*one, address.writes, bytes, view).unwrap_or_default(),
                "shared" if reach == Reach::Generic => {
                    Range { start: SHARED_WINDOW, bytes: view.shared_bytes, host: view.shared as u64 }
                }
                // Local memory differs between lanes.
                _ => Range::default(),
            };
            *one = host;
            continue;
        }
        *one = one.wrapping_add(range.host.wrapping_sub(range.start));
    }
    view.caches[address.cache as usize].range = range;
    Ok(())
}

/// Computes the lanes' offsets in shared memory. Returns false unless the access names shared memory and all offsets
/// are valid. Lanes that are off get 0.
///
/// # Safety
/// The slot is inside the frame.
#[inline(always)]
pub unsafe fn shared_offsets(
    found: &mut [u32; LANES],
    address: &Address,
    bytes: u32,
    frame: *mut u8,
    mask: u32,
    view: &View,
) -> bool {
    if address.reach != Reach::Shared || view.shared_bytes < u64::from(bytes) {
        return false;
    }
    let mut start = 0u32;
    // SAFETY: the caller vouches for the slot.
    unsafe {
        let plane = frame.add(address.slot as usize);
        if let Some(index) = &address.index {
            // Offsets are computed modulo 2^32.
            start = index.start(frame) as u32;
            let indices = &*plane.cast::<[u32; LANES]>();
            for lane in 0..LANES {
                found[lane] = indices[lane].wrapping_mul(index.factor);
            }
        } else if address.wide {
            // Addresses in shared memory have 32 bits; upper bits are dropped.
            let addresses = &*plane.cast::<[u64; LANES]>();
            for lane in 0..LANES {
                found[lane] = addresses[lane] as u32;
            }
        } else {
            *found = *plane.cast::<[u32; LANES]>();
        }
    }
    let flags = flags_of(mask);
    let offset = start.wrapping_add(address.offset as u32);
    let (mut most, mut bits) = (0, 0);
    for lane in 0..LANES {
        found[lane] = found[lane].wrapping_add(offset) & flags[lane];
        most = found[lane].max(most);
        bits |= found[lane];
    }
    u64::from(most) <= view.shared_bytes - u64::from(bytes) && bits & (bytes - 1) == 0
}

impl Range {
    pub fn shared(view: &View) -> Range {
        Range { start: 0, bytes: view.shared_bytes, host: view.shared as u64 }
    }

    /// Returns the host address of `bytes` at `address`, if all of them may be accessed.
    #[inline(always)]
    pub fn host(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.start);
        let last = self.bytes.checked_sub(bytes)?;
        (offset <= last).then(|| self.host.wrapping_add(offset))
    }

    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && self.bytes - offset >= bytes
    }
}

pub fn space_of(reach: Reach, address: u64) -> &'static str {
    match (reach, address >> WINDOW_BITS << WINDOW_BITS) {
        (Reach::Shared, _) | (Reach::Generic, SHARED_WINDOW) => "shared",
        (Reach::Local, _) | (Reach::Generic, LOCAL_WINDOW) => "local",
        (Reach::Param, _) | (Reach::Generic, PARAM_WINDOW) => "parameter",
        (Reach::Generic, FUNCTION_WINDOW) => "code",
        _ => "global",
    }
}

fn global_range(address: u64, writes: bool, bytes: u64, view: &View) -> Option<Range> {
    let (base, size) = view.memory.find_for_kernel(address, writes)?;
    if !view.allows(base) {
        return None;
    }
    (address.checked_add(bytes)? <= base + size).then_some(Range { start: base, bytes: size, host: base })
}

/// Resolves the host address of `bytes` at one lane's address.
pub fn host_address(
    address: u64,
    reach: Reach,
    writes: bool,
    bytes: u64,
    lane: usize,
    view: &View,
    local: Local,
) -> Result<u64, Refused> {
    let space = space_of(reach, address);
    let offset = if reach == Reach::Generic { address & ((1 << WINDOW_BITS) - 1) } else { address };
    let within = |size: u64| offset.checked_add(bytes).is_some_and(|end| end <= size);
    match space {
        "shared" if within(view.shared_bytes) => Ok(view.shared as u64 + offset),
        "local" if within(local.lane_bytes) => Ok(local.start as u64 + lane as u64 * local.lane_bytes + offset),
        "parameter" if within(view.params.len() as u64) => Ok(view.params.as_ptr() as u64 + offset),
        "global" if global_range(address, writes, bytes, view).is_some() => Ok(address),
        "global" if view.confined.is_none() && view.memory.spans_mappings(address, bytes, writes) => Ok(address),
        _ => Err(Refused { lane, address, bytes, space, kind: FaultKind::IllegalAddress, among: FULL }),
    }
}
