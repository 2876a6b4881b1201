//! References for the kernels on images: rows of pixels, the top row first.

/// Computes the convolution of an image with a filter of odd extents. Pixels outside the image have the value of the
/// nearest pixel inside.
pub fn convolve_2d(
    image: &[f32],
    [height, width]: [usize; 2],
    filter: &[f32],
    [rows, columns]: [usize; 2],
) -> Vec<f32> {
    assert_eq!((image.len(), filter.len()), (height * width, rows * columns), "image and filter have the sizes said");
    assert!(rows % 2 == 1 && columns % 2 == 1, "the filter has a centre");
    let pixel = |y: usize, x: usize| {
        let mut sum = 0.0;
        for row in 0..rows {
            for column in 0..columns {
                // In a convolution, the filter is applied in reverse order.
                let (from_y, from_x) = (clamped(y + rows / 2, row, height), clamped(x + columns / 2, column, width));
                sum += f64::from(filter[row * columns + column]) * f64::from(image[from_y * width + from_x]);
            }
        }
        sum as f32
    };
    (0..height).flat_map(|y| (0..width).map(move |x| pixel(y, x))).collect()
}

/// Computes `from - back`, clamped to `0..extent`.
fn clamped(from: usize, back: usize, extent: usize) -> usize {
    from.saturating_sub(back).min(extent - 1)
}

/// Computes the magnitude of an image's gradient by Sobel's two filters, rounded to the nearest integer (halves to
/// even) and limited to 255.
pub fn sobel(image: &[u8], [height, width]: [usize; 2]) -> Vec<u8> {
    assert_eq!(image.len(), height * width, "the image has the size said");
    let pixel = |y: usize, x: usize| {
        // `at(0, 0)` is the neighbour above and to the left.
        let at = |row: usize, column: usize| {
            let (y, x) = (clamped(y + row, 1, height), clamped(x + column, 1, width));
            i32::from(image[y * width + x])
        };
        let across = (at(0, 2) + 2 * at(1, 2) + at(2, 2)) - (at(0, 0) + 2 * at(1, 0) + at(2, 0));
        let down = (at(2, 0) + 2 * at(2, 1) + at(2, 2)) - (at(0, 0) + 2 * at(0, 1) + at(0, 2));
        let magnitude = f64::from(across * across + down * down).sqrt();
        magnitude.round_ties_even().min(255.0) as u8
    };
    (0..height).flat_map(|y| (0..width).map(move |x| pixel(y, x))).collect()
}

/// The part of the complex plane that an image shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MandelbrotView {
    pub width: u32,
    pub height: u32,
    pub centre_x: f32,
    pub centre_y: f32,
    /// Distance between neighbouring pixels.
    pub step: f32,
}

/// Counts, for each pixel, how many iterations of `z ← z² + c` stay within the circle of radius 2, up to
/// `max_iterations`.
///
/// Near the border of the set every rounding matters, so the operations and their order are part of the definition.
pub fn mandelbrot(view: MandelbrotView, max_iterations: u32) -> Vec<u32> {
    // Twice the distance from the centre, in whole pixels. This is exact, and symmetric about the centre.
    let place = |at: u32, extent: u32, centre: f32| {
        let twice = i64::from(at) * 2 + 1 - i64::from(extent);
        (twice as f32).mul_add(0.5 * view.step, centre)
    };
    let pixel = |y: u32, x: u32| {
        let (c_x, c_y) = (place(x, view.width, view.centre_x), place(y, view.height, view.centre_y));
        let (mut z_x, mut z_y) = (0.0_f32, 0.0_f32);
        let mut iterations = 0;
        while iterations < max_iterations {
            let square_y = z_y * z_y;
            if z_x.mul_add(z_x, square_y) > 4.0 {
                break;
            }
            let next_x = z_x.mul_add(z_x, c_x - square_y);
            z_y = (z_x + z_x).mul_add(z_y, c_y);
            z_x = next_x;
            iterations += 1;
        }
        iterations
    };
    (0..view.height).flat_map(|y| (0..view.width).map(move |x| pixel(y, x))).collect()
}
