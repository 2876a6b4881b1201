//! Products: gathers factors from the registers and scatters sums back.

use crate::ops::exact::Rounding;
use crate::ops::float::{canonical, canonical64};
use crate::ops::half::Small;
use crate::ops::matrix::element::{Element, brain, e4m3, e5m2, half, tensor};
use crate::ops::matrix::layout::{Pattern, Shape};
use crate::ops::matrix::product::{self, BitOp};
use crate::program::matrix::{Arithmetic, Fragment, Multiply};
use crate::simt::frames::Registers;
use crate::simt::matrix::Room;
use crate::simt::matrix::tiles;

/// Maximum elements of a factor (m16n8k64 for integers; m16n8k32 and m32n8k16 for floats) and of a sum.
const INTEGERS_MAX: usize = 1024;
const FLOATS_MAX: usize = 512;
const SUMS_MAX: usize = 256;

type Integers<T> = [T; INTEGERS_MAX];
type Factors = [f64; FLOATS_MAX];
type Sums<T> = [T; SUMS_MAX];

/// Buffers for the matrices of a floating-point product.
#[derive(Debug)]
pub struct Floats {
    a: Factors,
    b: Factors,
    c: Sums<f64>,
}

impl Room {
    #[inline(always)]
    fn floats(&mut self) -> &mut Floats {
        self.0.get_or_insert_with(|| Box::new(Floats { a: [0.0; _], b: [0.0; _], c: [0.0; _] }))
    }
}

/// # Safety
/// With `VECTOR`, the machine has what the vector build needs.
#[inline(always)]
unsafe fn body<const VECTOR: bool>(product: &Multiply, registers: &mut Registers, room: &mut Room) {
    match product.arithmetic {
        // SAFETY: the same contract.
        Arithmetic::Floats => unsafe { floats::<VECTOR>(product, registers, room.floats()) },
        Arithmetic::Doubles(rounding) => doubles(product, registers, rounding),
        Arithmetic::Integers { saturate } => integers(product, registers, saturate),
        Arithmetic::Bits(op) => bits(product, registers, op),
    }
}

/// Runs a product in the portable build.
pub fn portable(product: &Multiply, registers: &mut Registers, room: &mut Room) {
    // SAFETY: this build needs nothing of the machine.
    unsafe { body::<false>(product, registers, room) }
}

/// Runs a product like [`portable`], in the build for the machine's vectors, which have to exist.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
pub fn vector(product: &Multiply, registers: &mut Registers, room: &mut Room) {
    // SAFETY: the caller vouches for the machine.
    unsafe { body::<{ cfg!(target_arch = "x86_64") }>(product, registers, room) }
}

/// Gathers a matrix from the registers.
#[inline(always)]
fn gather<T: Copy + Default, const N: usize>(
    fragment: &Fragment,
    registers: &mut Registers,
    matrix: &mut [T; N],
    decode: impl Fn(u32) -> T,
) {
    match fragment.layout.pattern {
        Pattern::Rows(columns) => {
            for (number, start) in tiles::starts(fragment) {
                let words = tiles::from_registers(fragment, registers, number);
                tiles::put(&mut matrix[start..], columns, &tiles::each(&words, &decode));
            }
        }
        Pattern::Columns(columns) => {
            for (number, start) in tiles::starts(fragment) {
                let words = tiles::from_registers(fragment, registers, number);
                tiles::put(&mut matrix[start..], columns, &tiles::turned(&tiles::each(&words, &decode)));
            }
        }
        Pattern::None => gather_single(fragment, registers, matrix, decode),
    }
}

/// Gathers a matrix element by element.
#[inline(always)]
fn gather_single<T, const N: usize>(
    fragment: &Fragment,
    registers: &mut Registers,
    matrix: &mut [T; N],
    decode: impl Fn(u32) -> T,
) {
    let bits = 32 / fragment.per;
    for (slot, numbers) in fragment.slots.iter().zip(fragment.layout.elements.chunks_exact(fragment.per)) {
        let words = registers.words(*slot);
        for (within, number) in numbers.iter().enumerate() {
            for (word, lane) in words.iter().zip(&fragment.layout.lanes) {
                matrix[usize::from(lane + number)] = decode(word >> (within * bits));
            }
        }
    }
}

/// Scatters a matrix to the registers.
#[inline(always)]
fn scatter<T: Copy + Default, const N: usize>(
    fragment: &Fragment,
    registers: &mut Registers,
    matrix: &[T; N],
    encode: impl Fn(T) -> u32,
) {
    match fragment.layout.pattern {
        Pattern::Rows(columns) => {
            for (number, start) in tiles::starts(fragment) {
                let words = tiles::each(&tiles::take(&matrix[start..], columns), &encode);
                tiles::to_registers(fragment, registers, number, &words);
            }
        }
        Pattern::Columns(_) | Pattern::None => scatter_single(fragment, registers, matrix, encode),
    }
}

/// Scatters a matrix element by element.
#[inline(always)]
fn scatter_single<T: Copy, const N: usize>(
    fragment: &Fragment,
    registers: &mut Registers,
    matrix: &[T; N],
    encode: impl Fn(T) -> u32,
) {
    let bits = 32 / fragment.per;
    for (slot, numbers) in fragment.slots.iter().zip(fragment.layout.elements.chunks_exact(fragment.per)) {
        let words = registers.words(*slot);
        words.fill(0);
        for (within, number) in numbers.iter().enumerate() {
            for (word, lane) in words.iter_mut().zip(&fragment.layout.lanes) {
                *word |= encode(matrix[usize::from(lane + number)]) << (within * bits);
            }
        }
    }
}

/// Returns A, B and C of each independent product. An iterator and not a closure parameter, because the body of a
/// closure would not be compiled for the machine's vectors.
#[inline(always)]
fn each<'a, T, S>(
    product: &Multiply,
    a: &'a [T],
    b: &'a [T],
    c: &'a mut [S],
) -> impl Iterator<Item = ((&'a [T], &'a [T]), &'a mut [S])> {
    let Shape { m, n, k } = product.shape;
    let [a_size, b_size, c_size] = [m * k, k * n, m * n].map(|size| size as usize);
    let factors = a.chunks_exact(a_size).zip(b.chunks_exact(b_size));
    factors.zip(c.chunks_exact_mut(c_size)).take(product.count)
}

#[inline(always)]
fn gather_floats<const N: usize>(fragment: &Fragment, registers: &mut Registers, matrix: &mut [f64; N]) {
    match fragment.element {
        Element::F16 => gather(fragment, registers, matrix, half),
        Element::Bf16 => gather(fragment, registers, matrix, brain),
        Element::Tf32 => gather(fragment, registers, matrix, tensor),
        Element::E4m3 => gather(fragment, registers, matrix, e4m3),
        Element::E5m2 => gather(fragment, registers, matrix, e5m2),
        Element::F32 => gather(fragment, registers, matrix, |bits| f32::from_bits(bits).into()),
        _ => unreachable!("lowering makes no other product of floats"),
    }
}

/// # Safety
/// With `VECTOR`, the machine has what the vector build needs.
#[inline(always)]
unsafe fn floats<const VECTOR: bool>(product: &Multiply, registers: &mut Registers, room: &mut Floats) {
    let Floats { a, b, c } = room;
    gather_floats(&product.a, registers, a);
    gather_floats(&product.b, registers, b);
    gather_floats(&product.c, registers, c);
    for ((a, b), c) in each(product, a, b, c) {
        // SAFETY: the same contract.
        unsafe { product::floats::<VECTOR>(product.shape, a, b, c) };
    }
    match product.d.element {
        Element::F16 => scatter(&product.d, registers, c, |sum| half::f16::rounded(sum).to_bits().into()),
        _ => scatter(&product.d, registers, c, |sum| canonical(sum as f32).to_bits()),
    }
}

#[inline(always)]
fn doubles(product: &Multiply, registers: &mut Registers, rounding: Rounding) {
    let (mut a, mut b, mut c): (Factors, Factors, Sums<f64>) = ([0.0; _], [0.0; _], [0.0; _]);
    gather_doubles(&product.a, registers, &mut a);
    gather_doubles(&product.b, registers, &mut b);
    gather_doubles(&product.c, registers, &mut c);
    for ((a, b), c) in each(product, &a, &b, &mut c) {
        product::doubles(product.shape, a, b, c, rounding);
    }
    let layout = &product.d.layout;
    for (slot, number) in product.d.slots.iter().zip(&layout.elements) {
        for (double, lane) in registers.doubles(*slot).iter_mut().zip(&layout.lanes) {
            *double = canonical64(c[usize::from(lane + number)]).to_bits();
        }
    }
}

#[inline(always)]
fn gather_doubles<const N: usize>(fragment: &Fragment, registers: &mut Registers, matrix: &mut [f64; N]) {
    for (slot, number) in fragment.slots.iter().zip(&fragment.layout.elements) {
        for (double, lane) in registers.doubles(*slot).iter().zip(&fragment.layout.lanes) {
            matrix[usize::from(lane + number)] = f64::from_bits(*double);
        }
    }
}

#[inline(always)]
fn gather_integers(fragment: &Fragment, registers: &mut Registers, matrix: &mut Integers<i32>) {
    match fragment.element {
        Element::U8 => gather(fragment, registers, matrix, |bits| i32::from(bits as u8)),
        Element::S8 => gather(fragment, registers, matrix, |bits| i32::from(bits as i8)),
        Element::U4 => gather(fragment, registers, matrix, |bits| (bits & 15) as i32),
        Element::S4 => gather(fragment, registers, matrix, |bits| (bits << 28) as i32 >> 28),
        _ => unreachable!("lowering makes no other product of integers"),
    }
}

#[inline(always)]
fn integers(product: &Multiply, registers: &mut Registers, saturate: bool) {
    let (mut a, mut b, mut sum): (Integers<i32>, Integers<i32>, Sums<i32>) = ([0; _], [0; _], [0; _]);
    gather_integers(&product.a, registers, &mut a);
    gather_integers(&product.b, registers, &mut b);
    for ((a, b), sum) in each(product, &a, &b, &mut sum) {
        product::integers(product.shape, a, b, sum);
    }
    add(product, registers, &sum, saturate);
}

#[inline(always)]
fn bits(product: &Multiply, registers: &mut Registers, op: BitOp) {
    let (mut a, mut b, mut sum): (Integers<u32>, Integers<u32>, Sums<i32>) = ([0; _], [0; _], [0; _]);
    gather(&product.a, registers, &mut a, |bits| bits);
    gather(&product.b, registers, &mut b, |bits| bits);
    for ((a, b), sum) in each(product, &a, &b, &mut sum) {
        product::bits(product.shape, op, a, b, sum);
    }
    add(product, registers, &sum, false);
}

/// Stores the sum of the products and C to D.
#[inline(always)]
fn add(product: &Multiply, registers: &mut Registers, sum: &Sums<i32>, saturate: bool) {
    let mut c: Sums<i32> = [0; _];
    gather(&product.c, registers, &mut c, |bits| bits as i32);
    for (c, sum) in c.iter_mut().zip(sum) {
        *c = if saturate { c.saturating_add(*sum) } else { c.wrapping_add(*sum) };
    }
    scatter(&product.d, registers, &c, |sum| sum as u32);
}
