//! Operations over the 32 lanes of a warp. A register is a plane of 32 values: 32-bit values for registers up to 32
//! bits, 64-bit values for larger ones. A predicate is a 32-bit mask. Instructions name registers by their byte offset
//! in a frame.
//!
//! An instruction keeps a plain function pointer. So the functions here take closures without captures: such a closure
//! has no size and can be recreated inside the pointed-to function.

mod word;

use std::ptr::NonNull;

pub use self::word::{Word, fill, flags_of, mask_of};

/// Lanes of a warp: threads that run in lockstep.
pub const LANES: usize = 32;
/// Lanes of half a warp. Blocks are often 16 threads wide, so the halves are often examined separately.
pub const HALF: usize = LANES / 2;
/// Mask of all lanes.
pub const FULL: u32 = u32::MAX;

/// Slots of an operation's operands and result: byte offsets in the frame. An operation uses only those that it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slots {
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// A fourth operand, a second result or a carry.
    pub e: u32,
}

/// Slot of a missing operand or of a result that the program does not use.
pub const NO_SLOT: u32 = u32::MAX;

/// Runs an operation over the lanes of `mask`, reading and writing the frame.
///
/// # Safety
/// The frame is aligned to 64 bytes, and every slot is inside it with a plane of the operation's width.
pub type Run = unsafe fn(frame: *mut u8, slots: &Slots, mask: u32);

/// One operation, compiled portably and for the machine's vectors.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    pub portable: Run,
    pub vector: Run,
}

/// A value in a plane. Narrow integers are read from the low bits and stored extended.
pub trait Lane: Copy {
    type Plane: Word;
    fn read(plane: Self::Plane) -> Self;
    fn plane(self) -> Self::Plane;
    fn zero() -> Self::Plane;
}

macro_rules! lane {
    ($($t:ty: $plane:ty, |$p:ident| $read:expr, |$v:ident| $write:expr;)*) => {$(
        impl Lane for $t {
            type Plane = $plane;
            #[inline(always)]
            fn read($p: $plane) -> $t { $read }
            #[inline(always)]
            fn plane(self) -> $plane { let $v = self; $write }
            #[inline(always)]
            fn zero() -> $plane { 0 }
        }
    )*};
}

lane! {
    u8: u32, |p| p as u8, |v| u32::from(v);
    i8: u32, |p| p as i8, |v| v as u32;
    u16: u32, |p| p as u16, |v| u32::from(v);
    i16: u32, |p| p as i16, |v| v as u32;
    u32: u32, |p| p, |v| v;
    i32: u32, |p| p as i32, |v| v as u32;
    f32: u32, |p| f32::from_bits(p), |v| v.to_bits();
    u64: u64, |p| p, |v| v;
    i64: u64, |p| p as i64, |v| v as u64;
    f64: u64, |p| f64::from_bits(p), |v| v.to_bits();
    half::f16: u32, |p| half::f16::from_bits(p as u16), |v| u32::from(v.to_bits());
    half::bf16: u32, |p| half::bf16::from_bits(p as u16), |v| u32::from(v.to_bits());
}

/// Two values of 16 bits in one register.
#[derive(Clone, Copy, Debug)]
pub struct Pair<T>(pub T, pub T);

impl Lane for Pair<half::f16> {
    type Plane = u32;
    #[inline(always)]
    fn read(plane: u32) -> Self {
        Pair(half::f16::from_bits(plane as u16), half::f16::from_bits((plane >> 16) as u16))
    }
    #[inline(always)]
    fn plane(self) -> u32 {
        u32::from(self.0.to_bits()) | u32::from(self.1.to_bits()) << 16
    }
    #[inline(always)]
    fn zero() -> u32 {
        0
    }
}

impl Lane for Pair<half::bf16> {
    type Plane = u32;
    #[inline(always)]
    fn read(plane: u32) -> Self {
        Pair(half::bf16::from_bits(plane as u16), half::bf16::from_bits((plane >> 16) as u16))
    }
    #[inline(always)]
    fn plane(self) -> u32 {
        u32::from(self.0.to_bits()) | u32::from(self.1.to_bits()) << 16
    }
    #[inline(always)]
    fn zero() -> u32 {
        0
    }
}

/// Reads a whole plane.
///
/// # Safety
/// As for [`Run`].
#[inline(always)]
pub unsafe fn load<T: Lane>(frame: *mut u8, slot: u32) -> [T::Plane; LANES] {
    // SAFETY: the caller vouches for the slot; planes start at multiples of their size.
    unsafe { *frame.add(slot as usize).cast::<[T::Plane; LANES]>() }
}

/// Writes the lanes of `mask`.
///
/// # Safety
/// As for [`Run`]; with `VECTOR`, the machine has what [`vector_available`] asks for.
#[inline(always)]
pub unsafe fn store<T: Lane, const VECTOR: bool>(frame: *mut u8, slot: u32, values: &[T::Plane; LANES], mask: u32) {
    // SAFETY: the caller vouches for the slot and the machine; no other reference to the frame is alive here.
    unsafe {
        let target = &mut *frame.add(slot as usize).cast::<[T::Plane; LANES]>();
        if mask == FULL {
            *target = *values;
        } else {
            // The copy lets the compiler keep `values` in registers if all lanes are on.
            let values = *values;
            T::Plane::merge::<VECTOR>(target, &values, mask);
        }
    }
}

/// Reads a predicate.
///
/// # Safety
/// As for [`Run`].
#[inline(always)]
pub unsafe fn load_mask(frame: *mut u8, slot: u32) -> u32 {
    // SAFETY: the caller vouches for the slot.
    unsafe { *frame.add(slot as usize).cast::<u32>() }
}

/// Writes a predicate in the lanes of `mask`.
///
/// # Safety
/// As for [`Run`].
#[inline(always)]
pub unsafe fn store_mask(frame: *mut u8, slot: u32, bits: u32, mask: u32) {
    // SAFETY: the caller vouches for the slot.
    let target = unsafe { &mut *frame.add(slot as usize).cast::<u32>() };
    *target = *target & !mask | bits & mask;
}

/// Sets the lanes of `mask` to one value.
pub fn put_lanes<T: Copy>(plane: &mut [T; LANES], value: T, mask: u32) {
    if mask == FULL {
        plane.fill(value);
        return;
    }
    for (lane, one) in plane.iter_mut().enumerate() {
        if mask >> lane & 1 != 0 {
            *one = value;
        }
    }
}

/// Creates a value of a closure type that captures nothing.
#[inline(always)]
pub(super) fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "an operation captures nothing") };
    // SAFETY: a value of no size has no bytes to read, and a copyable closure without captures has no invariant.
    unsafe { NonNull::<F>::dangling().as_ptr().read() }
}

/// Defines a constructor of operations: its body is compiled portably and for the machine's vectors.
macro_rules! operation {
    ($(#[$doc:meta])* $name:ident [$($g:ident),*] ($($bound:tt)*)
     |$frame:ident, $slots:ident, $mask:ident, $f:ident| $body:block) => {
        $(#[$doc])*
        pub fn $name<$($g: Lane,)* F: $($bound)* + Copy>(_: F) -> Lanes {
            /// # Safety
            /// As for [`Run`].
            #[inline(always)]
            unsafe fn body<$($g: Lane,)* F: $($bound)* + Copy, const VECTOR: bool>(
                $frame: *mut u8,
                $slots: &Slots,
                $mask: u32,
            ) {
                let $f = conjure::<F>();
                // SAFETY: the caller of the operation vouches for the frame and the slots.
                unsafe { $body }
            }
            unsafe fn portable<$($g: Lane,)* F: $($bound)* + Copy>(frame: *mut u8, slots: &Slots, mask: u32) {
                // SAFETY: the same contract.
                unsafe { body::<$($g,)* F, false>(frame, slots, mask) }
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn vector<$($g: Lane,)* F: $($bound)* + Copy>(frame: *mut u8, slots: &Slots, mask: u32) {
                // SAFETY: the same contract, on a machine with these vectors.
                unsafe { body::<$($g,)* F, { cfg!(target_arch = "x86_64") }>(frame, slots, mask) }
            }
            Lanes { portable: portable::<$($g,)* F>, vector: vector::<$($g,)* F> }
        }
    };
}

operation! {
    /// Makes `d = f(a)`.
    unary [A, R] (Fn(A) -> R) |frame, slots, mask, f| {
        let a = load::<A>(frame, slots.a);
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            d[lane] = f(A::read(a[lane])).plane();
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a)` for functions that are too expensive for lanes that are off.
    unary_sparse [A, R] (Fn(A) -> R) |frame, slots, mask, f| {
        let a = load::<A>(frame, slots.a);
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                d[lane] = f(A::read(a[lane])).plane();
            }
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b)`.
    binary [A, B, R] (Fn(A, B) -> R) |frame, slots, mask, f| {
        let (a, b) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            d[lane] = f(A::read(a[lane]), B::read(b[lane])).plane();
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b)` for functions that are too expensive for lanes that are off.
    binary_sparse [A, B, R] (Fn(A, B) -> R) |frame, slots, mask, f| {
        let (a, b) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                d[lane] = f(A::read(a[lane]), B::read(b[lane])).plane();
            }
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b, c)`.
    ternary [A, B, C, R] (Fn(A, B, C) -> R) |frame, slots, mask, f| {
        let (a, b, c) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b), load::<C>(frame, slots.c));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            d[lane] = f(A::read(a[lane]), B::read(b[lane]), C::read(c[lane])).plane();
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b, c)` for functions that are too expensive for lanes that are off.
    ternary_sparse [A, B, C, R] (Fn(A, B, C) -> R) |frame, slots, mask, f| {
        let (a, b, c) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b), load::<C>(frame, slots.c));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                d[lane] = f(A::read(a[lane]), B::read(b[lane]), C::read(c[lane])).plane();
            }
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b, c, e)`.
    quaternary [A, B, C, E, R] (Fn(A, B, C, E) -> R) |frame, slots, mask, f| {
        let (a, b) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b));
        let (c, e) = (load::<C>(frame, slots.c), load::<E>(frame, slots.e));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            d[lane] = f(A::read(a[lane]), B::read(b[lane]), C::read(c[lane]), E::read(e[lane])).plane();
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `d = f(a, b)`, where `d` is a predicate.
    compare [A, B] (Fn(A, B) -> bool) |frame, slots, mask, f| {
        let (a, b) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b));
        let mut flags = [0; LANES];
        for lane in 0..LANES {
            flags[lane] = if f(A::read(a[lane]), B::read(b[lane])) { u32::MAX } else { 0 };
        }
        store_mask(frame, slots.d, mask_of(&flags), mask);
    }
}

operation! {
    /// Makes `d = f(a, b, c)`, where `c` is a predicate.
    choose [A, B, R] (Fn(A, B, bool) -> R) |frame, slots, mask, f| {
        let (a, b) = (load::<A>(frame, slots.a), load::<B>(frame, slots.b));
        let c = flags_of(load_mask(frame, slots.c));
        let mut d = [R::zero(); LANES];
        for lane in 0..LANES {
            d[lane] = f(A::read(a[lane]), B::read(b[lane]), c[lane] != 0).plane();
        }
        store::<R, VECTOR>(frame, slots.d, &d, mask);
    }
}

operation! {
    /// Makes `(d, e) = f(a, b, c, e)`, where `e` is the carry.
    carry [A] (Fn(A, A, A, bool) -> (A, bool)) |frame, slots, mask, f| {
        let (a, b, c) = (load::<A>(frame, slots.a), load::<A>(frame, slots.b), load::<A>(frame, slots.c));
        let carry_in = load_mask(frame, slots.e);
        let (mut d, mut carry_out) = ([A::zero(); LANES], 0);
        for lane in 0..LANES {
            let (value, out) =
                f(A::read(a[lane]), A::read(b[lane]), A::read(c[lane]), carry_in >> lane & 1 != 0);
            d[lane] = value.plane();
            carry_out |= u32::from(out) << lane;
        }
        store::<A, VECTOR>(frame, slots.d, &d, mask);
        store_mask(frame, slots.e, carry_out, mask);
    }
}

/// Reports whether this machine has the vector instructions that [`Lanes::vector`] was compiled for.
pub fn vector_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}
