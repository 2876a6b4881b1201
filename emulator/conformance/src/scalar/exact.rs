//! Exact sums of binary numbers of any magnitude.

/// Bits below the binary point: twice what the smallest f64 needs, because products of two are added.
const POINT: i32 = 2200;
/// 64-bit limbs of a number: enough for the square of the largest f64 above the point.
const LIMBS: usize = 70;

/// A magnitude with `POINT` bits below the binary point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wide([u64; LIMBS]);

impl Wide {
    /// Returns `mantissa * 2^exponent`.
    pub fn new(mantissa: u128, exponent: i32) -> Wide {
        let place = usize::try_from(exponent + POINT).expect("no operand lies below the smallest product");
        let mut limbs = [0; LIMBS];
        for bit in (0..128).filter(|bit| mantissa >> bit & 1 != 0) {
            limbs[(place + bit) / 64] |= 1 << ((place + bit) % 64);
        }
        Wide(limbs)
    }

    pub fn plus(&self, other: &Wide) -> Wide {
        let (mut limbs, mut carry) = ([0; LIMBS], 0);
        for (limb, (a, b)) in limbs.iter_mut().zip(self.0.iter().zip(&other.0)) {
            let sum = u128::from(*a) + u128::from(*b) + carry;
            (*limb, carry) = (sum as u64, sum >> 64);
        }
        Wide(limbs)
    }

    /// Returns the difference to a magnitude that is not larger.
    pub fn minus(&self, other: &Wide) -> Wide {
        let (mut limbs, mut borrow) = ([0; LIMBS], false);
        for (limb, (a, b)) in limbs.iter_mut().zip(self.0.iter().zip(&other.0)) {
            let (once, under) = a.overflowing_sub(*b);
            let (twice, further) = once.overflowing_sub(borrow.into());
            (*limb, borrow) = (twice, under || further);
        }
        Wide(limbs)
    }

    pub fn is_less(&self, other: &Wide) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|limb| *limb == 0)
    }

    /// Returns the top 120 bits, their exponent, and whether lower bits were set.
    pub fn cut(&self) -> (u128, i32, bool) {
        const KEPT: usize = 120;
        let bit = |at: usize| self.0[at / 64] >> (at % 64) & 1;
        let top = (0..LIMBS * 64).rev().find(|at| bit(*at) != 0).unwrap_or(0);
        let low = (top + 1).saturating_sub(KEPT);
        let mantissa = (low..=top).rev().fold(0u128, |value, at| value << 1 | u128::from(bit(at)));
        (mantissa, low as i32 - POINT, (0..low).any(|at| bit(at) != 0))
    }
}
