//! Image programs over textures and surfaces. Linear filtering is compared with exact weights, within the error of a
//! device's 8-bit weights.

use std::sync::Arc;

use gpufleet_emulator::texture::Texture;
use gpufleet_emulator::texture::format::{Channel, Format};
use gpufleet_emulator::texture::image::{Extent, Image};
use gpufleet_emulator::texture::registry::Object;
use gpufleet_emulator::texture::sampler::{AddressMode, Filter, Sampler};

use super::builds::{Build, HEAVY, check};
use super::close::assert_close;
use super::device::{Device, Element, args};

/// Compiles all kernels, which takes a while, and runs the check on them.
fn study(run: impl Fn(&Device, &Build)) {
    check(FILE, SOURCE, &HEAVY, run);
}

const SOURCE: &str = include_str!("../../cases/study/textures.cu");
const FILE: &str = "textures.cu";

const FLOAT: Format = Format { channel: Channel::F32, channels: 1 };
const BYTES: Format = Format { channel: Channel::U8, channels: 4 };
const FLAT: Extent = Extent { width: 0, height: 0, depth: 0, is_layered: false, is_cube: false };

/// Maximum error of a filtered value: half a step of an 8-bit weight, along two axes, of texels up to 1 apart.
const WEIGHT_ERROR: f64 = 2.0 / 512.0;

/// Makes an array and fills its first level.
fn array<T: Element>(device: &Device, format: Format, extent: Extent, levels: u32, texels: &[T]) -> Image {
    let memory = device.memory();
    let bytes = Image::array_bytes(format, extent, levels).unwrap();
    let image = Image::array(format, extent, levels, memory.alloc(bytes).unwrap());
    let given = size_of_val(texels) as u64;
    assert!(given <= bytes);
    // SAFETY: the slice is readable for its size.
    unsafe { memory.copy_in(image.range().0, texels.as_ptr().cast(), given).unwrap() };
    memory.note_written(image.range().0, bytes);
    image
}

fn plane<T: Element>(device: &Device, format: Format, [width, height]: [usize; 2], texels: &[T]) -> Image {
    array(device, format, Extent { width: width as u64, height: height as u64, ..FLAT }, 1, texels)
}

fn texture(device: &Device, image: Image, sampler: Sampler) -> u64 {
    device.memory().textures().add(Object::Texture(Arc::new(Texture { image, sampler })))
}

fn surface(device: &Device, image: Image) -> u64 {
    device.memory().textures().add(Object::Surface(Arc::new(image)))
}

fn smooth(mode: AddressMode, is_normalized: bool) -> Sampler {
    Sampler { address: [mode; 3], filter: Filter::Linear, is_normalized, ..Sampler::default() }
}

/// Returns a picture of waves, from 0 to 1.
fn picture(width: usize, height: usize) -> Vec<f32> {
    let at = |index: usize| {
        let (x, y) = ((index % width) as f32, (index / width) as f32);
        0.5 + 0.25 * (x * 0.7).sin() + 0.25 * (y * 0.4 + x * 0.1).cos()
    };
    (0..width * height).map(at).collect()
}

/// Returns a texel of a picture whose edges repeat.
fn clamped(picture: &[f32], [width, height]: [usize; 2], x: i64, y: i64) -> f64 {
    let (x, y) = (x.clamp(0, width as i64 - 1) as usize, y.clamp(0, height as i64 - 1) as usize);
    picture[y * width + x].into()
}

/// Filters with exact weights, at a point in texels.
fn bilinear(picture: &[f32], size: [usize; 2], u: f64, v: f64) -> f64 {
    let (x, y) = ((u - 0.5).floor(), (v - 0.5).floor());
    let (a, b) = (u - 0.5 - x, v - 0.5 - y);
    let texel = |dx: i64, dy: i64| clamped(picture, size, x as i64 + dx, y as i64 + dy);
    (1.0 - b) * ((1.0 - a) * texel(0, 0) + a * texel(1, 0)) + b * ((1.0 - a) * texel(0, 1) + a * texel(1, 1))
}

#[test]
fn a_picture_is_rotated_with_linear_filtering() {
    study(|device, _| {
        let (size, angle) = ([23usize, 17], 0.4f64);
        let picture = picture(23, 17);
        let image = plane(device, FLOAT, size, &picture);
        let image = texture(device, image, smooth(AddressMode::Clamp, true));
        let out = device.zeros::<f32>(23 * 17);
        device.run("rotate", [3, 3], [8, 8], args![image, out, 23i32, 17i32, angle as f32]);
        let expected: Vec<f64> = (0..23 * 17)
            .map(|index| {
                let (u, v) = (((index % 23) as f64 + 0.5) / 23.0 - 0.5, ((index / 23) as f64 + 0.5) / 17.0 - 0.5);
                let (s, c) = angle.sin_cos();
                bilinear(&picture, size, (u * c - v * s + 0.5) * 23.0, (v * c + u * s + 0.5) * 17.0)
            })
            .collect();
        assert_close(&device.download(&out), &expected, 0.0, WEIGHT_ERROR);
    });
}

#[test]
fn a_box_filter_reads_bytes_as_numbers() {
    study(|device, _| {
        let (width, height, r) = (19i64, 11i64, 2i64);
        let bytes: Vec<u8> = (0..width * height * 4).map(|index| (index * 37 % 251) as u8).collect();
        let image = plane(device, BYTES, [19, 11], &bytes);
        let image = texture(device, image, Sampler::default());
        let out = device.zeros::<u8>(bytes.len());
        device.run("box", [3, 2], [8, 8], args![image, out, width as i32, height as i32, r as i32]);
        let got = device.download(&out);
        for (index, got) in (0..).zip(&got) {
            let (channel, x, y) = (index % 4, index / 4 % width, index / 4 / width);
            let mut sum = 0;
            for dy in -r..=r {
                for dx in -r..=r {
                    let (x, y) = ((x + dx).clamp(0, width - 1), (y + dy).clamp(0, height - 1));
                    sum += i64::from(bytes[((y * width + x) * 4 + channel) as usize]);
                }
            }
            let mean = sum as f64 / 25.0;
            assert!((f64::from(*got) - mean).abs() <= 0.51, "byte {index} is {got}, not {mean}");
        }
    });
}

#[test]
fn a_slice_of_a_volume_is_filtered_along_three_axes() {
    study(|device, _| {
        // Linear along each axis, so filtering inside is exact.
        let at = |x: usize, y: usize, z: usize| (x + 2 * y + 4 * z) as f32 / 16.0;
        let texels: Vec<f32> = (0..4 * 4 * 4).map(|index| at(index % 4, index / 4 % 4, index / 16)).collect();
        let extent = Extent { width: 4, height: 4, depth: 4, ..FLAT };
        let volume = array(device, FLOAT, extent, 1, &texels);
        let volume = texture(device, volume, smooth(AddressMode::Clamp, true));
        let out = device.zeros::<f32>(64);
        device.run("slice", 1, [8, 8], args![volume, out, 8i32, 8i32, 0.4375f32]);
        let expected: Vec<f64> = (0..64)
            .map(|index| {
                let place = |at: usize| ((at as f64 + 0.5) / 2.0 - 0.5).clamp(0.0, 3.0);
                (place(index % 8) + 2.0 * place(index / 8) + 4.0 * 1.25) / 16.0
            })
            .collect();
        assert_close(&device.download(&out), &expected, 1e-6, 0.0);
    });
}

#[test]
fn a_direction_finds_its_face_of_a_cube_map() {
    study(|device, _| {
        let texels: Vec<f32> = (0..6 * 4).map(|index| (index / 4 * 10 + index % 4) as f32).collect();
        let extent = Extent { width: 2, height: 2, depth: 6, is_layered: false, is_cube: true };
        let cube = array(device, FLOAT, extent, 1, &texels);
        let cube = texture(device, cube, Sampler { is_normalized: true, ..Sampler::default() });
        // Faces are seen from inside: on the first one, z decreases to the right and y downwards.
        let directions: [[f32; 3]; 8] = [
            [2.0, 1.0, 1.0],
            [2.0, -1.0, -1.0],
            [-2.0, 1.0, 1.0],
            [0.5, 3.0, 0.5],
            [-0.5, -3.0, 0.5],
            [0.5, 0.5, 1.0],
            [-0.5, 0.5, -1.0],
            [0.5, -0.5, -1.0],
        ];
        let flat: Vec<f32> = directions.iter().flatten().copied().collect();
        let out = device.zeros::<f32>(8);
        device.run("reflections", 1, 32, args![cube, out, device.upload(&flat), 8i32]);
        assert_eq!(device.download(&out), [0.0, 3.0, 11.0, 23.0, 30.0, 41.0, 51.0, 52.0]);
    });
}

#[test]
fn layers_are_read_by_their_number() {
    study(|device, _| {
        let texels: Vec<i16> = (0..5 * 3 * 4 * 2).map(|index| (index * 911 % 40_000 - 20_000) as i16).collect();
        let format = Format { channel: Channel::S16, channels: 2 };
        let extent = Extent { width: 5, height: 3, depth: 4, is_layered: true, is_cube: false };
        let image = array(device, format, extent, 1, &texels);
        let image = texture(device, image, Sampler { reads_integers: true, ..Sampler::default() });
        let out = device.zeros::<i16>(texels.len());
        device.run("layers", 4, [5, 3], args![image, out, 5i32, 3i32]);
        assert_eq!(device.download(&out), texels);
    });
}

#[test]
fn surfaces_are_read_and_written() {
    study(|device, _| {
        let bytes: Vec<u8> = (0..13 * 6 * 4).map(|index| index as u8).collect();
        let from = plane(device, BYTES, [13, 6], &bytes);
        let to = plane::<u8>(device, BYTES, [13, 6], &[]);
        let address = to.range().0;
        let (from, to) = (surface(device, from), surface(device, to));
        device.run("flip", [2, 1], [8, 8], args![from, to, 13i32, 6i32]);
        let mut got = vec![0u8; bytes.len()];
        // SAFETY: the vector is as long as what is copied.
        unsafe { device.memory().copy_out(got.as_mut_ptr(), address, bytes.len() as u64).unwrap() };
        let expected: Vec<u8> = bytes.chunks(13 * 4).rev().flatten().map(|byte| byte.wrapping_add(1)).collect();
        assert_eq!(got, expected);
    });
}

#[test]
fn accesses_outside_of_a_surface_are_clamped_or_nothing() {
    study(|device, _| {
        let image = plane(device, FLOAT, [4, 2], &[10.0f32, 11.0, 12.0, 13.0, 0.0, 0.0, 0.0, 0.0]);
        let address = image.range().0 + 16;
        let out = device.zeros::<f32>(16);
        device.run("boundaries", 1, 8, args![surface(device, image), out, 4i32]);
        let clamped = [10.0, 10.0, 10.0, 11.0, 12.0, 13.0, 13.0, 13.0];
        let zero = [0.0, 0.0, 10.0, 11.0, 12.0, 13.0, 0.0, 0.0];
        assert_eq!(device.download(&out), [clamped, zero].concat());
        let mut row = [0f32; 4];
        // SAFETY: the row is as long as what is copied.
        unsafe { device.memory().copy_out(row.as_mut_ptr().cast(), address, 16).unwrap() };
        assert_eq!(row, [3.0, 4.0, 5.0, 6.0]);
    });
}

#[test]
fn a_picture_is_enlarged_by_lanczos() {
    study(|device, _| {
        let size = [9usize, 7];
        let picture = picture(9, 7);
        let image = plane(device, FLOAT, size, &picture);
        let image = texture(device, image, Sampler::default());
        let (width, height, scale) = (16usize, 12usize, 0.5625f64);
        let out = device.zeros::<f32>(width * height);
        device.run("lanczos", [2, 2], [8, 8], args![image, out, width as i32, height as i32, scale as f32]);
        let weight = |x: f64| match x.abs() {
            x if x >= 3.0 => 0.0,
            x if x < 1e-5 => 1.0,
            x => {
                let px = std::f64::consts::PI * x;
                3.0 * px.sin() * (px / 3.0).sin() / (px * px)
            }
        };
        let expected: Vec<f64> = (0..width * height)
            .map(|index| {
                let (u, v) = (((index % width) as f64 + 0.5) * scale, ((index / width) as f64 + 0.5) * scale);
                let (fu, fv) = ((u - 0.5).floor(), (v - 0.5).floor());
                let (mut sum, mut total) = (0.0, 0.0);
                for j in -2..=3 {
                    for i in -2..=3 {
                        let w = weight(u - fu - f64::from(i) - 0.5) * weight(v - fv - f64::from(j) - 0.5);
                        sum += w * clamped(&picture, size, fu as i64 + i64::from(i), fv as i64 + i64::from(j));
                        total += w;
                    }
                }
                sum / total
            })
            .collect();
        assert_close(&device.download(&out), &expected, 0.0, 2e-4);
    });
}

#[test]
fn a_cubic_spline_takes_four_filtered_fetches() {
    study(|device, _| {
        let size = [9usize, 7];
        let picture = picture(9, 7);
        let image = plane(device, FLOAT, size, &picture);
        let image = texture(device, image, smooth(AddressMode::Clamp, false));
        let (width, height, scale) = (16usize, 12usize, 0.5625f64);
        let out = device.zeros::<f32>(width * height);
        device.run("bicubic", [2, 2], [8, 8], args![image, out, width as i32, height as i32, scale as f32]);
        let weights = |a: f64| {
            [
                (1.0 - a).powi(3) / 6.0,
                (3.0 * a.powi(3) - 6.0 * a * a + 4.0) / 6.0,
                (-3.0 * a.powi(3) + 3.0 * a * a + 3.0 * a + 1.0) / 6.0,
                a.powi(3) / 6.0,
            ]
        };
        let expected: Vec<f64> = (0..width * height)
            .map(|index| {
                let along = |at: usize| ((at as f64 + 0.5) * scale - 0.5).floor();
                let fraction = |at: usize| (at as f64 + 0.5) * scale - 0.5 - along(at);
                let (x, y) = (index % width, index / width);
                let (wx, wy) = (weights(fraction(x)), weights(fraction(y)));
                let texel = |i: usize, j: usize| {
                    clamped(&picture, size, along(x) as i64 + i as i64 - 1, along(y) as i64 + j as i64 - 1)
                };
                (0..16).map(|place| wx[place % 4] * wy[place / 4] * texel(place % 4, place / 4)).sum()
            })
            .collect();
        assert_close(&device.download(&out), &expected, 0.0, WEIGHT_ERROR);
    });
}

#[test]
fn a_table_in_linear_memory_is_zero_around_its_entries() {
    study(|device, _| {
        let values = device.upload(&[1.5f32, 2.5, 3.5]);
        let table = texture(device, Image::linear(FLOAT, values.address, 3), Sampler::default());
        let out = device.zeros::<f32>(6);
        device.run("table", 1, 6, args![table, device.upload(&[0i32, 2, 1, 3, -1, i32::MAX]), out]);
        assert_eq!(device.download(&out), [1.5, 3.5, 2.5, 0.0, 0.0, 0.0]);
    });
}

#[test]
fn mipmap_levels_are_chosen_by_number_and_by_gradient() {
    study(|device, _| {
        let extent = Extent { width: 16, height: 16, ..FLAT };
        // Every texel of a level contains its number times eight.
        let texels: Vec<f32> =
            (0..4u32).flat_map(|level| vec![8.0 * level as f32; (16 >> level) * (16 >> level)]).collect();
        let image = array(device, FLOAT, extent, 4, &texels);
        let sampler = Sampler { mipmap_filter: Filter::Linear, level_max: 3.0, ..smooth(AddressMode::Clamp, true) };
        let out = device.zeros::<f32>(16);
        device.run("levels", 1, 8, args![texture(device, image, sampler), out]);
        let expected = [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 24.0];
        let twice: Vec<f64> = [expected, expected].concat();
        assert_close(&device.download(&out), &twice, 0.0, 8.0 / 256.0);
    });
}

#[test]
fn four_neighbours_are_gathered() {
    study(|device, _| {
        let texels: Vec<f32> = (0..4 * 3 * 2).map(|index| index as f32).collect();
        let format = Format { channel: Channel::F32, channels: 2 };
        let image = plane(device, format, [4, 3], &texels);
        let image = texture(device, image, Sampler::default());
        let out = device.zeros::<f32>(8);
        let at: Vec<u8> = [2.25f32, 1.25].iter().flat_map(|part| part.to_le_bytes()).collect();
        device.run("neighbours", 1, 1, args![image, out, at[..]]);
        // The second channel of the texels (1, 1), (2, 1), (2, 0) and (1, 0).
        assert_eq!(device.download(&out), [11.0, 13.0, 5.0, 3.0, 12.0, 13.0, 1.0, 0.0]);
    });
}
