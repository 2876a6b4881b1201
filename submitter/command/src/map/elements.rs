//! The elements of Arrow columns as arrays of jobs, and back.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BooleanArray, PrimitiveArray, cast::AsArray as _, make_array, types};
use arrow_schema::DataType;
use gpufleet::{
    Array, ArrayError, Element,
    schema::{Dtype, Number},
};

macro_rules! numbers {
    ($($data_type:ident, $arrow:ident, $dtype:ident;)*) => {
        /// The dtype of a column. `None` if its values have no fixed width that a kernel knows.
        pub fn dtype_of(data_type: &DataType) -> Option<Dtype> {
            match number_of(data_type) {
                $(DataType::$data_type => Some(Dtype::$dtype),)*
                DataType::Boolean => Some(Dtype::Bool),
                _ => None,
            }
        }

        /// The type of a column of numbers. `None` if Arrow has no such type.
        pub fn type_of(dtype: Dtype) -> Option<DataType> {
            match dtype {
                $(Dtype::$dtype => Some(DataType::$data_type),)*
                Dtype::Bool => Some(DataType::Boolean),
                Dtype::Bf16 => None,
            }
        }

        /// The elements of a column, with `fill` in place of nulls. `None` if it has no dtype.
        pub fn take(column: &ArrayRef, fill: Option<Number>) -> Option<Array> {
            let column = &as_numbers(column)?;
            match column.data_type() {
                $(DataType::$data_type => Some(filled(column.as_primitive::<types::$arrow>(), fill)),)*
                DataType::Boolean => Some(bits(column.as_boolean(), fill)),
                _ => None,
            }
        }

        /// A column with the elements of an array. `None` if Arrow has no such type.
        pub fn column(array: &Array) -> Result<Option<ArrayRef>, ArrayError> {
            Ok(match array.dtype() {
                $(Dtype::$dtype => {
                    Some(Arc::new(PrimitiveArray::<types::$arrow>::from_iter_values(array.to_vec()?)))
                })*
                Dtype::Bool => Some(Arc::new(BooleanArray::from(array.to_vec::<bool>()?))),
                Dtype::Bf16 => None,
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

/// The type of the numbers that Arrow has for a date, a time or a duration. Other types are their own.
fn number_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Date32 | DataType::Time32(_) => &DataType::Int32,
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => &DataType::Int64,
        other => other,
    }
}

/// A column of dates, times or durations as the numbers that they are. They are not copied.
fn as_numbers(column: &ArrayRef) -> Option<ArrayRef> {
    match number_of(column.data_type()) {
        same if same == column.data_type() => Some(column.clone()),
        number => Some(make_array(column.to_data().into_builder().data_type(number.clone()).build().ok()?)),
    }
}

fn bits(column: &BooleanArray, fill: Option<Number>) -> Array {
    let fill = fill.and_then(native::<bool>).unwrap_or_default();
    Array::from_slice(&column.iter().map(|bit| bit.unwrap_or(fill)).collect::<Vec<_>>())
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
    use arrow_array::{
        Decimal128Array, Float32Array, Float64Array, Int16Array, Int64Array, StringArray, TimestampMillisecondArray,
    };

    use super::*;

    #[test]
    fn numbers_come_back_and_other_types_are_refused() {
        let halves: ArrayRef = Arc::new(Float32Array::from(vec![0.5, -1.5]));
        let array = take(&halves, None).unwrap();
        assert_eq!(array, Array::from_slice(&[0.5_f32, -1.5]));
        assert_eq!(&column(&array).unwrap().unwrap(), &halves);
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(take(&words, None).is_none() && dtype_of(words.data_type()).is_none());
        let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![1]));
        assert!(take(&decimals, None).is_none() && dtype_of(decimals.data_type()).is_none());
        let brains = Array::new(Dtype::Bf16, vec![1], vec![0; 2]).unwrap();
        assert!(column(&brains).unwrap().is_none() && type_of(Dtype::Bf16).is_none());
    }

    #[test]
    fn doubles_and_bits_come_back() {
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.1, -1e300]));
        assert_eq!(&column(&take(&doubles, None).unwrap()).unwrap().unwrap(), &doubles);
        let bits: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]));
        let taken = take(&bits.slice(1, 3), Some(true.into())).unwrap();
        assert_eq!(taken, Array::from_slice(&[true, false, true]));
        assert_eq!(column(&taken).unwrap().unwrap().as_boolean(), &BooleanArray::from(vec![true, false, true]));
    }

    #[test]
    fn times_are_taken_as_the_numbers_that_they_are() {
        let times: ArrayRef =
            Arc::new(TimestampMillisecondArray::from(vec![Some(5), None, Some(-7)]).with_timezone("UTC"));
        assert_eq!(dtype_of(times.data_type()), Some(Dtype::I64));
        let taken = take(&times.slice(1, 2), Some(0_i64.into())).unwrap();
        assert_eq!(taken, Array::from_slice(&[0_i64, -7]));
        assert_eq!(column(&taken).unwrap().unwrap().as_primitive::<types::Int64Type>(), &Int64Array::from(vec![0, -7]));
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
