//! Fetches: from coordinates to the four components that a kernel receives (`tex`, `tld4`).

use super::axis::{Axis, Tap, WEIGHT_ONE};
use super::cube;
use super::image::{Kind, Level};
use super::level::{LevelChoice, levels};
use super::sampler::{AddressMode, Filter, Sampler};
use super::texel::BYTES_MAX;
use super::{Geometry, Texture};

/// Coordinates of a fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinates {
    pub place: Place,
    pub layer: u64,
    /// Offset in texels along each axis.
    pub offset: [i32; 3],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Texel numbers along each axis: never filtered, whatever the sampler says.
    Texel([i32; 3]),
    Point([f64; 3]),
}

/// The four components: floats, or integers that are not converted to floats.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Numbers([f64; 4]),
    Integers([u32; 4]),
}

/// The texels of one level that a fetch reads, by axis.
type Footprint = [[Tap; 2]; 3];

impl Texture {
    /// Returns the components, as bits of an f32 or of an integer.
    ///
    /// # Safety
    /// The image is in live memory.
    pub unsafe fn fetch(&self, geometry: Geometry, at: &Coordinates, choice: LevelChoice) -> [u32; 4] {
        let choice = match choice {
            LevelChoice::Gradients(steps) => {
                LevelChoice::Gradients(steps.map(|step| self.step_in_texels(geometry, at, step)))
            }
            choice => choice,
        };
        let [(first, weight), (second, other)] = levels(&self.image, &self.sampler, choice);
        // SAFETY: passed on to the caller.
        let read = |level: usize| unsafe { self.filter(&self.image.levels[level], geometry, at) };
        let value = match (read(first), other) {
            (Value::Numbers(one), 1..) => match read(second) {
                Value::Numbers(two) => Value::Numbers(std::array::from_fn(|index| {
                    (one[index] * f64::from(weight) + two[index] * f64::from(other)) / f64::from(WEIGHT_ONE)
                })),
                Value::Integers(_) => Value::Numbers(one),
            },
            (value, _) => value,
        };
        match value {
            Value::Numbers(numbers) => numbers.map(|number| (number as f32).to_bits()),
            Value::Integers(integers) => integers,
        }
    }

    /// Converts a step from one pixel to the next to texels of the first level. In a cube map, it is the step on the
    /// direction's face.
    fn step_in_texels(&self, geometry: Geometry, at: &Coordinates, step: [f64; 3]) -> [f64; 3] {
        let Level { width, height, depth, .. } = self.image.levels[0];
        let sizes = [width, height, depth].map(|size| size as f64);
        let (step, is_normalized) = match at.place {
            Place::Point(direction) if geometry.is_cube() => {
                let [s, t] = cube::step(direction, step);
                ([s, t, 0.0], true)
            }
            _ => (step, self.sampler.is_normalized),
        };
        if is_normalized { std::array::from_fn(|axis| step[axis] * sizes[axis]) } else { step }
    }

    /// Gathers one component of the four texels that linear filtering reads, counter-clockwise from the lower left.
    ///
    /// # Safety
    /// The image is in live memory.
    pub unsafe fn gather(&self, geometry: Geometry, at: &Coordinates, component: usize) -> [u32; 4] {
        let level = &self.image.levels[0];
        let [x, y, z] = self.footprint(level, geometry, at, Filter::Linear);
        [(0, 1), (1, 1), (1, 0), (0, 0)].map(|(right, up)| {
            // SAFETY: passed on to the caller.
            match unsafe { self.texel(level, [x[right], y[up], z[0]]) } {
                Value::Numbers(numbers) => (numbers[component] as f32).to_bits(),
                Value::Integers(integers) => integers[component],
            }
        })
    }

    /// # Safety
    /// The image is in live memory.
    unsafe fn filter(&self, level: &Level, geometry: Geometry, at: &Coordinates) -> Value {
        let [x, y, z] = self.footprint(level, geometry, at, self.filter_of(at));
        let mut sum = [0.0; 4];
        for z in z.into_iter().filter(|tap| tap.weight > 0) {
            for y in y.into_iter().filter(|tap| tap.weight > 0) {
                for x in x.into_iter().filter(|tap| tap.weight > 0) {
                    // SAFETY: passed on to the caller.
                    let numbers = match unsafe { self.texel(level, [x, y, z]) } {
                        Value::Numbers(numbers) => numbers,
                        // Without filtering it is the only texel.
                        integers @ Value::Integers(_) => return integers,
                    };
                    let weight = f64::from(x.weight) * f64::from(y.weight) * f64::from(z.weight);
                    for (sum, number) in sum.iter_mut().zip(numbers) {
                        *sum += number * weight;
                    }
                }
            }
        }
        Value::Numbers(sum.map(|sum| sum / f64::from(WEIGHT_ONE).powi(3)))
    }

    fn filter_of(&self, at: &Coordinates) -> Filter {
        let is_plain = self.image.kind == Kind::Linear
            || matches!(at.place, Place::Texel(_))
            || !self.sampler.gives_floats(self.image.format.channel);
        if is_plain { Filter::Point } else { self.sampler.filter }
    }

    fn footprint(&self, level: &Level, geometry: Geometry, at: &Coordinates, filter: Filter) -> Footprint {
        let Sampler { address, is_normalized, .. } = self.sampler;
        let sizes = [level.width, level.height, level.depth];
        let (place, modes, is_normalized, layer) = match at.place {
            Place::Point(direction) if geometry.is_cube() => {
                let (face, [s, t]) = cube::face(direction);
                let cubes = level.depth / 6;
                let layer = at.layer.min(cubes.saturating_sub(1)) * 6 + face;
                ([s, t, 0.0], [AddressMode::Clamp; 3], true, layer)
            }
            Place::Point(point) => (point, address, is_normalized, at.layer),
            Place::Texel(texel) => (texel.map(f64::from), address, false, at.layer),
        };
        let layered = Tap { index: Some(layer.min(level.depth - 1)), weight: WEIGHT_ONE };
        let only = Tap { index: Some(0), weight: WEIGHT_ONE };
        let none = Tap { index: None, weight: 0 };
        let axes = if geometry.is_cube() { 2 } else { geometry.axes() };
        let has_layers = geometry.is_layered() || geometry.is_cube();
        std::array::from_fn(|axis| match axis {
            2 if has_layers => [layered, none],
            _ if axis >= axes => [only, none],
            _ => {
                let scale = if is_normalized { sizes[axis] as f64 } else { 1.0 };
                let along = Axis::new(sizes[axis], self.mode(modes[axis]), is_normalized);
                along.taps(place[axis] * scale + f64::from(at.offset[axis]), filter)
            }
        })
    }

    /// Returns the address mode: linear memory reads as 0 outside, whatever the sampler says.
    fn mode(&self, mode: AddressMode) -> AddressMode {
        if self.image.kind == Kind::Linear { AddressMode::Border } else { mode }
    }

    /// # Safety
    /// The image is in live memory.
    unsafe fn texel(&self, level: &Level, [x, y, z]: [Tap; 3]) -> Value {
        let (format, sampler) = (self.image.format, &self.sampler);
        let gives_floats = sampler.gives_floats(format.channel);
        let (Some(x), Some(y), Some(z)) = (x.index, y.index, z.index) else {
            let border = if self.image.kind == Kind::Linear { [0.0; 4] } else { sampler.border };
            return match gives_floats {
                true => Value::Numbers(border.map(f64::from)),
                false => Value::Integers(border.map(f32::to_bits)),
            };
        };
        let size = format.texel_bytes() as usize;
        let mut bytes = [0; BYTES_MAX];
        let source = std::ptr::with_exposed_provenance::<u8>(level.texel([x, y, z], size as u64) as usize);
        // SAFETY: the indices are inside the level, which is in live memory.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), size) };
        match gives_floats {
            true => Value::Numbers(format.numbers(&bytes, sampler.is_srgb).map(f64::from)),
            false => Value::Integers(format.integers(&bytes)),
        }
    }
}
