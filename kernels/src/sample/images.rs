//! Samples for the kernels on images.

use super::{
    draft::{Draft, Sample},
    noise::Noise,
};
use crate::reference::{self, MandelbrotView};

pub(super) fn convolve_2d() -> Vec<Sample> {
    let sample = |([height, width], [rows, columns]): ([usize; 2], [usize; 2])| {
        let mut noise = Noise::new((height * width) as u64);
        let (image, filter) = (noise.uniform(height * width, 0.0, 1.0), noise.uniform(rows * columns, -1.0, 1.0));
        let result = reference::convolve_2d(&image, [height, width], &filter, [rows, columns]);
        let draft = Draft::new("convolve_2d").input("image", &[height, width], &image);
        draft.input("filter", &[rows, columns], &filter).expect("result", &[height, width], &result).finish()
    };
    // The third filter is larger than its image.
    [([1, 1], [1, 1]), ([45, 67], [3, 5]), ([4, 3], [9, 7])].map(sample).into()
}

pub(super) fn sobel() -> Vec<Sample> {
    let sample = |[height, width]: [usize; 2]| {
        // A slope with noise gives small, medium and saturated magnitudes.
        let noise = Noise::new((height * width) as u64).bytes(height * width);
        let pixel = |(at, noise): (usize, u8)| ((at % width) / 2 + usize::from(noise) / 3).min(255) as u8;
        let image: Vec<u8> = noise.into_iter().enumerate().map(pixel).collect();
        let edges = reference::sobel(&image, [height, width]);
        let draft = Draft::new("sobel").input("image", &[height, width], &image);
        draft.expect("edges", &[height, width], &edges).finish()
    };
    [[1, 1], [50, 71], [64, 128]].map(sample).into()
}

pub(super) fn mandelbrot() -> Vec<Sample> {
    let sample = |(view, max_iterations): (MandelbrotView, u32)| {
        let iterations = reference::mandelbrot(view, max_iterations);
        let draft = Draft::new("mandelbrot").argument("width", view.width).argument("height", view.height);
        let draft = draft.argument("centre_x", view.centre_x).argument("centre_y", view.centre_y);
        let draft = draft.argument("step", view.step).argument("max_iterations", max_iterations);
        draft.expect("iterations", &[view.height as usize, view.width as usize], &iterations).finish()
    };
    let whole = MandelbrotView { width: 101, height: 67, centre_x: -0.5, centre_y: 0.0, step: 0.03 };
    let seahorses = MandelbrotView { width: 64, height: 48, centre_x: -0.745, centre_y: 0.113, step: 0.000_2 };
    [(whole, 100), (seahorses, 300)].map(sample).into()
}
