//! Integers of every width, computed as `i128`.

use crate::kind::Kind;

/// Returns the integer that the bits represent.
pub fn int(kind: Kind, bits: u64) -> i128 {
    let value = i128::from(bits & kind.mask());
    let top = 1i128 << (kind.bits() - 1);
    if kind.is_signed() && value & top != 0 { value - 2 * top } else { value }
}

/// Returns the low bits of an integer.
pub fn wrap(kind: Kind, value: i128) -> u64 {
    value as u64 & kind.mask()
}

pub fn least(kind: Kind) -> i128 {
    if kind.is_signed() { -(1i128 << (kind.bits() - 1)) } else { 0 }
}

pub fn most(kind: Kind) -> i128 {
    if kind.is_signed() { (1i128 << (kind.bits() - 1)) - 1 } else { i128::from(kind.mask()) }
}

/// Clamps an integer to the range of the kind.
pub fn clamp(kind: Kind, value: i128) -> u64 {
    wrap(kind, value.clamp(least(kind), most(kind)))
}

/// Applies a function to both halves of words separately.
pub fn halves(x: &[u64], f: impl Fn(&[u64]) -> u64) -> u64 {
    let part = |shift: u32| f(&x.iter().map(|x| x >> shift & 0xffff).collect::<Vec<_>>()) & 0xffff;
    part(0) | part(16) << 16
}
