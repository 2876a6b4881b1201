//! Accesses of which a lane makes a part, or nothing at all.

use super::reach::{Local, Refused, View, addresses, host_address, portable, space_of};
use crate::fault::FaultKind;
use crate::lower::code::{Address, Part, Reach};
use crate::ops::lanes::{FULL, LANES, load_mask};

/// The bytes that each lane accesses.
pub type Lengths = [u32; LANES];

impl Part {
    /// What the lanes of `mask` access of `bytes` bytes.
    ///
    /// # Safety
    /// The slot lies inside the frame.
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
            }
        }
    }
}

/// Lengths in the lanes of `mask`; the others access nothing.
pub fn lengths_in(mask: u32, length: impl Fn(usize) -> u32) -> Lengths {
    std::array::from_fn(|lane| if mask >> lane & 1 != 0 { length(lane) } else { 0 })
}

/// The lanes whose lengths fit.
fn lanes(lengths: &Lengths, fits: impl Fn(u32) -> bool) -> u32 {
    lengths.iter().enumerate().fold(0, |found, (lane, length)| found | u32::from(fits(*length)) << lane)
}

/// Finds the host addresses of the lanes that access something, after all checks. Each is checked for its own length,
/// but aligned to all `bytes`.
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
    let whole = lanes(lengths, |length| length == bytes);
    let some = lanes(lengths, |length| 0 < length && length < bytes);
    let mut resolve = || {
        // SAFETY: the same contract.
        unsafe {
            if whole != 0 {
                portable(found, address, bytes.into(), frame, whole, view, local)?;
            }
            if some != 0 {
                let mut wanted = [0; LANES];
                addresses::<false>(&mut wanted, address, frame, some);
                let lengths = lengths_in(some, |lane| lengths[lane]);
                one_by_one(found, &wanted, address.reach, bytes, &lengths, view, local)?;
            }
        }
        Ok(())
    };
    resolve().map_err(|refused: Refused| {
        let among = match refused.kind {
            FaultKind::MisalignedAddress => whole | some,
            _ => lanes(lengths, |length| u64::from(length) == refused.bytes),
        };
        Refused { among, ..refused }
    })
}

/// The same for lanes whose lengths differ.
#[cold]
fn one_by_one(
    found: &mut [u64; LANES],
    wanted: &[u64; LANES],
    reach: Reach,
    bytes: u32,
    lengths: &Lengths,
    view: &View,
    local: Local,
) -> Result<(), Refused> {
    for lane in (0..LANES).filter(|lane| lengths[*lane] > 0) {
        let (address, bytes) = (wanted[lane], u64::from(bytes));
        if !address.is_multiple_of(bytes) {
            let (space, kind) = (space_of(reach, address), FaultKind::MisalignedAddress);
            return Err(Refused { lane, address, bytes, space, kind, among: FULL });
        }
        found[lane] = host_address(address, reach, lengths[lane].into(), lane, view, local)?;
    }
    Ok(())
}
