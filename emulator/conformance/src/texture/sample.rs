//! Results of texture reads.
//!
//! The formulas are those of the CUDA C++ Programming Guide: "Texture Fetching" for nearest-point sampling and linear
//! filtering with weights of 8 fractional bits, and "Texture Memory" for address modes. Mipmapping follows OpenGL, and
//! the face of a cube map the guide's table.

use std::ops::Deref;

use super::{Channel, Mode, Shape, Texture, exact::Exact};
use crate::kind::Kind;
use crate::scalar::float::{Format, approximate};

/// A texel of an axis, `None` for the border, and its weight in 256ths.
type Tap = (Option<u32>, u32);

/// The place of a read.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Coordinates, or a direction in a cube map.
    pub point: [f32; 3],
    pub layer: u32,
    pub offset: [i32; 3],
}

/// A texture with the contents of its levels.
#[derive(Clone, Debug)]
pub struct Filled {
    texture: Texture,
    held: Vec<Vec<u8>>,
}

impl Deref for Filled {
    type Target = Texture;

    fn deref(&self) -> &Texture {
        &self.texture
    }
}

impl Filled {
    pub fn new(texture: &Texture) -> Filled {
        let held = (0..texture.levels).map(|level| texture.level_bytes(level)).collect();
        Filled { texture: texture.clone(), held }
    }

    /// Returns the components of a read from the first level, by coordinates.
    pub fn sample(&self, at: At) -> Vec<u64> {
        self.bits(&self.filtered(0, at))
    }

    /// Returns the components of a read from the level with this number.
    pub fn sample_level(&self, at: At, wanted: f64) -> Vec<u64> {
        let sampling = &self.sampling;
        let bounded = (wanted + f64::from(sampling.bias)).max(sampling.levels[0].into()).min(sampling.levels[1].into());
        let bounded = bounded.clamp(0.0, f64::from(self.levels - 1));
        if !sampling.linear_levels {
            // At the midpoint, the finer level.
            return self.bits(&self.filtered((bounded - 0.5).ceil().max(0.0) as u32, at));
        }
        let in_256ths = (bounded * 256.0 + 0.5).floor() as u32;
        let (level, weight) = (in_256ths / 256, in_256ths % 256);
        let fine = self.filtered(level, at);
        if weight == 0 {
            return self.bits(&fine);
        }
        let coarse = self.filtered(level + 1, at);
        let mixed = |fine: &f64, coarse: &f64| (fine * f64::from(256 - weight) + coarse * f64::from(weight)) / 256.0;
        self.bits(&fine.iter().zip(&coarse).map(|(fine, coarse)| mixed(fine, coarse)).collect::<Vec<_>>())
    }

    /// Returns the level for steps from one pixel to the next, given in coordinates.
    pub fn level_of_steps(&self, steps: [[f32; 3]; 2]) -> f64 {
        let length = |step: [f32; 3]| {
            let along = |axis: usize| {
                let scale = if self.sampling.normalized { f64::from(self.size[axis]) } else { 1.0 };
                f64::from(step[axis]) * scale
            };
            (along(0).powi(2) + along(1).powi(2) + along(2).powi(2)).sqrt()
        };
        length(steps[0]).max(length(steps[1])).log2()
    }

    /// Returns the components of a texel by its numbers, without filtering.
    pub fn texel_at(&self, index: [i32; 3], layer: u32) -> Vec<u64> {
        let size = self.level_size(0);
        let along = |axis: usize| {
            if axis >= self.shape.axes() {
                return Some(0);
            }
            let (at, size) = (i64::from(index[axis]), i64::from(size[axis]));
            match self.mode(axis) {
                Mode::Border => (0..size).contains(&at).then_some(at as u32),
                _ => Some(at.clamp(0, size - 1) as u32),
            }
        };
        let z = if self.shape.has_layers() { Some(layer.min(size[2] - 1)) } else { along(2) };
        let texel = along(0).zip(along(1)).zip(z).map(|((x, y), z)| [x, y, z]);
        self.bits(&self.components(0, texel))
    }

    /// Returns one component of the four texels around a point: lower left, lower right, upper right, upper left, where
    /// the second coordinate grows downwards.
    pub fn gather(&self, at: At, component: usize) -> Vec<u64> {
        let (axes, z) = self.axes(0, at, true);
        let [x, y] = [axes[0], axes[1]];
        let texel = |(x, y): (Tap, Tap)| x.0.zip(y.0).zip(z[0].0).map(|((x, y), z)| [x, y, z]);
        let around = [(x[0], y[1]), (x[1], y[1]), (x[1], y[0]), (x[0], y[0])];
        around.map(|place| self.bits(&self.components(0, texel(place)))[component]).to_vec()
    }

    /// Returns the weighted mean of the texels around a point.
    fn filtered(&self, level: u32, at: At) -> Vec<f64> {
        let linear = self.sampling.linear && self.gives_floats() && self.shape != Shape::Linear;
        let ([x, y], z) = self.axes(level, at, linear);
        let mut sums = vec![0.0; self.channels as usize];
        for (zi, zw) in z {
            for (yi, yw) in y {
                for (xi, xw) in x {
                    let weight = f64::from(xw) * f64::from(yw) * f64::from(zw) / f64::from(1 << 24);
                    if weight == 0.0 {
                        continue;
                    }
                    let texel = xi.zip(yi).zip(zi).map(|((x, y), z)| [x, y, z]);
                    for (sum, value) in sums.iter_mut().zip(self.components(level, texel)) {
                        *sum += weight * value;
                    }
                }
            }
        }
        sums
    }

    /// Returns the texels of each axis; the third is the layer, if there are layers.
    fn axes(&self, level: u32, at: At, linear: bool) -> ([[Tap; 2]; 2], [Tap; 2]) {
        const ONLY: [Tap; 2] = [(Some(0), 256), (None, 0)];
        let size = self.level_size(level);
        let along = |axis: usize, coordinate: Exact, mode: Mode, normalized: bool| {
            let offset = Exact::whole(at.offset[axis].into());
            taps(coordinate, offset, size[axis], mode, normalized, linear)
        };
        if self.shape.is_cube() {
            let (face, s, t) = face(at.point.map(Exact::of));
            let layer = at.layer.min(size[2] / 6 - 1) * 6 + face;
            let [s, t] = [(0, s), (1, t)].map(|(axis, at)| along(axis, at, Mode::Clamp, true));
            return ([s, t], [(Some(layer), 256), (None, 0)]);
        }
        let point = |axis: usize| {
            if axis < self.shape.axes() {
                along(axis, Exact::of(at.point[axis]), self.mode(axis), self.sampling.normalized)
            } else {
                ONLY
            }
        };
        let z = if self.shape.has_layers() { [(Some(at.layer.min(size[2] - 1)), 256), (None, 0)] } else { point(2) };
        ([point(0), point(1)], z)
    }

    /// Returns the address mode: linear memory has none, and outside it reads as 0.
    fn mode(&self, axis: usize) -> Mode {
        if self.shape == Shape::Linear { Mode::Border } else { self.sampling.modes[axis] }
    }

    /// Returns the components of a texel, or of the border, as numbers.
    fn components(&self, level: u32, texel: Option<[u32; 3]>) -> Vec<f64> {
        let channels = 0..self.channels as usize;
        let Some([x, y, z]) = texel else {
            let border = if self.shape == Shape::Linear { [0.0; 4] } else { self.sampling.border };
            // Integers have the bits of the border colour's floats.
            let part = |channel: usize| match self.gives_floats() {
                true => f64::from(border[channel]),
                false => f64::from(border[channel].to_bits()),
            };
            return channels.map(part).collect();
        };
        let [width, height, _] = self.level_size(level);
        let bytes = &self.held[level as usize];
        let start = ((z * height + y) * width + x) as usize * self.texel_bytes();
        let size = self.channel.bytes();
        let bits = |channel: usize| {
            let bytes = &bytes[start + channel * size..][..size];
            bytes.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
        };
        channels.map(|channel| self.number(bits(channel), channel)).collect()
    }

    fn number(&self, bits: u32, channel: usize) -> f64 {
        let unused = 32 - 8 * self.channel.bytes() as u32;
        let signed = f64::from((bits << unused).cast_signed() >> unused);
        if !self.gives_floats() {
            return if self.channel.is_signed() { signed } else { f64::from(bits) };
        }
        match self.channel {
            Channel::F32 => f64::from(f32::from_bits(bits)),
            Channel::F16 => approximate(Format::of(Kind::F16), bits.into()),
            Channel::U8 if self.sampling.srgb && channel < 3 => linear_of_srgb(f64::from(bits) / 255.0),
            Channel::U8 => f64::from(bits) / 255.0,
            Channel::U16 => f64::from(bits) / 65_535.0,
            Channel::S8 => (signed / 127.0).max(-1.0),
            Channel::S16 => (signed / 32_767.0).max(-1.0),
            Channel::U32 | Channel::S32 => unreachable!("these are read as integers"),
        }
    }

    fn bits(&self, components: &[f64]) -> Vec<u64> {
        let bits = |number: &f64| match self.gives_floats() {
            true => u64::from((*number as f32).to_bits()),
            false => (*number as i64) as u64 & 0xffff_ffff,
        };
        components.iter().map(bits).collect()
    }
}

/// Converts an sRGB value to a linear one (IEC 61966-2-1).
fn linear_of_srgb(encoded: f64) -> f64 {
    if encoded <= 0.04045 { encoded / 12.92 } else { ((encoded + 0.055) / 1.055).powf(2.4) }
}

/// Returns the texels of one axis for a coordinate.
fn taps(coordinate: Exact, offset: Exact, size: u32, mode: Mode, normalized: bool, linear: bool) -> [Tap; 2] {
    // Other coordinates can't be wrapped or mirrored.
    let mode = if normalized || mode == Mode::Border { mode } else { Mode::Clamp };
    let scaled = if normalized { coordinate.times(size) } else { coordinate }.plus(offset);
    // Number of repetitions of the image before the coordinate.
    let (mut repetition, whole) = (0, Exact::whole(size.into()));
    let mut within = scaled;
    while within.is_negative() {
        within = within.plus(whole);
        repetition -= 1;
    }
    while within >= whole {
        within = within.minus(whole);
        repetition += 1;
    }
    let x = match mode {
        Mode::Wrap => within,
        Mode::Mirror if repetition % 2 == 0 => within,
        Mode::Mirror => whole.minus(within),
        Mode::Clamp | Mode::Border => scaled,
    };
    let index = |i: i64| match mode {
        Mode::Wrap => Some(i.rem_euclid(size.into()) as u32),
        Mode::Clamp | Mode::Mirror => Some(i.clamp(0, i64::from(size) - 1) as u32),
        Mode::Border => u32::try_from(i).ok().filter(|i| *i < size),
    };
    if !linear {
        return [(index(x.floor()), 256), (None, 0)];
    }
    let between = x.minus(Exact::half());
    let (first, weight) = (between.floor(), between.fraction().in_256ths() as u32);
    [(index(first), 256 - weight), (index(first + 1), weight)]
}

/// Returns the face that a direction meets, and coordinates on it from 0 to 1, by the guide's table.
fn face([x, y, z]: [Exact; 3]) -> (u32, Exact, Exact) {
    let [ax, ay, az] = [x, y, z].map(Exact::magnitude);
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x.is_negative() { (1, ax, z, y.negated()) } else { (0, ax, z.negated(), y.negated()) }
    } else if ay >= az {
        if y.is_negative() { (3, ay, x, z.negated()) } else { (2, ay, x, z) }
    } else if z.is_negative() {
        (5, az, x.negated(), y.negated())
    } else {
        (4, az, x, y.negated())
    };
    let placed = |at: Exact| at.over(m).plus(Exact::whole(1)).over(Exact::whole(2));
    (face, placed(s), placed(t))
}
