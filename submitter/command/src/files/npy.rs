//! NumPy's `.npy`: a magic, a length, a header that is a Python dict, and the elements.
//!
//! Only what a kernel can use is read: plain numbers and booleans, little endian (or of one byte). Column-major files are turned into
//! row-major order, which changes nothing that NumPy would show.

use gpufleet::{
    Array,
    schema::{Dtype, bounds::DIMENSIONS_MAX},
};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy pads the header so that the elements begin on a multiple of this.
const ALIGNMENT: usize = 64;

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    dtype: Dtype,
    fortran_order: bool,
    shape: Vec<u64>,
}

/// NumPy's name of a dtype, if it has one.
pub fn descriptor(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "|b1",
        Dtype::I8 => "|i1",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::Bf16 => return None,
    })
}

pub fn decode(bytes: &[u8]) -> Result<Array, String> {
    let (header, elements) = split(bytes)?;
    let header = Header::parse(header)?;
    header.check(elements.len() as u64)?;
    let is_row_major = header.is_row_major();
    let Header { dtype, shape, .. } = header;
    let elements = if is_row_major { elements.to_vec() } else { row_major(elements, &shape, dtype.size()) };
    Array::new(dtype, shape, elements).map_err(|problem| problem.to_string())
}

/// The elements of a row-major file, which begin at an offset and end with the file.
#[derive(Debug)]
pub struct Located {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub offset: u64,
}

/// Finds the elements in a file of this length by its first bytes. `None` if they are in column-major order.
pub fn locate(start: &[u8], length: u64) -> Result<Option<Located>, String> {
    let (header, rest) = split(start)?;
    let header = Header::parse(header)?;
    let offset = (start.len() - rest.len()) as u64;
    header.check(length - offset)?;
    let is_row_major = header.is_row_major();
    let Header { dtype, shape, .. } = header;
    Ok(is_row_major.then_some(Located { dtype, shape, offset }))
}

pub fn encode(array: &Array) -> Result<Vec<u8>, String> {
    let mut file = header(array.dtype(), array.shape())?;
    file.extend_from_slice(array.bytes());
    Ok(file)
}

/// What a file has before the elements.
pub fn header(dtype: Dtype, shape: &[u64]) -> Result<Vec<u8>, String> {
    let descriptor = descriptor(dtype)
        .ok_or_else(|| format!("NumPy has no dtype {dtype}; use the extension .bin to write the raw bytes"))?;
    let extents: String = shape.iter().map(|extent| format!("{extent},")).collect();
    let mut header = format!("{{'descr': '{descriptor}', 'fortran_order': False, 'shape': ({extents}), }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("eight extents of twenty digits are far below 64 KiB");
    let mut file = Vec::with_capacity(unpadded + ALIGNMENT);
    file.extend_from_slice(MAGIC);
    file.extend([1, 0]);
    file.extend(length.to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    Ok(file)
}

fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a NumPy file")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("it is truncated")?;
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        other => return Err(format!("its format version is {other}; versions 1 to 3 are supported")),
    }
    .ok_or("it is truncated")?;
    let (header, elements) = rest.split_at_checked(length).ok_or("it is truncated")?;
    Ok((std::str::from_utf8(header).map_err(|_| "its header is not text")?, elements))
}

impl Header {
    /// NumPy writes the dict's three keys in a fixed form; other writers differ in blanks and quotes at most.
    fn parse(text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let at = [format!("'{key}'"), format!("\"{key}\"")]
                .iter()
                .find_map(|quoted| Some(text.find(quoted)? + quoted.len()));
            let rest = at.map(|at| text[at..].trim_start());
            rest.and_then(|rest| rest.strip_prefix(':'))
                .map(str::trim_start)
                .ok_or(format!("its header has no {key:?}"))
        };
        let fortran_order = match value("fortran_order")? {
            text if text.starts_with("False") => false,
            text if text.starts_with("True") => true,
            _ => return Err("its header has an invalid \"fortran_order\"".to_owned()),
        };
        Ok(Self { dtype: parse_descriptor(value("descr")?)?, fortran_order, shape: parse_shape(value("shape")?)? })
    }

    /// Checks that the file has as many bytes of data as the array.
    fn check(&self, found: u64) -> Result<(), String> {
        let Self { dtype, shape, .. } = self;
        match shape.iter().try_fold(dtype.size() as u64, |bytes, extent| bytes.checked_mul(*extent)) {
            Some(wanted) if wanted == found => Ok(()),
            Some(wanted) => Err(format!("it holds {found} bytes of data, but {dtype}{shape:?} takes {wanted}")),
            None => Err("its shape is too large".to_owned()),
        }
    }

    /// Both orders are the same if there is only one dimension, or no element.
    fn is_row_major(&self) -> bool {
        !self.fortran_order || self.shape.len() <= 1 || self.shape.contains(&0)
    }
}

fn parse_descriptor(text: &str) -> Result<Dtype, String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
    let Some((name, _)) = quote.and_then(|quote| text[1..].split_once(quote)) else {
        return Err("it has a structured dtype; kernels take plain numbers".to_owned());
    };
    let plain = name.trim_start_matches(['<', '|', '=']);
    let known = |dtype: &Dtype| descriptor(*dtype).is_some_and(|known| known[1..] == *plain);
    match Dtype::ALL.into_iter().find(known) {
        Some(dtype) => Ok(dtype),
        None if name.starts_with('>') => Err(format!(
            "its elements are big-endian ({name}); save it again after a = a.astype(a.dtype.newbyteorder('<'))"
        )),
        None => Err(format!("its dtype {name:?} is not supported; {}", replacement(plain))),
    }
}

/// How to save an array whose dtype kernels don't take.
fn replacement(name: &str) -> &'static str {
    match name.as_bytes() {
        b"c8" => "save it again after a = a.view('float32'), which holds the real and imaginary parts in turn",
        [b'c', ..] => {
            "save it again after a = a.astype('complex128').view('float64'), which holds the real and imaginary parts in turn"
        }
        [b'M' | b'm', ..] => "save it again after a = a.astype('int64')",
        [b'f', ..] => "save it again after a = a.astype('float64')",
        _ => "kernels take plain numbers",
    }
}

fn parse_shape(text: &str) -> Result<Vec<u64>, String> {
    let malformed = || "its header has an invalid \"shape\"".to_owned();
    let (extents, _) = text.strip_prefix('(').and_then(|text| text.split_once(')')).ok_or_else(malformed)?;
    let extents = extents.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let dimensions = extents.clone().count();
    if dimensions > DIMENSIONS_MAX {
        return Err(format!("it has {dimensions} dimensions; a buffer has at most {DIMENSIONS_MAX}"));
    }
    extents.map(|extent| extent.trim_end_matches('L').parse().map_err(|_| malformed())).collect()
}

/// Elements in column-major order, put into row-major order.
fn row_major(elements: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let shape: Vec<usize> = shape.iter().map(|extent| *extent as usize).collect();
    let strides: Vec<usize> =
        shape.iter().scan(1, |stride, extent| Some(std::mem::replace(stride, *stride * extent))).collect();
    let mut index = vec![0; shape.len()];
    let mut ordered = Vec::with_capacity(elements.len());
    for _ in 0..elements.len() / size {
        let from: usize = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
        ordered.extend_from_slice(&elements[from * size..][..size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use npyz::WriterBuilder;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    use super::*;

    fn with_header(header: &str, elements: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), elements].concat()
    }

    proptest! {
        #[test]
        fn written_files_are_read_back_by_this_and_another_reader(elements in prop::collection::vec(any::<f32>(), 6)) {
            let array = Array::from_slice(&elements).reshape(vec![2, 3]).unwrap();
            let file = encode(&array).unwrap();
            prop_assert_eq!(decode(&file).unwrap(), array);
            let other = npyz::NpyFile::new(&file[..]).unwrap();
            prop_assert_eq!(other.shape(), [2, 3]);
            let bits = |elements: &[f32]| elements.iter().map(|element| element.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&other.into_vec::<f32>().unwrap()), bits(&elements));
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let _ = decode(&[MAGIC, &[1, 0], &bytes].concat());
            let file = encode(&Array::from_slice(&bytes)).unwrap();
            let _ = decode(&file[..cut.min(file.len())]);
        }
    }

    #[test]
    fn every_dtype_of_numpy_round_trips() {
        for dtype in Dtype::ALL {
            let array = Array::new(dtype, vec![2], vec![1; 2 * dtype.size()]).unwrap();
            match encode(&array) {
                Ok(file) => assert_eq!(decode(&file).unwrap(), array),
                Err(problem) => {
                    assert_eq!(problem, "NumPy has no dtype bf16; use the extension .bin to write the raw bytes")
                }
            }
        }
    }

    #[test]
    fn a_column_major_file_of_another_writer_reads_as_the_same_matrix() {
        let mut file = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().order(npyz::Order::Fortran).shape(&[2, 3]);
        let mut writer = options.writer(&mut file).begin_nd().unwrap();
        // The matrix [[1, 2, 3], [4, 5, 6]], column by column.
        writer.extend([1_i32, 4, 2, 5, 3, 6]).unwrap();
        writer.finish().unwrap();
        assert_eq!(decode(&file).unwrap().to_vec::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn unusable_arrays_are_refused_with_advice() {
        let problem = |header: &str, elements: &[u8]| decode(&with_header(header, elements)).unwrap_err();
        assert_eq!(decode(b"text").unwrap_err(), "it is not a NumPy file");
        assert!(problem("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", &[0; 4]).contains("big-endian"));
        assert!(
            problem("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]).contains("is not supported")
        );
        assert!(
            problem("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", &[])
                .contains("structured dtype")
        );
        assert!(problem("{'descr': '<f4', 'shape': (1,), }", &[]).contains("fortran_order"));
        let huge = "{'descr': '<f4', 'fortran_order': True, 'shape': (18446744073709551615, 2), }";
        assert_eq!(problem(huge, &[]), "its shape is too large");
        let short = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(problem(short, &[0; 8]), "it holds 8 bytes of data, but f32[3] takes 12");
        let deep = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({}), }}", "1,".repeat(30_000));
        assert_eq!(problem(&deep, &[0; 4]), "it has 30000 dimensions; a buffer has at most 8");
    }
}
