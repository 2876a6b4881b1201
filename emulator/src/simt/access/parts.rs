//! Accesses of which a lane makes only a part, or nothing.

use super::reach::{Local, Refused, View, addresses, host_address, portable, space_of};
use crate::fault::FaultKind;
use crate::ops::lanes::{FULL, LANES, load_mask};
use crate::program::memory::{Address, BULK_ALIGN, Part};

/// The number of bytes that each lane accesses.
pub type Lengths = [u32; LANES];

impl Part {
    /// Returns how many of `bytes` bytes the lanes of `mask` access.
    ///
    /// # Safety
    /// The slot is inside the frame.
    pub unsafe fn lengths(self, bytes: u32, frame: *mut u8, mask: u32) -> Lengths {
        // SAFETY: the caller vouches for the slot, which is a plane of words or a predicate.
        unsafe {
            match self {
                Part::Length(slot) => {
                    let lengths = *frame.add(slot as usize).cast::<Lengths>();
                    lengths_in(mask, |lane| lengths[lane].min(bytes))
                }
                Part::Unless(slot, negated) => {
                    let holds = load_mask(frame, slot) ^ if negated { FULL } else { 0 };
                    lengths_in(mask & !holds, |_| bytes)
                }
                Part::Bulk(slot) => {
                    let lengths = *frame.add(slot as usize).cast::<Lengths>();
                    lengths_in(mask, |lane| lengths[lane])
                }
            }
        }
    }
}

/// Returns the lengths for the lanes of `mask`; the other lanes access nothing.
pub fn lengths_in(mask: u32, length: impl Fn(usize) -> u32) -> Lengths {
    std::array::from_fn(|lane| if mask >> lane & 1 != 0 { length(lane) } else { 0 })
}

/// Returns the lanes whose lengths fit.
fn lanes(lengths: &Lengths, fits: impl Fn(u32) -> bool) -> u32 {
    lengths.iter().enumerate().fold(0, |found, (lane, length)| found | u32::from(fits(*length)) << lane)
}

/// Resolves the host addresses of the lanes that access something, after all checks. Each lane is checked for its own
/// length, but for the alignment of all `bytes`.
///
/// # Safety
/// As for [`portable`].
pub unsafe fn resolve_parts(
    found: &mut [u64; LANES],
    address: &Address,
    bytes: u32,
    lengths: &Lengths,
    frame: *mut u8,
    view: &mut View,
    local: Local,
) -> Result<(), Refused> {
    let reading = lanes(lengths, |length| length > 0);
    if reading == 0 {
        return Ok(());
    }
    // SAFETY: the same contract.
    unsafe {
        // Usually all bytes are accessible, including those that the load does not need.
        if portable(found, address, bytes.into(), frame, reading, view, local).is_ok() {
            return Ok(());
        }
        addresses::<false>(found, address, frame, reading);
    }
    one_by_one(found, address, bytes, lengths, view, local)
}

/// Resolves the host addresses of a bulk copy, after all checks.
///
/// # Safety
/// As for [`portable`].
pub unsafe fn resolve_bulk(
    found: &mut [u64; LANES],
    address: &Address,
    lengths: &Lengths,
    frame: *mut u8,
    view: &View,
    local: Local,
) -> Result<(), Refused> {
    let copying = lanes(lengths, |length| length > 0);
    if copying == 0 {
        return Ok(());
    }
    // SAFETY: the same contract.
    unsafe { addresses::<false>(found, address, frame, copying) };
    one_by_one(found, address, BULK_ALIGN, lengths, view, local)
}

/// Resolves each lane's address separately.
#[cold]
fn one_by_one(
    found: &mut [u64; LANES],
    address: &Address,
    bytes: u32,
    lengths: &Lengths,
    view: &View,
    local: Local,
) -> Result<(), Refused> {
    let (bytes, reach, writes) = (u64::from(bytes), address.reach, address.writes);
    let reading = (0..LANES).filter(|lane| lengths[*lane] > 0);
    if let Some(lane) = reading.clone().find(|lane| !found[*lane].is_multiple_of(bytes)) {
        let (address, space) = (found[lane], space_of(reach, found[lane]));
        let among = lanes(lengths, |length| length > 0);
        return Err(Refused { lane, address, bytes, space, kind: FaultKind::MisalignedAddress, among });
    }
    for lane in reading {
        let length = lengths[lane];
        found[lane] = host_address(found[lane], reach, writes, length.into(), lane, view, local)
            .map_err(|refused| Refused { among: lanes(lengths, |other| other == length), ..refused })?;
    }
    Ok(())
}
