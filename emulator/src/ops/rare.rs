//! Operations that programs seldom use. They are compiled once and run lane by lane: few of the hundreds of conversions
//! are worth the build time of two vectorised copies.

use super::lanes::{LANES, Lane, Lanes, Slots, conjure, load, store};

/// Makes `d = f(a)`.
pub fn rare<A: Lane, R: Lane, F: Fn(A) -> R + Copy>(_: F) -> Lanes {
    /// # Safety
    /// As for [`super::lanes::Run`].
    unsafe fn run<A: Lane, R: Lane, F: Fn(A) -> R + Copy>(frame: *mut u8, slots: &Slots, mask: u32) {
        let f = conjure::<F>();
        // SAFETY: the caller of the operation vouches for the frame and the slots.
        let a = unsafe { load::<A>(frame, slots.a) };
        let mut d = [R::zero(); LANES];
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            d[lane] = f(A::read(a[lane])).plane();
        }
        // SAFETY: the same contract.
        unsafe { store::<R, false>(frame, slots.d, &d, mask) };
    }
    Lanes { portable: run::<A, R, F>, vector: run::<A, R, F> }
}
