//! The sample files of the documentation: two arrays, a picture, and a kernel that finds its edges.

use gpufleet::{Array, schema::Dtype};

use super::scene;

/// Elements of each array.
const ELEMENTS: usize = 1_000_000;
const PHOTO_WIDTH: u32 = 640;
const PHOTO_HEIGHT: u32 = 480;

pub const EDGE: (&str, &str) = ("edge.cu", include_str!("samples/edge.cu"));

/// The files with arrays. `x` rises slowly, and `y` swings.
pub fn arrays() -> [(&'static str, Array); 3] {
    let at = |index: usize| index as f32 / ELEMENTS as f32;
    let x: Vec<f32> = (0..ELEMENTS).map(at).collect();
    let y: Vec<f32> = (0..ELEMENTS).map(|index| (at(index) * 100.0).sin()).collect();
    [("x.npy", Array::from_slice(&x)), ("y.npy", Array::from_slice(&y)), ("photo.png", photo())]
}

fn photo() -> Array {
    let shape = vec![PHOTO_HEIGHT.into(), PHOTO_WIDTH.into(), 3];
    let pixels = scene::render(PHOTO_WIDTH, PHOTO_HEIGHT);
    Array::new(Dtype::U8, shape, pixels).expect("a pixel has three bytes")
}
