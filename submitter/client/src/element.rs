//! The Rust types of a buffer's elements.

use gpufleet_schema::{Dtype, Number};
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// The type of a buffer's elements or of a scalar. Each dtype of the schema has one such type. Other crates can't add
/// types.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    const DTYPE: Dtype;

    /// Converts the value to a number of the wire format.
    fn number(self) -> Number;

    /// Converts elements to little-endian bytes, in CUDA's layout.
    fn to_bytes(elements: &[Self]) -> Vec<u8>;

    /// Reads elements from little-endian bytes. Bytes after the last whole element are ignored, because callers check
    /// the length.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($($type:ty = $dtype:ident, $number:expr;)*) => {
        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
                const DTYPE: Dtype = Dtype::$dtype;

                fn number(self) -> Number {
                    $number(self)
                }

                fn to_bytes(elements: &[Self]) -> Vec<u8> {
                    elements.iter().flat_map(|element| element.to_le_bytes()).collect()
                }

                fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                    let (elements, _) = bytes.as_chunks();
                    elements.iter().map(|element| Self::from_le_bytes(*element)).collect()
                }
            }
        )*
    };
}

element! {
    i8 = I8, |value| Number::from(i64::from(value));
    i16 = I16, |value| Number::from(i64::from(value));
    i32 = I32, Number::from;
    i64 = I64, Number::from;
    u8 = U8, |value| Number::from(u64::from(value));
    u16 = U16, |value| Number::from(u64::from(value));
    u32 = U32, Number::from;
    u64 = U64, Number::from;
    f16 = F16, |value: f16| Number::from(value.to_f64());
    bf16 = Bf16, |value: bf16| Number::from(value.to_f64());
    f32 = F32, Number::from;
    f64 = F64, Number::from;
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;

    fn number(self) -> Number {
        self.into()
    }

    fn to_bytes(elements: &[Self]) -> Vec<u8> {
        elements.iter().map(|element| u8::from(*element)).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back<T: Element + PartialEq + std::fmt::Debug>(elements: &[T]) {
        let bytes = T::to_bytes(elements);
        assert_eq!(bytes.len(), elements.len() * T::DTYPE.size());
        assert_eq!(T::from_bytes(&bytes), elements);
        let mut scalar = Vec::new();
        elements[0].number().write(T::DTYPE, &mut scalar).unwrap();
        assert_eq!(scalar, bytes[..T::DTYPE.size()], "a scalar has the bytes of an element");
    }

    #[test]
    fn elements_of_every_dtype_round_trip_through_bytes() {
        comes_back(&[true, false]);
        comes_back(&[i8::MIN, 7]);
        comes_back(&[i16::MIN, 7]);
        comes_back(&[i32::MIN, 7]);
        comes_back(&[i64::MIN, 7]);
        comes_back(&[u8::MAX, 7]);
        comes_back(&[u16::MAX, 7]);
        comes_back(&[u32::MAX, 7]);
        comes_back(&[u64::MAX, 7]);
        comes_back(&[f16::from_f32(0.1), f16::MAX]);
        comes_back(&[bf16::from_f32(0.1), bf16::MAX]);
        comes_back(&[0.1_f32, f32::MAX]);
        comes_back(&[0.1_f64, f64::MIN_POSITIVE]);
    }
}
