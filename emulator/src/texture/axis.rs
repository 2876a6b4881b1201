//! Texture coordinates: which texels of an axis a coordinate selects, and their weights.

use super::sampler::{AddressMode, Filter};

/// Fractional bits of linear filtering weights (CUDA C++ Programming Guide, "Linear Filtering").
const WEIGHT_BITS: u32 = 8;
/// Sum of the weights of an axis, which stands for 1.
pub const WEIGHT_ONE: u32 = 1 << WEIGHT_BITS;

/// Largest coordinate; larger ones are cut. It is a multiple of every size, because wrapping depends on that.
const COORDINATE_MAX: f64 = (1u64 << 60) as f64;

/// A texel of an axis and its weight. It has no index if the coordinate is outside and the address mode gives the
/// border colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    pub index: Option<u64>,
    pub weight: u32,
}

/// An axis of an image, with the sampler's address mode.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub size: u64,
    pub mode: AddressMode,
}

impl Axis {
    /// Makes an axis. Wrapping and mirroring need normalized coordinates; otherwise coordinates are clamped.
    pub fn new(size: u64, mode: AddressMode, is_normalized: bool) -> Axis {
        let mode = match mode {
            AddressMode::Wrap | AddressMode::Mirror if !is_normalized => AddressMode::Clamp,
            mode => mode,
        };
        Axis { size, mode }
    }

    /// Returns the texels for a coordinate in texels; without filtering the second has weight 0.
    pub fn taps(self, at: f64, filter: Filter) -> [Tap; 2] {
        let at = self.mirrored(bounded(at));
        match filter {
            Filter::Point => {
                let first = Tap { index: self.index(at.floor()), weight: WEIGHT_ONE };
                [first, Tap { index: None, weight: 0 }]
            }
            Filter::Linear => {
                let (first, weight) = split(at - 0.5);
                let tap = |index: f64, weight| Tap { index: self.index(index), weight };
                [tap(first, WEIGHT_ONE - weight), tap(first + 1.0, weight)]
            }
        }
    }

    /// Returns the coordinate inside the image for a mirrored one: every other repetition of the image is reversed.
    fn mirrored(self, at: f64) -> f64 {
        if self.mode != AddressMode::Mirror {
            return at;
        }
        let size = self.size as f64;
        let repetition = (at / size).floor();
        if repetition.rem_euclid(2.0) == 0.0 { at - repetition * size } else { (repetition + 1.0) * size - at }
    }

    /// Returns the texel for an index, which may be outside; `None` for the border colour.
    fn index(self, index: f64) -> Option<u64> {
        let size = self.size as f64;
        match self.mode {
            AddressMode::Clamp | AddressMode::Mirror => Some(index.clamp(0.0, size - 1.0) as u64),
            AddressMode::Border => (0.0..size).contains(&index).then_some(index as u64),
            AddressMode::Wrap => Some(index.rem_euclid(size) as u64),
        }
    }
}

/// Returns the whole part of a number, and its fraction in units of 1/256, rounded to nearest, halves up. So a fraction
/// of nearly one becomes 256 units.
pub fn split(number: f64) -> (f64, u32) {
    let whole = number.floor();
    (whole, ((number - whole) * f64::from(WEIGHT_ONE) + 0.5).floor() as u32)
}

/// Limits a coordinate; a NaN becomes 0.
fn bounded(at: f64) -> f64 {
    if at.is_nan() { 0.0 } else { at.clamp(-COORDINATE_MAX, COORDINATE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::{AddressMode, Axis, Filter, Tap, split};

    fn indices(mode: AddressMode) -> Vec<Option<u64>> {
        let axis = Axis { size: 3, mode };
        (-5..8).map(|index| axis.taps(f64::from(index) + 0.5, Filter::Point)[0].index).collect()
    }

    #[test]
    fn indices_outside_are_brought_back_as_the_mode_says() {
        let some = |indices: [u64; 13]| indices.map(Some).to_vec();
        assert_eq!(indices(AddressMode::Wrap), some([1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]));
        assert_eq!(indices(AddressMode::Clamp), some([0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]));
        assert_eq!(indices(AddressMode::Mirror), some([1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1]));
        let inside = indices(AddressMode::Border).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(inside, [0, 1, 2]);
    }

    #[test]
    fn weights_have_eight_bits() {
        assert_eq!(split(2.0 + 1.0 / 512.0), (2.0, 1));
        assert_eq!(split(2.0 + 1.0 / 513.0), (2.0, 0));
        assert_eq!(split(1.0 - 1.0 / 512.0), (0.0, 256));
        assert_eq!(split(-0.25), (-1.0, 192));
    }

    #[test]
    fn what_is_no_number_or_no_end_is_some_texel() {
        let axis = Axis { size: 5, mode: AddressMode::Wrap };
        for at in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(axis.taps(at, Filter::Linear).iter().all(|tap| tap.index.is_some_and(|index| index < 5)), "{at}");
        }
        assert_eq!(axis.taps(f64::NAN, Filter::Point)[0], Tap { index: Some(0), weight: 256 });
    }
}
