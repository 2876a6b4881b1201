//! Integers of every width, as numbers without one.

use crate::kind::Kind;

/// The number that the bits stand for.
pub fn int(kind: Kind, bits: u64) -> i128 {
    let value = i128::from(bits & kind.mask());
    let top = 1i128 << (kind.bits() - 1);
    if kind.is_signed() && value & top != 0 { value - 2 * top } else { value }
}

/// The low bits of a number.
pub fn wrap(kind: Kind, value: i128) -> u64 {
    value as u64 & kind.mask()
}

pub fn least(kind: Kind) -> i128 {
    if kind.is_signed() { -(1i128 << (kind.bits() - 1)) } else { 0 }
}

pub fn most(kind: Kind) -> i128 {
    if kind.is_signed() { (1i128 << (kind.bits() - 1)) - 1 } else { i128::from(kind.mask()) }
}

/// The nearest number that the kind has.
pub fn clamp(kind: Kind, value: i128) -> u64 {
    wrap(kind, value.clamp(least(kind), most(kind)))
}

/// Applies a function to both halves of words.
pub fn halves(x: &[u64], f: impl Fn(&[u64]) -> u64) -> u64 {
    let part = |shift: u32| f(&x.iter().map(|x| x >> shift & 0xffff).collect::<Vec<_>>()) & 0xffff;
    part(0) | part(16) << 16
}
