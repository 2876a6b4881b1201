//! Extended-precision arithmetic: operations that read or write the carry flag (PTX ISA: `CC.CF`).
//!
//! A subtraction adds the complement, as devices do: it sets the carry if nothing is borrowed, and `subc` subtracts one
//! more if the carry is clear. The PTX ISA describes a borrow in this flag, which is equivalent unless additions and
//! subtractions are mixed. NVRTC's division of 128-bit integers does mix them: its `addc` reads the carry of a
//! subtraction.

use super::integer::{Integer, by_word};
use super::lanes::{Lanes, carry};
use crate::ptx::types::Type;

pub fn carrying(name: &str, ty: Type) -> Option<Lanes> {
    match name {
        "add" => by_word!(ty, T => carry(|a: T, _: T, c: T, _| a.overflowing_add(c))),
        "addc" => by_word!(ty, T => carry(|a: T, _: T, c: T, carry| with_carry(a.to_i128() + c.to_i128(), carry))),
        "sub" => by_word!(ty, T => carry(|a: T, _: T, c: T, _| {
            let (difference, borrow) = a.overflowing_sub(c);
            (difference, !borrow)
        })),
        "subc" => by_word!(ty, T => carry(|a: T, _: T, c: T, carry| {
            let (first, one) = a.overflowing_sub(c);
            let (second, two) = first.overflowing_sub((!carry).into());
            (second, !(one | two))
        })),
        "mad.lo" => by_word!(ty, T => carry(|a: T, b: T, c: T, _| a.wrapping_mul(b).overflowing_add(c))),
        "mad.hi" => by_word!(ty, T => carry(|a: T, b: T, c: T, _| a.mul_high(b).overflowing_add(c))),
        "madc.lo" => by_word!(ty, T => carry(|a: T, b: T, c: T, carry| {
            with_carry(a.wrapping_mul(b).to_i128() + c.to_i128(), carry)
        })),
        "madc.hi" => by_word!(ty, T => carry(|a: T, b: T, c: T, carry| {
            with_carry(a.mul_high(b).to_i128() + c.to_i128(), carry)
        })),
        // The product is signed; the carry is that of the unsigned addition.
        "mad.hi.signed" => match ty.bits() {
            32 => Some(carry(|a: u32, b: u32, c: u32, _| ((a as i32).mul_high(b as i32) as u32).overflowing_add(c))),
            64 => Some(carry(|a: u64, b: u64, c: u64, _| ((a as i64).mul_high(b as i64) as u64).overflowing_add(c))),
            _ => None,
        },
        "madc.hi.signed" => match ty.bits() {
            32 => Some(carry(|a: u32, b: u32, c: u32, carry| {
                with_carry(i128::from((a as i32).mul_high(b as i32) as u32) + i128::from(c), carry)
            })),
            64 => Some(carry(|a: u64, b: u64, c: u64, carry| {
                with_carry(i128::from((a as i64).mul_high(b as i64) as u64) + i128::from(c), carry)
            })),
            _ => None,
        },
        _ => None,
    }
}

#[inline(always)]
fn with_carry<T: Integer>(sum: i128, carry: bool) -> (T, bool) {
    let sum = sum + i128::from(carry);
    (T::from_i128(sum), sum >> T::BITS != 0)
}
