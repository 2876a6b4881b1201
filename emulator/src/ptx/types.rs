//! The fundamental types of PTX.

/// A fundamental type, as instructions and variables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

impl Type {
    /// Parses a modifier such as `u32`.
    pub fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Returns the bits of a value; a predicate has one.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::U8 | Type::S8 | Type::B8 => 8,
            Type::U16 | Type::S16 | Type::B16 | Type::F16 | Type::Bf16 => 16,
            Type::U32 | Type::S32 | Type::B32 | Type::F32 | Type::F16x2 | Type::Bf16x2 => 32,
            Type::U64 | Type::S64 | Type::B64 | Type::F64 => 64,
        }
    }

    /// Returns the bytes of a value in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Reports whether it is a signed or unsigned integer type; untyped bits (`.b32`) are not.
    pub fn is_number(self) -> bool {
        self.is_signed() || matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64)
    }

    /// Reports whether an instruction of this type may use a register declared as `declared`, of the same size (PTX
    /// ISA, "Operand Type Checking"): bit types match everything, signed and unsigned integers match each other, floats
    /// match only themselves.
    pub fn accepts(self, declared: Type) -> bool {
        let is_bits = |ty: Type| !ty.is_float() && !ty.is_number();
        self == declared || is_bits(self) || is_bits(declared) || self.is_number() && declared.is_number()
    }

    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Type::Pred
    }
}
