//! Kinds of values: the contents of a column of a case, and their PTX types.

use std::fmt;

/// The interpretation of a value's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    F16,
    Bf16,
    B32,
    U32,
    S32,
    F32,
    Tf32,
    F16x2,
    Bf16x2,
    U16x2,
    S16x2,
    E4m3x2,
    E5m2x2,
    B64,
    U64,
    S64,
    F64,
}

pub use Kind::*;

const NAMES: [(Kind, &str, u32); 24] = [
    (Pred, "pred", 1),
    (B8, "b8", 8),
    (U8, "u8", 8),
    (S8, "s8", 8),
    (B16, "b16", 16),
    (U16, "u16", 16),
    (S16, "s16", 16),
    (F16, "f16", 16),
    (Bf16, "bf16", 16),
    (B32, "b32", 32),
    (U32, "u32", 32),
    (S32, "s32", 32),
    (F32, "f32", 32),
    (Tf32, "tf32", 32),
    (F16x2, "f16x2", 32),
    (Bf16x2, "bf16x2", 32),
    (U16x2, "u16x2", 32),
    (S16x2, "s16x2", 32),
    (E4m3x2, "e4m3x2", 16),
    (E5m2x2, "e5m2x2", 16),
    (B64, "b64", 64),
    (U64, "u64", 64),
    (S64, "s64", 64),
    (F64, "f64", 64),
];

impl Kind {
    pub fn parse(name: &str) -> Option<Kind> {
        NAMES.iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| *kind)
    }

    pub fn bits(self) -> u32 {
        self.row().2
    }

    pub fn is_signed(self) -> bool {
        matches!(self, S8 | S16 | S32 | S64)
    }

    pub fn is_float(self) -> bool {
        self.element().is_some()
    }

    /// Returns the kind of a float, or of each float of a pair.
    pub fn element(self) -> Option<Kind> {
        match self {
            F16 | Bf16 | F32 | F64 | Tf32 => Some(self),
            F16x2 => Some(F16),
            Bf16x2 => Some(Bf16),
            _ => None,
        }
    }

    /// Returns the number of values in one register.
    pub fn lanes(self) -> u32 {
        if matches!(self, F16x2 | Bf16x2 | U16x2 | S16x2 | E4m3x2 | E5m2x2) { 2 } else { 1 }
    }

    /// Returns the type of a register for the kind.
    pub fn register(self) -> &'static str {
        match self.bits() {
            1 => "pred",
            8 | 16 => "b16",
            32 => "b32",
            _ => "b64",
        }
    }

    /// Returns the untyped type of a memory access that moves the kind.
    pub fn access(self) -> &'static str {
        match self.bits() {
            8 => "b8",
            16 => "b16",
            1 | 32 => "b32",
            _ => "b64",
        }
    }

    /// Returns the mask of the bits that a store writes.
    pub fn stored(self) -> u64 {
        u64::MAX >> (64 - if self == Pred { 32 } else { self.bits() })
    }

    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    fn row(self) -> &'static (Kind, &'static str, u32) {
        NAMES.iter().find(|(kind, ..)| *kind == self).expect("every kind is in the table")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}
