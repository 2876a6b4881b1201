//! Mipmap levels: which ones a fetch reads (OpenGL 4.6, 8.14).

use super::axis::{WEIGHT_ONE, split};
use super::image::Image;
use super::sampler::{Filter, Sampler};

/// How an instruction chooses the level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LevelChoice {
    /// The first level.
    Base,
    /// The level of this number, with a fraction.
    Level(f32),
    /// The level by gradients: the steps of the coordinates between neighbouring pixels, along x and along y.
    /// [`levels`] expects them in texels.
    Gradients([[f64; 3]; 2]),
}

/// A level and its weight.
pub type LevelTap = (usize, u32);

/// Returns the levels that are read, with weights; the second may have weight 0.
pub fn levels(image: &Image, sampler: &Sampler, choice: LevelChoice) -> [LevelTap; 2] {
    let last = image.levels.len() - 1;
    let wanted = match choice {
        LevelChoice::Base => return [(0, WEIGHT_ONE), (0, 0)],
        _ if last == 0 => return [(0, WEIGHT_ONE), (0, 0)],
        LevelChoice::Level(level) => f64::from(level),
        LevelChoice::Gradients(steps) => footprint(steps),
    };
    let biased = wanted + f64::from(sampler.level_bias);
    let biased = if biased.is_nan() { 0.0 } else { biased };
    // `max` and `min` separately, because a caller's bounds may be reversed, or NaN, which has no effect.
    let bounded = biased.max(sampler.level_min.into()).min(sampler.level_max.into());
    let bounded = bounded.clamp(0.0, last as f64);
    match sampler.mipmap_filter {
        Filter::Point => [((bounded + 0.5).ceil() as usize - 1, WEIGHT_ONE), (0, 0)],
        Filter::Linear => {
            let (first, weight) = split(bounded);
            let first = first as usize;
            [(first, WEIGHT_ONE - weight), ((first + 1).min(last), weight)]
        }
    }
}

/// Returns the level whose texels are as large as a pixel: the base-2 logarithm of the longer of the two steps, in
/// texels.
fn footprint(steps: [[f64; 3]; 2]) -> f64 {
    let length = |step: [f64; 3]| step.iter().map(|part| part * part).sum::<f64>().sqrt();
    libm::log2(steps.into_iter().map(length).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::{LevelChoice, levels};
    use crate::texture::format::{Channel, Format};
    use crate::texture::image::{Extent, Image};
    use crate::texture::sampler::{Filter, Sampler};

    #[test]
    fn bounds_and_biases_that_are_no_numbers_do_not_count() {
        let extent = Extent { width: 8, height: 8, depth: 0, is_layered: false, is_cube: false };
        let image = Image::array(Format { channel: Channel::F32, channels: 1 }, extent, 4, 0);
        for mipmap_filter in [Filter::Point, Filter::Linear] {
            let nan = f32::NAN;
            let open = Sampler { mipmap_filter, level_min: nan, level_max: nan, ..Sampler::default() };
            assert_eq!(levels(&image, &open, LevelChoice::Level(2.0))[0].0, 2);
            assert_eq!(levels(&image, &open, LevelChoice::Level(nan))[0].0, 0);
            let biased = Sampler { level_bias: nan, ..open };
            assert_eq!(levels(&image, &biased, LevelChoice::Level(2.0))[0].0, 0);
        }
    }
}
