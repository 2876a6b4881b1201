//! Barrier objects in shared memory (`mbarrier`): 64 bits that count the pending arrivals, and the bytes that copies
//! have yet to transfer.
//!
//! The layout is our own, because PTX leaves it open. From the lowest bit on: the expected arrivals of each phase (20
//! bits), the pending arrivals (20), the transaction count (21, signed), the parity of the phase, and a mark. The state
//! that an arrival returns is the object before it. All lanes of a block run on one host thread, so plain reads and
//! writes suffice.

use super::access::{Local, Refused, View, resolve};
use crate::ops::lanes::{LANES, NO_SLOT};
use crate::program::warp::{PENDING_BIT, PENDING_MAX, Phase, PhaseAction};

const TRANSACTIONS_BIT: u32 = 40;
const TRANSACTIONS_MASK: u64 = (1 << 21) - 1;
/// Maximum absolute transaction count (PTX ISA, "mbarrier").
const TRANSACTIONS_MAX: i64 = (1 << 20) - 1;
const PARITY_BIT: u32 = 61;
const MARK_BIT: u32 = 62;
/// Marks an initialised object; zeroed memory and most other values do not have it.
const MARK: u64 = 0b10;

/// The reason why an operation failed.
#[derive(Debug)]
pub enum Failed {
    Access(Refused),
    /// Wrong use: the lane, and what it did wrong.
    Misuse(usize, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    /// Number of arrivals that the next phase waits for.
    expected: u32,
    pending: u32,
    transactions: i64,
    odd: bool,
}

impl Object {
    fn read(bits: u64) -> Option<Object> {
        let unused = 64 - 21;
        let transactions = bits >> TRANSACTIONS_BIT & TRANSACTIONS_MASK;
        (bits >> MARK_BIT == MARK).then_some(Object {
            expected: bits as u32 & PENDING_MAX,
            pending: (bits >> PENDING_BIT) as u32 & PENDING_MAX,
            transactions: (transactions << unused) as i64 >> unused,
            odd: bits >> PARITY_BIT & 1 != 0,
        })
    }

    fn bits(self) -> u64 {
        u64::from(self.expected)
            | u64::from(self.pending) << PENDING_BIT
            | (self.transactions as u64 & TRANSACTIONS_MASK) << TRANSACTIONS_BIT
            | u64::from(self.odd) << PARITY_BIT
            | MARK << MARK_BIT
    }

    fn expect(&mut self, count: i64) -> Result<(), &'static str> {
        self.transactions += count;
        let fits = (-TRANSACTIONS_MAX..=TRANSACTIONS_MAX).contains(&self.transactions);
        if fits { Ok(()) } else { Err("more transactions than an mbarrier can count") }
    }

    fn arrive(&mut self, count: u32, drops: bool) -> Result<(), &'static str> {
        if count == 0 || count > self.pending {
            return Err("more arrivals at an mbarrier than its phase expects");
        }
        self.pending -= count;
        if drops {
            self.expected = self.expected.checked_sub(count).ok_or("more arrivals dropped than an mbarrier expects")?;
        }
        Ok(())
    }

    /// Begins the next phase if nothing is pending; returns whether it did.
    fn complete(&mut self) -> bool {
        let over = self.pending == 0 && self.transactions == 0;
        if over {
            self.pending = self.expected;
            self.odd = !self.odd;
        }
        over
    }
}

/// Runs the operation lane by lane; returns the lanes that ask for a phase that is not complete.
///
/// # Safety
/// The slots are planes of the frame, and the view and the local memory are live.
pub unsafe fn run(operation: &Phase, frame: *mut u8, mask: u32, view: &mut View, local: Local) -> Result<u32, Failed> {
    let mut waiting = 0;
    // SAFETY: the caller vouches for frame, slots, view and local memory; every pointer is checked for 8 bytes and
    // aligned to them.
    unsafe {
        let mut pointers = [0; LANES];
        resolve(&mut pointers, &operation.address, 8, frame, mask, view, local).map_err(Failed::Access)?;
        let shared = view.shared as u64..view.shared as u64 + view.shared_bytes;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            if !shared.contains(&pointers[lane]) {
                return Err(Failed::Misuse(lane, "an mbarrier outside shared memory"));
            }
            let place = pointers[lane] as *mut u64;
            let plane = frame.add(operation.a as usize);
            let a = match operation.action {
                PhaseAction::Test { parity: false } => *plane.cast::<u64>().add(lane),
                _ => u64::from(*plane.cast::<u32>().add(lane)),
            };
            let old = *place;
            let (new, answer) = step(operation.action, old, a).map_err(|what| Failed::Misuse(lane, what))?;
            *place = new;
            if matches!(operation.action, PhaseAction::Test { .. }) {
                waiting |= u32::from(answer == 0) << lane;
            } else if operation.d != NO_SLOT {
                *frame.add(operation.d as usize).cast::<u64>().add(lane) = answer;
            }
        }
        if matches!(operation.action, PhaseAction::Test { .. }) && operation.d != NO_SLOT {
            crate::ops::lanes::store_mask(frame, operation.d, !waiting, mask);
        }
    }
    Ok(waiting)
}

/// Returns the object after the operation, and the result for the lane: the state before, or whether the phase is
/// complete.
fn step(action: PhaseAction, old: u64, a: u64) -> Result<(u64, u64), &'static str> {
    if action == PhaseAction::Init {
        let count = u32::try_from(a).ok().filter(|count| (1..=PENDING_MAX).contains(count));
        let count = count.ok_or("an mbarrier with an arrival count of 0 or above the maximum")?;
        let object = Object { expected: count, pending: count, transactions: 0, odd: false };
        return Ok((object.bits(), 0));
    }
    let mut object = Object::read(old).ok_or("an mbarrier that was not initialised")?;
    let answer = match action {
        PhaseAction::Init => old,
        // The arrival and its increment cancel out, but the count has to fit in between.
        PhaseAction::Look if object.pending == PENDING_MAX => {
            return Err("more arrivals at an mbarrier than it can count");
        }
        PhaseAction::Look => old,
        PhaseAction::Invalidate => return Ok((0, 0)),
        PhaseAction::Expect => {
            object.expect(a as i64)?;
            old
        }
        PhaseAction::Complete => {
            object.expect(-(a as i64))?;
            object.complete();
            old
        }
        PhaseAction::Arrive { drops, expects, completes } => {
            if expects {
                object.expect(a as i64)?;
            }
            object.arrive(if expects { 1 } else { a as u32 }, drops)?;
            if object.complete() && !completes {
                return Err("an arrival with .noComplete completes the phase of an mbarrier");
            }
            old
        }
        PhaseAction::Test { parity } => {
            let odd = if parity { a & 1 != 0 } else { a >> PARITY_BIT & 1 != 0 };
            u64::from(odd != object.odd)
        }
    };
    Ok((object.bits(), answer))
}

#[cfg(test)]
mod tests {
    use super::{Object, PhaseAction, TRANSACTIONS_MAX, step};

    #[test]
    fn an_object_keeps_what_it_is_told() {
        for transactions in [0, 1, -1, TRANSACTIONS_MAX, -TRANSACTIONS_MAX] {
            for (expected, pending, odd) in [(1, 1, false), (0xf_ffff, 0, true), (7, 0xf_ffff, false)] {
                let object = Object { expected, pending, transactions, odd };
                assert_eq!(Object::read(object.bits()), Some(object));
            }
        }
        assert_eq!(Object::read(0), None);
    }

    #[test]
    fn bytes_that_come_early_wait_for_those_who_expect_them() {
        let (object, _) = step(PhaseAction::Init, 0, 1).unwrap();
        let (object, _) = step(PhaseAction::Complete, object, 64).unwrap();
        let arrive = PhaseAction::Arrive { drops: false, expects: true, completes: true };
        let (object, state) = step(arrive, object, 96).unwrap();
        let test = PhaseAction::Test { parity: false };
        assert_eq!(step(test, object, state).unwrap().1, 0);
        let (object, _) = step(PhaseAction::Complete, object, 32).unwrap();
        assert_eq!(step(test, object, state).unwrap().1, 1);
        assert_eq!(step(PhaseAction::Test { parity: true }, object, 0).unwrap().1, 1);
        assert_eq!(step(PhaseAction::Test { parity: true }, object, 1).unwrap().1, 0);
    }
}
