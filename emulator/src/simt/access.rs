//! Loads and stores of whole warps. Every address is checked against what it may reach before the first byte moves.

use crate::fault::FaultKind;
use crate::lower::code::{
    Access, Address, FUNCTION_WINDOW, LOCAL_WINDOW, NO_SLOT, PARAM_WINDOW, Reach, SHARED_WINDOW, WINDOW_BITS,
};
use crate::memory::Memory;
use crate::ops::lanes::{FULL, LANES, Lane};
use crate::ptx::types::Type;

/// What a warp can reach.
#[derive(Debug)]
pub struct View<'a> {
    pub memory: &'a Memory,
    pub shared: *mut u8,
    pub shared_bytes: u64,
    pub params: &'a [u8],
    /// The last range found, for each memory instruction of the program.
    pub caches: Vec<(u64, u64)>,
}

/// Local memory of one warp: each lane's bytes in a row.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub start: *mut u8,
    pub lane_bytes: u64,
}

/// An access that may not be made: by which lane, where, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub lane: usize,
    pub address: u64,
    pub bytes: u64,
    pub space: &'static str,
    pub kind: FaultKind,
}

/// A load or a store of one element type, in its two builds.
#[derive(Clone, Copy, Debug)]
pub struct AccessRun {
    pub portable: Move,
    pub vector: Move,
}

/// # Safety
/// The frame and the slots are as for the operations on lanes; the view's pointers are live for its sizes.
pub type Move = unsafe fn(&Access, *mut u8, u32, &mut View, Local) -> Result<(), Refused>;

/// The lanes' addresses. Lanes that are off repeat the address of the first that is on, so that every address can be
/// used.
///
/// # Safety
/// The slot lies inside the frame.
#[inline(always)]
unsafe fn addresses(address: &Address, frame: *mut u8, mask: u32) -> [u64; LANES] {
    let mut found = [0u64; LANES];
    // SAFETY: the caller vouches for the slot.
    unsafe {
        if address.wide {
            let plane = &*frame.add(address.slot as usize).cast::<[u64; LANES]>();
            for lane in 0..LANES {
                found[lane] = plane[lane].wrapping_add_signed(address.offset);
            }
        } else {
            let plane = &*frame.add(address.slot as usize).cast::<[u32; LANES]>();
            for lane in 0..LANES {
                found[lane] = u64::from(plane[lane]).wrapping_add_signed(address.offset);
            }
        }
    }
    if mask != FULL {
        let first = found[mask.trailing_zeros() as usize & 31];
        for (lane, one) in found.iter_mut().enumerate() {
            *one = if mask >> lane & 1 != 0 { *one } else { first };
        }
    }
    found
}

/// The host addresses that the lanes of `mask` reach, after all checks.
///
/// # Safety
/// As for [`Move`].
#[inline(always)]
pub unsafe fn resolve(
    address: &Address,
    bytes: u64,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<[u64; LANES], Refused> {
    // SAFETY: the caller vouches for the slot.
    let mut found = unsafe { addresses(address, frame, mask) };
    // Addresses in shared and local memory have 32 bits: what is above is dropped, as devices do.
    if matches!(address.reach, Reach::Shared | Reach::Local) {
        for one in &mut found {
            *one &= 0xffff_ffff;
        }
    }
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for one in found {
        low = low.min(one);
        high = high.max(one);
        bits |= one;
    }
    if bits & (bytes - 1) != 0 {
        return Err(misaligned(&found, bytes, address.reach));
    }
    match address.reach {
        Reach::Global => global(&found, low, high, bytes, address.cache, view)?,
        Reach::Generic if high >> WINDOW_BITS == 0 => global(&found, low, high, bytes, address.cache, view)?,
        Reach::Shared if high + bytes <= view.shared_bytes => {
            let base = view.shared as u64;
            for one in &mut found {
                *one += base;
            }
        }
        Reach::Local if high + bytes <= local.lane_bytes => {
            for (lane, one) in found.iter_mut().enumerate() {
                *one += local.start as u64 + lane as u64 * local.lane_bytes;
            }
        }
        _ => one_by_one(&mut found, address.reach, bytes, view, local)?,
    }
    if mask != FULL {
        // A lane that is off has the address of another: in local memory that is the other's.
        let first = found[mask.trailing_zeros() as usize & 31];
        for (lane, one) in found.iter_mut().enumerate() {
            *one = if mask >> lane & 1 != 0 { *one } else { first };
        }
    }
    Ok(found)
}

#[cold]
fn misaligned(found: &[u64; LANES], bytes: u64, reach: Reach) -> Refused {
    let lane = found.iter().position(|one| one & (bytes - 1) != 0).unwrap_or(0);
    refused(found[lane], lane, bytes, space_of(reach, found[lane]), FaultKind::MisalignedAddress)
}

fn space_of(reach: Reach, address: u64) -> &'static str {
    match (reach, address >> WINDOW_BITS << WINDOW_BITS) {
        (Reach::Shared, _) | (Reach::Generic, SHARED_WINDOW) => "shared",
        (Reach::Local, _) | (Reach::Generic, LOCAL_WINDOW) => "local",
        (Reach::Param, _) | (Reach::Generic, PARAM_WINDOW) => "parameter",
        (Reach::Generic, FUNCTION_WINDOW) => "code",
        _ => "global",
    }
}

fn refused(address: u64, lane: usize, bytes: u64, space: &'static str, kind: FaultKind) -> Refused {
    Refused { lane, address, bytes, space, kind }
}

/// Checks global addresses: all in the range that this instruction found last, or each for itself.
#[inline(always)]
fn global(found: &[u64; LANES], low: u64, high: u64, bytes: u64, cache: u32, view: &mut View) -> Result<(), Refused> {
    let (start, end) = view.caches[cache as usize];
    // The windows of other spaces keep `high + bytes` from wrapping for addresses that can be valid at all.
    if low >= start && high.wrapping_add(bytes) <= end && high < u64::MAX - bytes {
        return Ok(());
    }
    global_slow(found, bytes, cache, view)
}

#[cold]
#[inline(never)]
fn global_slow(found: &[u64; LANES], bytes: u64, cache: u32, view: &mut View) -> Result<(), Refused> {
    let mut range = view.caches[cache as usize];
    for (lane, &address) in found.iter().enumerate() {
        if !(address >= range.0 && address.saturating_add(bytes) <= range.1) {
            range = global_range(address, bytes, view.memory).ok_or(refused(
                address,
                lane,
                bytes,
                "global",
                FaultKind::IllegalAddress,
            ))?;
        }
    }
    view.caches[cache as usize] = range;
    Ok(())
}

fn global_range(address: u64, bytes: u64, memory: &Memory) -> Option<(u64, u64)> {
    let (base, size) = memory.find(address)?;
    (address.checked_add(bytes)? <= base + size).then_some((base, base + size))
}

/// Each address by its own space.
#[cold]
#[inline(never)]
fn one_by_one(
    found: &mut [u64; LANES],
    reach: Reach,
    bytes: u64,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    for (lane, one) in found.iter_mut().enumerate() {
        *one = host_address(*one, reach, bytes, lane, view, local)?;
    }
    Ok(())
}

/// The host address of `bytes` at one lane's address.
pub fn host_address(
    address: u64,
    reach: Reach,
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
        "global" if global_range(address, bytes, view.memory).is_some() => Ok(address),
        _ => Err(refused(address, lane, bytes, space, FaultKind::IllegalAddress)),
    }
}

/// An element in memory. The trait is over its bytes; what the register makes of it is the plane's business.
pub trait Element: Copy {
    fn word(self) -> u32;
    fn double(self) -> u64;
    fn of_word(plane: u32) -> Self;
    fn of_double(plane: u64) -> Self;
}

macro_rules! element {
    ($($t:ty)*) => {$(
        impl Element for $t {
            #[inline(always)] fn word(self) -> u32 { self as u32 }
            #[inline(always)] fn double(self) -> u64 { self as u64 }
            #[inline(always)] fn of_word(plane: u32) -> Self { plane as $t }
            #[inline(always)] fn of_double(plane: u64) -> Self { plane as $t }
        }
    )*};
}

element! { u8 i8 u16 i16 u32 i32 u64 }

/// A plane of registers that elements go to or come from.
pub trait Plane: Lane {
    fn from_element<E: Element>(element: E) -> Self;
    fn to_element<E: Element>(self) -> E;
}

impl Plane for u32 {
    #[inline(always)]
    fn from_element<E: Element>(element: E) -> u32 {
        element.word()
    }
    #[inline(always)]
    fn to_element<E: Element>(self) -> E {
        E::of_word(self)
    }
}

impl Plane for u64 {
    #[inline(always)]
    fn from_element<E: Element>(element: E) -> u64 {
        element.double()
    }
    #[inline(always)]
    fn to_element<E: Element>(self) -> E {
        E::of_double(self)
    }
}

/// Whether lane `n` reaches `n` elements behind lane 0.
#[inline(always)]
fn contiguous(pointers: &[u64; LANES], bytes: u64) -> bool {
    let mut differs = 0;
    for (lane, pointer) in pointers.iter().enumerate() {
        differs |= pointer ^ pointers[0].wrapping_add(lane as u64 * bytes);
    }
    differs == 0
}

#[inline(always)]
unsafe fn load<E: Element, P: Plane>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let size = size_of::<E>() as u64;
    let bytes = size * u64::from(access.count);
    // SAFETY: every pointer was checked for the bytes of the access and is aligned to them; the slots are planes of
    // the frame. Other threads may write the same memory: the kernel's race, of whole elements on every processor
    // that this runs on.
    unsafe {
        let pointers = resolve(&access.address, bytes, frame, mask, view, local)?;
        if access.count == 1 && contiguous(&pointers, size) {
            let row = &*(pointers[0] as *const [E; LANES]);
            let mut values = [P::from_element(row[0]); LANES];
            for lane in 0..LANES {
                values[lane] = P::from_element(row[lane]);
            }
            if access.slots[0] != NO_SLOT {
                put(frame, access.slots[0], &values, mask);
            }
            return Ok(());
        }
        if access.count == 1 {
            let mut values = [P::from_element(*(pointers[0] as *const E)); LANES];
            for (value, pointer) in values.iter_mut().zip(&pointers) {
                *value = P::from_element(*(*pointer as *const E));
            }
            if access.slots[0] != NO_SLOT {
                put(frame, access.slots[0], &values, mask);
            }
            return Ok(());
        }
        // All components are read before any register is written: the address may be one of them.
        let mut values = [[P::from_element(*(pointers[0] as *const E)); LANES]; 4];
        let count = access.count as usize;
        for (index, plane) in values.iter_mut().take(count).enumerate() {
            for (value, pointer) in plane.iter_mut().zip(&pointers) {
                *value = P::from_element(*(*pointer as *const E).add(index));
            }
        }
        for (plane, slot) in values.iter().zip(access.slots).take(count) {
            if slot != NO_SLOT {
                put(frame, slot, plane, mask);
            }
        }
    }
    Ok(())
}

/// # Safety
/// The slot is a plane of the frame.
#[inline(always)]
unsafe fn put<P: Plane>(frame: *mut u8, slot: u32, values: &[P; LANES], mask: u32) {
    // SAFETY: the caller vouches for the slot.
    let target = unsafe { &mut *frame.add(slot as usize).cast::<[P; LANES]>() };
    if mask == FULL {
        *target = *values;
    } else {
        for lane in 0..LANES {
            target[lane] = if mask >> lane & 1 != 0 { values[lane] } else { target[lane] };
        }
    }
}

#[inline(always)]
unsafe fn store<E: Element, P: Plane>(
    access: &Access,
    frame: *mut u8,
    mask: u32,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let size = size_of::<E>() as u64;
    let bytes = size * u64::from(access.count);
    // SAFETY: as for loads.
    unsafe {
        let pointers = resolve(&access.address, bytes, frame, mask, view, local)?;
        if access.count == 1 && mask == FULL && contiguous(&pointers, size) {
            let values = &*frame.add(access.slots[0] as usize).cast::<[P; LANES]>();
            let row = &mut *(pointers[0] as *mut [E; LANES]);
            for lane in 0..LANES {
                row[lane] = values[lane].to_element();
            }
            return Ok(());
        }
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            for index in 0..access.count as usize {
                let values = frame.add(access.slots[index] as usize).cast::<P>();
                *(pointers[lane] as *mut E).add(index) = (*values.add(lane)).to_element();
            }
        }
    }
    Ok(())
}

macro_rules! builds {
    ($maker:ident, $body:ident) => {
        fn $maker<E: Element, P: Plane>() -> AccessRun {
            unsafe fn portable<E: Element, P: Plane>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Refused> {
                // SAFETY: the same contract.
                unsafe { $body::<E, P>(access, frame, mask, view, local) }
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn vector<E: Element, P: Plane>(
                access: &Access,
                frame: *mut u8,
                mask: u32,
                view: &mut View,
                local: Local,
            ) -> Result<(), Refused> {
                // SAFETY: the same contract.
                unsafe { $body::<E, P>(access, frame, mask, view, local) }
            }
            AccessRun { portable: portable::<E, P>, vector: vector::<E, P> }
        }
    };
}

builds!(loads, load);
builds!(stores, store);

/// A load of elements of type `ty` to registers of 64 bits, where `wide`, or 32.
pub fn load_run(ty: Type, wide: bool) -> AccessRun {
    match (ty, wide) {
        (Type::S8, false) => loads::<i8, u32>(),
        (Type::S8, true) => loads::<i8, u64>(),
        (Type::S16, false) => loads::<i16, u32>(),
        (Type::S16, true) => loads::<i16, u64>(),
        (Type::S32, true) => loads::<i32, u64>(),
        _ => match (ty.bytes(), wide) {
            (1, false) => loads::<u8, u32>(),
            (1, true) => loads::<u8, u64>(),
            (2, false) => loads::<u16, u32>(),
            (2, true) => loads::<u16, u64>(),
            (4, false) => loads::<u32, u32>(),
            (4, true) => loads::<u32, u64>(),
            _ => loads::<u64, u64>(),
        },
    }
}

/// A store of elements of type `ty` from registers of 64 bits, where `wide`, or 32.
pub fn store_run(ty: Type, wide: bool) -> AccessRun {
    match (ty.bytes(), wide) {
        (1, false) => stores::<u8, u32>(),
        (1, true) => stores::<u8, u64>(),
        (2, false) => stores::<u16, u32>(),
        (2, true) => stores::<u16, u64>(),
        (4, false) => stores::<u32, u32>(),
        (4, true) => stores::<u32, u64>(),
        _ => stores::<u64, u64>(),
    }
}
