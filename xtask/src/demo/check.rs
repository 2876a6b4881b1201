//! Computes each result again on this machine's CPU.

use std::path::Path;

use anyhow::ensure;
use gpufleet_kernels::reference::{self, MandelbrotView};

use super::{
    files::read_npy,
    picture::{self, Picture},
};

/// The view of the Mandelbrot picture: Seahorse Valley and its surroundings, at the limit of single precision.
pub const VIEW: MandelbrotView =
    MandelbrotView { width: 768, height: 512, centre_x: -0.748, centre_y: 0.11, step: 0.00004 };
pub const ITERATIONS_MAX: u32 = 512;

/// Checks `y = 2 x + y`. Each element is rounded once, so the results must be equal bit for bit.
pub fn saxpy(folder: &Path, x: &[f32], y: Vec<f32>) -> anyhow::Result<()> {
    let mut expected = y;
    reference::saxpy(2.0, x, &mut expected);
    let result = read_npy(&folder.join("result.npy"), "<f4", f32::from_le_bytes)?;
    compare("result.npy", &result, &expected)
}

/// Checks the picture of `edge.cu` with a version of the filter that uses no tiles. All operations are exact but the square root, which
/// both round correctly.
pub fn edges(folder: &Path, photo: &Picture) -> anyhow::Result<()> {
    let (width, height) = (i64::from(photo.width), i64::from(photo.height));
    let brightness = |x: i64, y: i64| {
        let at = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)) * 3;
        let part = |offset: i64| usize::try_from(at + offset).map_or(0, |index| i32::from(photo.rgb[index]));
        (77 * part(0) + 150 * part(1) + 29 * part(2)) >> 8
    };
    let pixel = |x: i64, y: i64| {
        let at = |right: i64, below: i64| brightness(x + right, y + below);
        let across = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
        let down = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
        255 - ((across * across + down * down) as f32).sqrt().min(255.0) as u8
    };
    let expected: Vec<u8> =
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
    let result = picture::read_grey(&folder.join("edges.png"), photo.width, photo.height)?;
    compare("edges.png", &result, &expected)
}

/// Compares the iterations before the escape of every pixel, and writes them as a colour picture.
pub fn mandelbrot(folder: &Path) -> anyhow::Result<()> {
    let expected = reference::mandelbrot(VIEW, ITERATIONS_MAX);
    let result = read_npy(&folder.join("mandelbrot.npy"), "<u4", u32::from_le_bytes)?;
    compare("mandelbrot.npy", &result, &expected)?;
    let rgb = result.iter().flat_map(|iterations| colour(*iterations)).collect();
    picture::write_rgb(&folder.join("mandelbrot.png"), &Picture { width: VIEW.width, height: VIEW.height, rgb })
}

fn compare<T: PartialEq + std::fmt::Debug>(name: &str, result: &[T], expected: &[T]) -> anyhow::Result<()> {
    ensure!(result.len() == expected.len(), "{name} has {} elements and not {}", result.len(), expected.len());
    let different = result.iter().zip(expected).filter(|(have, want)| have != want).count();
    match result.iter().zip(expected).position(|(have, want)| have != want) {
        None => Ok(()),
        Some(first) => anyhow::bail!(
            "{name} is wrong: {different} of {} elements differ from the CPU's, the first at {first}: {:?} and not {:?}",
            expected.len(),
            result[first],
            expected[first]
        ),
    }
}

/// Returns the colour of a pixel: black inside the set; outside, a colour that changes slowly with the logarithm of the iterations.
fn colour(iterations: u32) -> [u8; 3] {
    if iterations == ITERATIONS_MAX {
        return [0, 0, 0];
    }
    let turn = ((iterations + 1) as f32).ln() * 1.7;
    [0.0, 0.35, 0.7].map(|phase| ((0.5 + 0.5 * (turn + phase * std::f32::consts::TAU * 0.6).cos()) * 255.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_element_is_named() {
        let error = compare("x", &[1, 2, 3], &[1, 5, 3]).unwrap_err().to_string();
        assert!(error.contains("1 of 3") && error.contains("at 1: 2 and not 5"), "{error}");
        assert!(compare("x", &[1], &[1, 2]).is_err());
    }
}
