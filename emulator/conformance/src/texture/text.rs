//! The line of a case file that describes a texture.

use std::fmt;

use super::{Channel, Mode, Sampling, Shape, Texture};

const SHAPES: [(Shape, &str); 9] = [
    (Shape::Linear, "linear"),
    (Shape::Pitched, "pitched"),
    (Shape::Line, "line"),
    (Shape::Plane, "plane"),
    (Shape::Volume, "volume"),
    (Shape::Lines, "lines"),
    (Shape::Planes, "planes"),
    (Shape::Cube, "cube"),
    (Shape::Cubes, "cubes"),
];

const CHANNELS: [&str; 8] = ["u8", "u16", "u32", "s8", "s16", "s32", "f16", "f32"];

impl Channel {
    pub fn name(self) -> &'static str {
        let place = Channel::ALL.iter().position(|channel| *channel == self).expect("all channels are listed");
        CHANNELS[place]
    }
}

impl Shape {
    pub fn name(self) -> &'static str {
        SHAPES.iter().find(|(shape, _)| *shape == self).expect("all shapes are listed").1
    }
}

impl fmt::Display for Texture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sampling { modes, linear, normalized, integers, srgb, border, linear_levels, bias, levels } = self.sampling;
        let [x, y, z] = self.size;
        write!(f, "{} {} {} {x} {y} {z} {}", self.shape.name(), self.channel.name(), self.channels, self.levels)?;
        write!(f, " {} {} {}", modes[0], modes[1], modes[2])?;
        for flag in [self.is_surface, linear, normalized, integers, srgb, linear_levels] {
            write!(f, " {}", u32::from(flag))?;
        }
        for number in border.into_iter().chain([bias]).chain(levels) {
            write!(f, " {:08x}", number.to_bits())?;
        }
        Ok(())
    }
}

impl Texture {
    pub fn parse(text: &str) -> Option<Texture> {
        let mut words = text.split_whitespace();
        let shape = words.next()?;
        let shape = SHAPES.iter().find(|(_, name)| *name == shape)?.0;
        let channel = words.next()?;
        let channel = Channel::ALL[CHANNELS.iter().position(|name| *name == channel)?];
        let mut number = || words.next()?.parse::<u32>().ok();
        let (channels, size, levels) = (number()?, [number()?, number()?, number()?], number()?);
        let mut mode = || {
            let name = words.next()?;
            [Mode::Wrap, Mode::Clamp, Mode::Mirror, Mode::Border].into_iter().find(|mode| mode.to_string() == name)
        };
        let modes = [mode()?, mode()?, mode()?];
        let mut flag = || Some(words.next()? == "1");
        let [is_surface, linear, normalized, integers, srgb, linear_levels] =
            [flag()?, flag()?, flag()?, flag()?, flag()?, flag()?];
        let mut float = || u32::from_str_radix(words.next()?, 16).ok().map(f32::from_bits);
        let border = [float()?, float()?, float()?, float()?];
        let (bias, bounds) = (float()?, [float()?, float()?]);
        let sampling =
            Sampling { modes, linear, normalized, integers, srgb, border, linear_levels, bias, levels: bounds };
        Some(Texture { shape, channel, channels, size, levels, is_surface, sampling })
    }
}
