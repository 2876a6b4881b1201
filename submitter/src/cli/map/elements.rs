//! The elements of Arrow columns as arrays of jobs, and back.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, PrimitiveArray, cast::AsArray as _, types};
use arrow_schema::DataType;
use gpufleet::{
    Array, ArrayError, Element,
    schema::{Dtype, Number},
};

macro_rules! numbers {
    ($($data_type:ident, $arrow:ident, $dtype:ident;)*) => {
        /// The dtype of a column. `None` if it does not consist of plain numbers.
        pub fn dtype_of(data_type: &DataType) -> Option<Dtype> {
            match data_type {
                $(DataType::$data_type => Some(Dtype::$dtype),)*
                _ => None,
            }
        }

        /// The type of a column of numbers. `None` if Arrow has no such type.
        pub fn type_of(dtype: Dtype) -> Option<DataType> {
            match dtype {
                $(Dtype::$dtype => Some(DataType::$data_type),)*
                Dtype::Bool | Dtype::Bf16 => None,
            }
        }

        /// The elements of a column, with `fill` in place of nulls. `None` if it does not consist of plain numbers.
        pub fn take(column: &ArrayRef, fill: Option<Number>) -> Option<Array> {
            match column.data_type() {
                $(DataType::$data_type => Some(filled(column.as_primitive::<types::$arrow>(), fill)),)*
                _ => None,
            }
        }

        /// A column with the elements of an array. `None` if Arrow has no such type.
        pub fn column(array: &Array) -> Result<Option<ArrayRef>, ArrayError> {
            Ok(match array.dtype() {
                $(Dtype::$dtype => {
                    Some(Arc::new(PrimitiveArray::<types::$arrow>::from_iter_values(array.to_vec()?)))
                })*
                Dtype::Bool | Dtype::Bf16 => None,
            })
        }
    };
}

numbers! {
    Int8, Int8Type, I8;
    Int16, Int16Type, I16;
    Int32, Int32Type, I32;
    Int64, Int64Type, I64;
    UInt8, UInt8Type, U8;
    UInt16, UInt16Type, U16;
    UInt32, UInt32Type, U32;
    UInt64, UInt64Type, U64;
    Float16, Float16Type, F16;
    Float32, Float32Type, F32;
    Float64, Float64Type, F64;
}

fn filled<T>(column: &PrimitiveArray<T>, fill: Option<Number>) -> Array
where
    T: arrow_array::ArrowPrimitiveType,
    T::Native: Element,
{
    match fill.and_then(native::<T::Native>) {
        Some(fill) if column.null_count() > 0 => {
            Array::from_slice(&column.iter().map(|value| value.unwrap_or(fill)).collect::<Vec<_>>())
        }
        _ => Array::from_slice(column.values()),
    }
}

/// The number as an element. `None` if it does not fit.
fn native<T: Element>(number: Number) -> Option<T> {
    let mut bytes = Vec::with_capacity(T::DTYPE.size());
    number.write(T::DTYPE, &mut bytes).ok()?;
    T::from_bytes(&bytes).first().copied()
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, Int16Array, StringArray};

    use super::*;

    #[test]
    fn numbers_come_back_and_other_types_are_refused() {
        let halves: ArrayRef = Arc::new(Float32Array::from(vec![0.5, -1.5]));
        let array = take(&halves, None).unwrap();
        assert_eq!(array, Array::from_slice(&[0.5_f32, -1.5]));
        assert_eq!(&column(&array).unwrap().unwrap(), &halves);
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(take(&words, None).is_none() && dtype_of(words.data_type()).is_none());
        assert!(column(&Array::from_slice(&[true])).unwrap().is_none());
    }

    #[test]
    fn a_slice_has_its_own_elements() {
        let numbers: ArrayRef = Arc::new(Int16Array::from(vec![1, 2, 3, 4]));
        assert_eq!(take(&numbers.slice(1, 2), None).unwrap(), Array::from_slice(&[2_i16, 3]));
    }

    #[test]
    fn nulls_are_filled() {
        let holes: ArrayRef = Arc::new(Int16Array::from(vec![Some(1), None, Some(3)]));
        assert_eq!(take(&holes, Some((-7_i64).into())).unwrap(), Array::from_slice(&[1_i16, -7, 3]));
    }
}
