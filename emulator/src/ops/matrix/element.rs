//! Element types of matrices, some of which no other instruction computes with.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    U8,
    S8,
    U4,
    S4,
    B1,
    S32,
}

impl Element {
    /// Parses a type modifier.
    pub fn parse(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "u8" => Element::U8,
            "s8" => Element::S8,
            "u4" => Element::U4,
            "s4" => Element::S4,
            "b1" => Element::B1,
            "s32" => Element::S32,
            _ => return None,
        })
    }

    /// Returns the bits of an element, in memory and in registers.
    pub fn bits(self) -> u32 {
        match self {
            Element::B1 => 1,
            Element::U4 | Element::S4 => 4,
            Element::E4m3 | Element::E5m2 | Element::U8 | Element::S8 => 8,
            Element::F16 | Element::Bf16 => 16,
            Element::Tf32 | Element::F32 | Element::S32 => 32,
            Element::F64 => 64,
        }
    }

    /// Returns the number of elements in a register.
    pub fn per_register(self) -> u32 {
        (32 / self.bits()).max(1)
    }

    /// Returns the number of elements that a product handles as one: single bits are combined a word at a time.
    pub fn per_unit(self) -> u32 {
        if self == Element::B1 { 32 } else { 1 }
    }
}

/// Converts an f16, by a multiplication that moves the exponent into place, because that vectorises well.
#[inline(always)]
pub fn half(bits: u32) -> f64 {
    const MOVE: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = (bits & 0x7fff) << 13;
    let number = f32::from_bits(magnitude) * MOVE;
    // If all bits of the exponent are set, it is an infinity or a NaN in both formats.
    let magnitude = if bits & 0x7c00 == 0x7c00 { magnitude | 0x7f80_0000 } else { number.to_bits() };
    f32::from_bits(magnitude | (bits & 0x8000) << 16).into()
}

#[inline(always)]
pub fn brain(bits: u32) -> f64 {
    f32::from_bits(bits << 16).into()
}

/// Converts a tf32: only the upper 19 bits count.
#[inline(always)]
pub fn tensor(bits: u32) -> f64 {
    f32::from_bits(bits & 0xffff_e000).into()
}

/// Converts an e4m3: four bits of exponent, three of fraction, no infinities.
#[inline(always)]
pub fn e4m3(bits: u32) -> f64 {
    let (exponent, fraction) = (bits >> 3 & 15, f64::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * f64::from(1 << exponent) / 128.0,
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Converts an e5m2, which is the upper half of an f16.
#[inline(always)]
pub fn e5m2(bits: u32) -> f64 {
    half((bits & 0xff) << 8)
}

#[cfg(test)]
mod tests {
    use super::{brain, half};

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let same = |got: f64, want: f64| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same(half(bits.into()), ::half::f16::from_bits(bits).to_f64()), "{bits:#x}");
            assert!(same(brain(bits.into()), ::half::bf16::from_bits(bits).to_f64()), "{bits:#x}");
            // The upper bits of the register do not count.
            assert!(same(half(u32::from(bits) | 0xabcd_0000), half(bits.into())), "{bits:#x}");
        }
    }
}
