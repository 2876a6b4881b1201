//! Shows the elements of an output that goes to no file.

use gpufleet::{Array, schema::Dtype};
use half::{bf16, f16};

/// The most elements that are shown in full.
const SHOWN_MAX: usize = 16;
/// The elements that are shown of a larger array.
const FIRST: usize = 4;

/// All elements in brackets, nested by the shape.
pub fn whole(array: &Array) -> Option<String> {
    let texts = texts(array, SHOWN_MAX + 1);
    (texts.len() <= SHOWN_MAX).then(|| nested(array.shape(), &texts))
}

/// The first elements, in C order.
pub fn beginning(array: &Array) -> String {
    format!("[{}, …]", texts(array, FIRST).join(", "))
}

fn nested(shape: &[u64], texts: &[String]) -> String {
    let [_, inner @ ..] = shape else { return texts.concat() };
    let each = inner.iter().product::<u64>().max(1) as usize;
    let parts: Vec<String> = texts.chunks(each).map(|part| nested(inner, part)).collect();
    format!("[{}]", parts.join(", "))
}

fn texts(array: &Array, most: usize) -> Vec<String> {
    match array.dtype() {
        Dtype::Bool => each(array, most, |[byte]| (byte != 0).to_string()),
        Dtype::I8 => each(array, most, |bytes| i8::from_le_bytes(bytes).to_string()),
        Dtype::I16 => each(array, most, |bytes| i16::from_le_bytes(bytes).to_string()),
        Dtype::I32 => each(array, most, |bytes| i32::from_le_bytes(bytes).to_string()),
        Dtype::I64 => each(array, most, |bytes| i64::from_le_bytes(bytes).to_string()),
        Dtype::U8 => each(array, most, |bytes| u8::from_le_bytes(bytes).to_string()),
        Dtype::U16 => each(array, most, |bytes| u16::from_le_bytes(bytes).to_string()),
        Dtype::U32 => each(array, most, |bytes| u32::from_le_bytes(bytes).to_string()),
        Dtype::U64 => each(array, most, |bytes| u64::from_le_bytes(bytes).to_string()),
        Dtype::F16 => each(array, most, |bytes| format!("{:?}", f16::from_le_bytes(bytes))),
        Dtype::Bf16 => each(array, most, |bytes| format!("{:?}", bf16::from_le_bytes(bytes))),
        Dtype::F32 => each(array, most, |bytes| format!("{:?}", f32::from_le_bytes(bytes))),
        Dtype::F64 => each(array, most, |bytes| format!("{:?}", f64::from_le_bytes(bytes))),
    }
}

fn each<const BYTES: usize>(array: &Array, most: usize, text: impl Fn([u8; BYTES]) -> String) -> Vec<String> {
    let (elements, _) = array.bytes().as_chunks::<BYTES>();
    elements.iter().take(most).map(|bytes| text(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_array_is_shown_as_it_is_nested_and_a_large_one_by_its_first_elements() {
        let shaped = |shape: &[u64]| Array::from_slice(&[1_i32, -2, 3, 4]).reshape(shape.to_vec()).unwrap();
        assert_eq!(whole(&shaped(&[4])).unwrap(), "[1, -2, 3, 4]");
        assert_eq!(whole(&shaped(&[2, 2])).unwrap(), "[[1, -2], [3, 4]]");
        assert_eq!(whole(&shaped(&[1, 4, 1])).unwrap(), "[[[1], [-2], [3], [4]]]");
        assert_eq!(whole(&Array::from_slice(&[0.5_f64]).reshape(Vec::new()).unwrap()).unwrap(), "0.5");
        assert_eq!(whole(&Array::new(Dtype::U8, vec![0], Vec::new()).unwrap()).unwrap(), "[]");
        let large = Array::from_slice(&[3.0_f32; SHOWN_MAX + 1]);
        assert_eq!((whole(&large), &*beginning(&large)), (None, "[3.0, 3.0, 3.0, 3.0, …]"));
    }

    #[test]
    fn every_dtype_is_shown_as_numbers() {
        for dtype in Dtype::ALL {
            let zero = Array::new(dtype, vec![1], vec![0; dtype.size()]).unwrap();
            let expected = match dtype {
                Dtype::Bool => "[false]",
                Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => "[0.0]",
                _ => "[0]",
            };
            assert_eq!(whole(&zero).as_deref(), Some(expected), "{dtype}");
        }
    }
}
