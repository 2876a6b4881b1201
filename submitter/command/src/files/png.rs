//! PNG pictures as arrays of `u8`: `[height, width]` in grey, `[height, width, channels]` in colour.

use std::io::Cursor;

use gpufleet::{Array, schema::Dtype};
use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Limits, Transformations};

use super::Remark;
use crate::quantity;

/// Reads a picture. Palettes and greys of fewer than 8 bits become bytes, and channels of 16 bits lose the lower byte.
pub fn decode(bytes: &[u8], unpacked_bytes_max: usize) -> Result<Array, String> {
    let problem = |error| problem(error, unpacked_bytes_max);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: unpacked_bytes_max });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(problem)?;
    let size = reader.output_buffer_size().filter(|size| *size <= unpacked_bytes_max);
    let size = size.ok_or_else(|| too_large(unpacked_bytes_max))?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(problem)?;
    pixels.truncate(frame.buffer_size());
    let mut shape = vec![u64::from(frame.height), u64::from(frame.width)];
    if frame.color_type != ColorType::Grayscale {
        shape.push(frame.color_type.samples() as u64);
    }
    Array::new(Dtype::U8, shape, pixels).map_err(|problem| problem.to_string())
}

fn too_large(unpacked_bytes_max: usize) -> String {
    let most = quantity::bytes(unpacked_bytes_max as u64);
    format!("its pixels take more than {most}, the limit for an input; scale the picture down")
}

fn problem(error: DecodingError, unpacked_bytes_max: usize) -> String {
    match error {
        DecodingError::LimitsExceeded => too_large(unpacked_bytes_max),
        other => format!("it is not a valid PNG file: {}", other.to_string().trim_end_matches('.')),
    }
}

/// Rejects an array that is not a picture.
pub fn check(dtype: Dtype, shape: &[u64]) -> Result<(), String> {
    layout(dtype, shape).map(|_| ())
}

/// The height, the width and the channels.
fn layout(dtype: Dtype, shape: &[u64]) -> Result<(u32, u32, ColorType), String> {
    let (height, width, colour) = match *shape {
        [height, width] => (height, width, ColorType::Grayscale),
        [height, width, 1] => (height, width, ColorType::Grayscale),
        [height, width, 2] => (height, width, ColorType::GrayscaleAlpha),
        [height, width, 3] => (height, width, ColorType::Rgb),
        [height, width, 4] => (height, width, ColorType::Rgba),
        _ => {
            return Err(format!(
                "the shape {shape:?} is not a picture; a PNG file takes [height, width] or [height, width, 1 to 4]"
            ));
        }
    };
    let (Ok(height), Ok(width)) = (u32::try_from(height), u32::try_from(width)) else {
        return Err(format!("{shape:?} is larger than PNG allows"));
    };
    if dtype != Dtype::U8 && colour != ColorType::Grayscale {
        return Err(format!("its dtype is {dtype}; a PNG file in colour takes u8"));
    }
    Ok((height, width, colour))
}

/// Writes a picture. `u8` pixels are written unchanged. Other numbers in two dimensions become grey, with their range
/// stretched from black to white; a note says so.
pub fn encode(array: &Array) -> Result<(Vec<u8>, Remark), String> {
    let (height, width, colour) = layout(array.dtype(), array.shape())?;
    if array.dtype() == Dtype::U8 {
        return Ok((pack(array.bytes(), width, height, colour)?, None));
    }
    let (pixels, remark) = stretch(array);
    Ok((pack(&pixels, width, height, colour)?, Some(remark)))
}

fn pack(pixels: &[u8], width: u32, height: u32, colour: ColorType) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(colour);
    encoder.set_depth(BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|error: EncodingError| error.to_string())?;
    Ok(file)
}

fn stretch(array: &Array) -> (Vec<u8>, String) {
    let values = floats(array);
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
    let pixels = values.iter().map(|value| match value {
        value if value.is_nan() => 0,
        // A cast from float to u8 saturates: infinities become black and white.
        value => ((value - low) * scale).round() as u8,
    });
    let remark =
        if low > high { "no finite values".to_owned() } else { format!("{low} to {high} shown as black to white") };
    (pixels.collect(), remark)
}

fn floats(array: &Array) -> Vec<f64> {
    macro_rules! convert {
        ($($dtype:ident: $type:ty => $float:expr,)*) => {
            match array.dtype() {
                $(Dtype::$dtype => <$type as gpufleet::Element>::from_bytes(array.bytes()).into_iter().map($float).collect(),)*
            }
        };
    }
    convert! {
        Bool: bool => |value| f64::from(u8::from(value)),
        I8: i8 => f64::from,
        I16: i16 => f64::from,
        I32: i32 => f64::from,
        I64: i64 => |value| value as f64,
        U8: u8 => f64::from,
        U16: u16 => f64::from,
        U32: u32 => f64::from,
        U64: u64 => |value| value as f64,
        F16: gpufleet::half::f16 => |value| value.to_f64(),
        Bf16: gpufleet::half::bf16 => |value| value.to_f64(),
        F32: f32 => f64::from,
        F64: f64 => |value| value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u8_arrays_round_trip_in_every_kind_of_picture() {
        for shape in [vec![2, 3], vec![2, 3, 2], vec![2, 3, 3], vec![2, 3, 4]] {
            let bytes = (0..shape.iter().product::<u64>() as u8).map(|n| n * 7).collect();
            let array = Array::new(Dtype::U8, shape, bytes).unwrap();
            let (file, remark) = encode(&array).unwrap();
            assert_eq!(remark, None);
            assert_eq!(decode(&file, 24).unwrap(), array);
        }
    }

    #[test]
    fn other_numbers_are_stretched_to_grey_with_a_remark() {
        let array = Array::from_slice(&[1_u32, 2, 3, 256]).reshape(vec![2, 2]).unwrap();
        let (file, remark) = encode(&array).unwrap();
        assert_eq!(remark.unwrap(), "1 to 256 shown as black to white");
        assert_eq!(decode(&file, 4).unwrap().bytes(), [0, 1, 2, 255]);
        let odd = Array::from_slice(&[f32::NAN, f32::INFINITY, 5.0, 5.0]).reshape(vec![2, 2]).unwrap();
        assert!(encode(&odd).is_ok());
    }

    #[test]
    fn arrays_and_files_that_are_no_picture_are_refused() {
        let line = Array::from_slice(&[1_u8, 2]);
        assert_eq!(
            encode(&line).unwrap_err(),
            "the shape [2] is not a picture; a PNG file takes [height, width] or [height, width, 1 to 4]"
        );
        let colours = Array::from_slice(&[0.5_f32; 12]).reshape(vec![2, 2, 3]).unwrap();
        assert_eq!(encode(&colours).unwrap_err(), "its dtype is f32; a PNG file in colour takes u8");
        assert!(decode(b"no picture", 4).unwrap_err().contains("not a valid PNG file"));
    }

    #[test]
    fn a_picture_that_unpacks_beyond_the_bound_is_refused_before_it_is_unpacked() {
        let (file, _) = encode(&Array::new(Dtype::U8, vec![5000, 5000], vec![0; 25_000_000]).unwrap()).unwrap();
        assert!(file.len() < 100_000);
        let refused = decode(&file, 16 << 20).unwrap_err();
        assert_eq!(refused, "its pixels take more than 16.0 MiB, the limit for an input; scale the picture down");
        assert!(decode(&file, 25_000_000).is_ok());
    }
}
