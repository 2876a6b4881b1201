//! Conversion of a texel from and to its bytes.

use std::sync::LazyLock;

use half::f16;

use super::format::{Channel, Format};

/// Maximum bytes of a texel.
pub const BYTES_MAX: usize = 16;

/// The fourth component of a texel that has none; a missing second or third component is 0.
const ALPHA: f32 = 1.0;

/// Linear values of 8-bit sRGB channels, by the formula of IEC 61966-2-1.
static LINEAR: LazyLock<[f32; 256]> = LazyLock::new(|| {
    std::array::from_fn(|byte| {
        let encoded = byte as f64 / 255.0;
        let linear = if encoded <= 0.04045 { encoded / 12.92 } else { libm::pow((encoded + 0.055) / 1.055, 2.4) };
        linear as f32
    })
});

impl Channel {
    /// Reads the bits of a channel, extended to 32 as its type requires.
    fn load(self, bytes: &[u8]) -> u32 {
        match self {
            Channel::U8 => bytes[0].into(),
            Channel::S8 => i32::from(bytes[0].cast_signed()).cast_unsigned(),
            Channel::U16 | Channel::F16 => u16::from_le_bytes([bytes[0], bytes[1]]).into(),
            Channel::S16 => i32::from(i16::from_le_bytes([bytes[0], bytes[1]])).cast_unsigned(),
            Channel::U32 | Channel::S32 | Channel::F32 => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }

    /// Returns a channel as a number; integers of up to 16 bits become fractions of their largest value.
    fn number(self, bits: u32) -> f32 {
        let signed = bits.cast_signed() as f32;
        match self {
            Channel::U8 => bits as f32 / 255.0,
            Channel::U16 => bits as f32 / 65_535.0,
            Channel::S8 => (signed / 127.0).max(-1.0),
            Channel::S16 => (signed / 32_767.0).max(-1.0),
            Channel::F16 => f16::from_bits(bits as u16).to_f32(),
            Channel::F32 => f32::from_bits(bits),
            Channel::U32 => bits as f32,
            Channel::S32 => signed,
        }
    }

    /// Writes what a formatted store makes of a register: a float for float channels, otherwise an integer clamped to
    /// the range.
    fn store(self, bits: u32, out: &mut [u8]) {
        let signed = |low: i32, high: i32| bits.cast_signed().clamp(low, high);
        let stored = match self {
            Channel::U8 => bits.min(0xff),
            Channel::U16 => bits.min(0xffff),
            Channel::S8 => signed(-0x80, 0x7f).cast_unsigned(),
            Channel::S16 => signed(-0x8000, 0x7fff).cast_unsigned(),
            Channel::F16 => f16::from_f32(f32::from_bits(bits)).to_bits().into(),
            Channel::U32 | Channel::S32 | Channel::F32 => bits,
        };
        out.copy_from_slice(&stored.to_le_bytes()[..out.len()]);
    }
}

impl Format {
    fn channels_of<T>(self, bytes: &[u8], missing: [T; 4], read: impl Fn(usize, u32) -> T) -> [T; 4] {
        let size = self.channel.bytes() as usize;
        let mut texel = missing;
        for (index, bytes) in bytes.chunks_exact(size).take(self.channels as usize).enumerate() {
            texel[index] = read(index, self.channel.load(bytes));
        }
        texel
    }

    /// Returns a texel as numbers.
    pub fn numbers(self, bytes: &[u8], is_srgb: bool) -> [f32; 4] {
        self.channels_of(bytes, [0.0, 0.0, 0.0, ALPHA], |index, bits| match self.channel {
            Channel::U8 if is_srgb && index < 3 => LINEAR[bits as usize & 0xff],
            channel => channel.number(bits),
        })
    }

    /// Returns a texel of integers unchanged.
    pub fn integers(self, bytes: &[u8]) -> [u32; 4] {
        self.channels_of(bytes, [0, 0, 0, ALPHA as u32], |_, bits| bits)
    }

    /// Returns the bytes that a formatted store of `values` writes; the bytes after the texel are 0.
    pub fn stored(self, values: [u32; 4]) -> [u8; BYTES_MAX] {
        let size = self.channel.bytes() as usize;
        let mut bytes = [0; BYTES_MAX];
        for (out, bits) in bytes.chunks_exact_mut(size).take(self.channels as usize).zip(values) {
            self.channel.store(bits, out);
        }
        bytes
    }
}
