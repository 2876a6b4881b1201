//! Texture fetches (`tex`, `tld4`) and queries (`txq`), on textures of every shape, format and address mode.
//!
//! Two things are not defined and have no case: the missing components of a texture with fewer than four channels, and
//! layers that do not exist.

use super::Grammar;
use crate::{
    compare::Tolerance,
    kind::Kind::{self, *},
    recipe::{Form, INPUTS, OUTPUTS, forms},
    texture::{
        Channel,
        Mode::{self, Border, Clamp, Mirror, Wrap},
        Sampling, Shape, Texture,
        sample::{At, Filled},
    },
};

const PLAIN: Sampling = Sampling {
    modes: [Clamp; 3],
    linear: false,
    normalized: false,
    integers: false,
    srgb: false,
    border: [0.0; 4],
    linear_levels: false,
    bias: 0.0,
    levels: [0.0, 0.0],
};
const BORDER: [f32; 4] = [0.5, -2.0, 8.0, 0.25];
/// A different address mode for each axis.
const MIXED: [Mode; 3] = [Mirror, Wrap, Border];

/// Coordinates from 0 to 1 and slightly outside, at the edges of texels and between them.
const NORMALIZED: [f32; 30] = [
    -2.25,
    -1.0,
    -0.5,
    -0.125,
    -1.0 / 4096.0,
    0.0,
    1.0 / 4096.0,
    1.0 / 512.0,
    0.0625,
    0.1875,
    0.25,
    0.3125,
    0.5,
    0.625,
    0.75,
    0.875,
    0.9375,
    4095.0 / 4096.0,
    1.0,
    1.0625,
    1.5,
    1.9375,
    2.0,
    2.5,
    3.25,
    0.3,
    0.7,
    0.1,
    100.3,
    -7.77,
];

pub(super) fn texture(shape: Shape, size: [u32; 3], channel: Channel, channels: u32) -> Texture {
    Texture { shape, channel, channels, size, levels: 1, is_surface: false, sampling: PLAIN }
}

fn geometry(shape: Shape) -> &'static str {
    match shape {
        Shape::Linear | Shape::Line => "1d",
        Shape::Pitched | Shape::Plane => "2d",
        Shape::Volume => "3d",
        Shape::Lines => "a1d",
        Shape::Planes => "a2d",
        Shape::Cube => "cube",
        Shape::Cubes => "acube",
    }
}

/// Returns coordinates in texels at the edges of an axis, between texels, and outside.
fn texels(size: u32) -> Vec<f32> {
    let size = size as f32;
    let low = [-1000.5, -3.0, -1.5, -1.0, -0.75, -0.5, -0.25, -1.0 / 1024.0, 0.0, 1.0 / 1024.0, 1.0 / 512.0, 0.25];
    let middle = [0.499_023_44, 0.5, 0.501_953_1, 0.75, 1.0, 1.25, 2.3, 3.7];
    let high = [-1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1000.25].map(|offset| size + offset);
    low.into_iter().chain(middle).chain(high).collect()
}

/// Directions whose largest component is a power of two, so that coordinates on faces are exact.
const DIRECTIONS: [[f32; 3]; 24] = [
    [1.0, 0.0, 0.0],
    [-1.0, 0.0, 0.0],
    [0.0, 1.0, 0.0],
    [0.0, -1.0, 0.0],
    [0.0, 0.0, 1.0],
    [0.0, 0.0, -1.0],
    [1.0, 0.5, -0.25],
    [-2.0, 0.75, 1.5],
    [0.375, 4.0, -3.5],
    [-0.125, -1.0, 0.9375],
    [3.75, -2.5, 4.0],
    [0.1, 0.3, -0.5],
    [1.0, 1.0, 1.0],
    [-1.0, -1.0, -1.0],
    [0.5, 1.0, 1.0],
    [1.0, -1.0, 0.25],
    [-0.25, 0.125, -0.25],
    [1.0, 0.998_046_9, -0.998_046_9],
    [8.0, -7.875, 0.0625],
    [-8.0, 7.0, -6.5],
    [0.0625, -0.03125, 0.015_625],
    [1.5, -2.0, -1.999_023_4],
    [-0.7, 0.2, 1.0],
    [0.9, -1.0, -0.4],
];

/// Returns the kinds of the coordinate operand, without padding, and the operand.
fn operand(shape: Shape, kind: Kind, first: usize) -> (Vec<Kind>, String) {
    let axes = if shape.is_cube() { 3 } else { shape.axes() };
    let layered = matches!(shape, Shape::Lines | Shape::Planes | Shape::Cubes);
    let mut kinds = vec![kind; axes];
    if layered {
        kinds.insert(0, U32);
    }
    let mut names: Vec<&str> = INPUTS[first..first + kinds.len()].to_vec();
    if names.len() == 3 {
        // The padding is ignored.
        names.push(names[2]);
    }
    (kinds, format!("{{{}}}", names.join(", ")))
}

/// Returns rows of coordinates for a texture.
fn coordinates(texture: &Texture) -> Vec<Vec<u64>> {
    let shape = texture.shape;
    if shape.is_cube() {
        let directions = DIRECTIONS.iter().enumerate();
        return directions.map(|(index, at)| with_layer(texture, index, at.map(f32::to_bits).to_vec())).collect();
    }
    let list = |axis: usize| {
        if texture.sampling.normalized { NORMALIZED.to_vec() } else { texels(texture.size[axis]) }
    };
    // Every coordinate of each axis, combined with several of the next axis.
    let steps = [(1, 0), (7, 3), (11, 5)];
    let row = |index: usize| {
        let at = |axis: usize| {
            let (list, (step, start)) = (list(axis), steps[axis]);
            list[(index * step + start) % list.len()].to_bits()
        };
        with_layer(texture, index, (0..shape.axes()).map(at).collect())
    };
    (0..NORMALIZED.len()).map(row).collect()
}

fn with_layer(texture: &Texture, index: usize, at: Vec<u32>) -> Vec<u64> {
    let layers = match texture.shape {
        Shape::Lines | Shape::Planes => Some(texture.size[2]),
        Shape::Cubes => Some(texture.size[2] / 6),
        _ => None,
    };
    let layer = layers.map(|layers| u64::from(index as u32 % layers));
    layer.into_iter().chain(at.into_iter().map(u64::from)).collect()
}

fn at(texture: &Texture, row: &[u64], offset: [i32; 3]) -> At {
    let layered = matches!(texture.shape, Shape::Lines | Shape::Planes | Shape::Cubes);
    let rest = &row[usize::from(layered)..];
    let component = |axis: usize| rest.get(axis).map_or(0.0, |bits| f32::from_bits(*bits as u32));
    let axes = if texture.shape.is_cube() { 3 } else { texture.shape.axes() };
    let point = [0, 1, 2].map(|axis| if axis < axes { component(axis) } else { 0.0 });
    At { point, layer: if layered { row[0] as u32 } else { 0 }, offset }
}

fn result(texture: &Texture) -> (Kind, &'static str) {
    if texture.gives_floats() {
        (F32, "f32")
    } else if texture.channel.is_signed() {
        (S32, "s32")
    } else {
        (U32, "u32")
    }
}

/// Formats registers for all four components; only components that the texture has are results.
fn values(channels: u32) -> String {
    let names: Vec<String> = (0..4)
        .map(|index| if index < channels as usize { OUTPUTS[index].to_owned() } else { format!("%rest{index}") })
        .collect();
    format!("{{{}}}", names.join(", "))
}

fn tolerance(texture: &Texture) -> Tolerance {
    match texture.channel {
        _ if texture.sampling.srgb => Tolerance::Ulp(1),
        // A texel is rounded to f32 before it is weighted.
        _ if texture.sampling.linear && !texture.channel.is_float() => Tolerance::Absolute(-22.0),
        _ => Tolerance::Exact,
    }
}

/// Returns a name that distinguishes the texture from others of the form.
fn name(texture: &Texture) -> String {
    let sampling = &texture.sampling;
    let modes = sampling.modes.map(|mode| mode.to_string());
    let modes = if modes[0] == modes[1] && modes[1] == modes[2] { modes[0].clone() } else { modes.join("-") };
    let mut name = format!("{}.{}x{}.{modes}", texture.shape.name(), texture.channel.name(), texture.channels);
    for (is, word) in [
        (sampling.linear, "linear"),
        (sampling.normalized, "normalized"),
        (sampling.integers, "integers"),
        (sampling.srgb, "srgb"),
        (sampling.linear_levels, "levels"),
        (sampling.bias != 0.0, "bias"),
    ] {
        if is {
            name = format!("{name}.{word}");
        }
    }
    name
}

fn fetch(
    texture: &Texture,
    text: &str,
    (kinds, operands): (Vec<Kind>, String),
    rows: Vec<Vec<u64>>,
    eval: impl Fn(&Filled, &[u64]) -> Vec<u64> + 'static,
) -> Form {
    let (kind, _) = result(texture);
    let outputs = vec![kind; texture.channels as usize];
    let evaluated = Filled::new(texture);
    let made = forms(text, &outputs, &kinds, move |row| eval(&evaluated, row));
    let code = format!(".reg .b32 %rest<4>;\n{text} {}, {operands};", values(texture.channels));
    let file = format!("{}.{}", text.split_once('.').map_or(text, |(_, rest)| rest), name(texture));
    made.code(code).file(file).given(rows).texture(texture.clone()).within(tolerance(texture))
}

/// A plain fetch by coordinates.
fn point(g: &mut Grammar, texture: &Texture) {
    let (_, dtype) = result(texture);
    let text = format!("tex.{}.v4.{dtype}.f32", geometry(texture.shape));
    let (kinds, operand) = operand(texture.shape, F32, 0);
    let made =
        fetch(texture, &text, (kinds, format!("[%texture, {operand}]")), coordinates(texture), |texture, row| {
            texture.sample(at(texture, row, [0; 3]))
        });
    let base = made.text.replace("tex.", "tex.base.");
    g.add(made.also([base]));
}

pub fn add(g: &mut Grammar) {
    modes(g);
    formats(g);
    texel_numbers(g);
    levels(g);
    steps(g);
    gathers(g);
    others(g);
    queries(g);
}

/// All address modes with both filters, in every shape.
fn modes(g: &mut Grammar) {
    for (shape, size) in [
        (Shape::Line, [7, 1, 1]),
        (Shape::Plane, [5, 3, 1]),
        (Shape::Pitched, [6, 4, 1]),
        (Shape::Volume, [4, 3, 5]),
        (Shape::Lines, [7, 1, 4]),
        (Shape::Planes, [5, 3, 3]),
        (Shape::Cube, [4, 4, 6]),
        (Shape::Cubes, [4, 4, 12]),
    ] {
        for linear in [false, true] {
            for normalized in [true, false] {
                let given: &[[Mode; 3]] = match (shape.is_cube(), normalized) {
                    (true, true) => &[[Clamp; 3]],
                    (true, false) => &[],
                    (false, true) => &[[Wrap; 3], [Clamp; 3], [Mirror; 3], [Border; 3], MIXED],
                    (false, false) => &[[Wrap; 3], [Clamp; 3], [Border; 3]],
                };
                for modes in given {
                    let sampling = Sampling { modes: *modes, linear, normalized, border: BORDER, ..PLAIN };
                    point(g, &Texture { sampling, ..texture(shape, size, Channel::F32, 1) });
                }
            }
        }
    }
}

/// All formats, read as they are and as floats.
fn formats(g: &mut Grammar) {
    for channel in Channel::ALL {
        for channels in [1, 2, 4] {
            let plain = texture(Shape::Plane, [5, 3, 1], channel, channels);
            let small = channel.bytes() < 4 && !channel.is_float();
            for (integers, linear) in [(false, false), (true, false), (false, true)] {
                let has_linear = channel.is_float() || small;
                if integers && !small || linear && !has_linear || channel == Channel::F32 && channels == 1 {
                    continue;
                }
                let sampling = Sampling { integers, linear, normalized: true, ..PLAIN };
                point(g, &Texture { sampling, ..plain.clone() });
            }
        }
    }
    for linear in [false, true] {
        let sampling = Sampling { srgb: true, linear, normalized: true, ..PLAIN };
        let srgb = texture(Shape::Plane, [16, 8, 1], Channel::U8, 4);
        point(g, &Texture { sampling, ..srgb });
    }
}

/// Fetches by texel numbers.
fn texel_numbers(g: &mut Grammar) {
    let integers = Sampling { integers: true, ..PLAIN };
    for (made, sampling) in [
        (texture(Shape::Linear, [37, 1, 1], Channel::F32, 1), PLAIN),
        (texture(Shape::Linear, [37, 1, 1], Channel::U32, 4), PLAIN),
        (texture(Shape::Linear, [37, 1, 1], Channel::S16, 2), integers),
        (texture(Shape::Linear, [37, 1, 1], Channel::U8, 4), PLAIN),
        (texture(Shape::Linear, [37, 1, 1], Channel::F16, 1), PLAIN),
        (texture(Shape::Line, [7, 1, 1], Channel::S32, 1), PLAIN),
        (texture(Shape::Plane, [5, 3, 1], Channel::F32, 2), PLAIN),
        (texture(Shape::Plane, [5, 3, 1], Channel::F32, 1), Sampling { modes: [Border; 3], border: BORDER, ..PLAIN }),
        (texture(Shape::Plane, [5, 3, 1], Channel::S32, 1), Sampling { modes: [Border; 3], border: BORDER, ..PLAIN }),
        (texture(Shape::Volume, [4, 3, 5], Channel::U16, 1), integers),
        (texture(Shape::Lines, [7, 1, 4], Channel::U8, 2), integers),
        (texture(Shape::Planes, [5, 3, 3], Channel::F32, 1), PLAIN),
    ] {
        let made = Texture { sampling, ..made };
        let (_, dtype) = result(&made);
        let text = format!("tex.{}.v4.{dtype}.s32", geometry(made.shape));
        let (kinds, operand) = operand(made.shape, S32, 0);
        let rows = (0..24i32).map(|index| {
            let along = |axis: usize| {
                let size = made.size[axis] as i32;
                [0, size - 1, index % size, -1, size, index - 4, i32::MIN, i32::MAX][(index as usize + 3 * axis) % 8]
            };
            with_layer(&made, index as usize, (0..made.shape.axes()).map(|axis| along(axis).cast_unsigned()).collect())
        });
        let rows = rows.collect();
        let form = fetch(&made, &text, (kinds, format!("[%texture, {operand}]")), rows, |texture, row| {
            let layered = matches!(texture.shape, Shape::Lines | Shape::Planes);
            let rest = &row[usize::from(layered)..];
            let index = [0, 1, 2].map(|axis| rest.get(axis).map_or(0, |bits| (*bits as u32).cast_signed()));
            texture.texel_at(index, if layered { row[0] as u32 } else { 0 })
        });
        g.add(form);
    }
}

/// Returns a texture with several levels.
fn mipmapped(shape: Shape, size: [u32; 3], levels: u32) -> Texture {
    let sampling = Sampling { normalized: true, linear: true, levels: [0.0, 100.0], ..PLAIN };
    Texture { levels, sampling, ..texture(shape, size, Channel::F32, 1) }
}

fn levels(g: &mut Grammar) {
    const LEVELS: [f32; 12] = [0.0, 0.25, 0.5, 0.501, 0.75, 1.0, 1.5, 1.625, 2.0, 2.499, 3.0, 9.0];
    for made in [
        mipmapped(Shape::Line, [16, 1, 1], 5),
        mipmapped(Shape::Plane, [8, 4, 1], 4),
        mipmapped(Shape::Volume, [8, 4, 4], 4),
        mipmapped(Shape::Lines, [8, 1, 3], 3),
        mipmapped(Shape::Planes, [8, 4, 3], 3),
        mipmapped(Shape::Cube, [8, 8, 6], 4),
        mipmapped(Shape::Cubes, [8, 8, 12], 3),
    ] {
        for (linear_levels, bias, bounds) in
            [(false, 0.0, [0.0, 100.0]), (true, 0.0, [0.0, 100.0]), (true, 0.75, [0.5, 2.25])]
        {
            let sampling = Sampling { linear_levels, bias, levels: bounds, ..made.sampling };
            let made = Texture { sampling, ..made.clone() };
            let (mut kinds, operand) = operand(made.shape, F32, 0);
            let level = kinds.len();
            kinds.push(F32);
            let rows = coordinates(&made).into_iter().enumerate().map(|(index, mut row)| {
                let wanted = if index == 20 { -3.5 } else { LEVELS[index % LEVELS.len()] };
                row.push(wanted.to_bits().into());
                row
            });
            let rows = rows.collect();
            let text = format!("tex.level.{}.v4.f32.f32", geometry(made.shape));
            let operands = format!("[%texture, {operand}], {}", INPUTS[level]);
            g.add(fetch(&made, &text, (kinds, operands), rows, move |texture, row| {
                texture.sample_level(at(texture, row, [0; 3]), f32::from_bits(row[level] as u32).into())
            }));
        }
    }
}

/// Levels by gradients.
fn steps(g: &mut Grammar) {
    const STEPS: [f32; 6] = [0.0, 0.125, 0.25, 0.375, 0.75, 0.5];
    for made in [
        mipmapped(Shape::Line, [16, 1, 1], 5),
        mipmapped(Shape::Plane, [8, 4, 1], 4),
        mipmapped(Shape::Volume, [8, 4, 4], 4),
        mipmapped(Shape::Planes, [8, 4, 3], 3),
    ] {
        let sampling = Sampling { linear_levels: true, ..made.sampling };
        let made = Texture { sampling, ..made };
        let (mut kinds, operand) = operand(made.shape, F32, 0);
        let (first, axes) = (kinds.len(), made.shape.axes());
        kinds.extend(vec![F32; 2 * axes]);
        let vector = |start: usize| {
            let mut names = INPUTS[start..start + axes].to_vec();
            if axes == 3 {
                names.push(names[2]);
            }
            format!("{{{}}}", names.join(", "))
        };
        let operands = format!("[%texture, {operand}], {}, {}", vector(first), vector(first + axes));
        let rows = coordinates(&made).into_iter().enumerate().map(|(index, mut row)| {
            row.extend((0..2 * axes).map(|step| u64::from(STEPS[(index + 5 * step) % STEPS.len()].to_bits())));
            row
        });
        let rows = rows.collect();
        let text = format!("tex.grad.{}.v4.f32.f32", geometry(made.shape));
        g.add(fetch(&made, &text, (kinds, operands), rows, move |texture, row| {
            let part = |index: usize| f32::from_bits(row[first + index] as u32);
            let step = |start: usize| [0, 1, 2].map(|axis| if axis < axes { part(start + axis) } else { 0.0 });
            let level = texture.level_of_steps([step(0), step(axes)]);
            texture.sample_level(at(texture, row, [0; 3]), level)
        }));
    }
}

/// Gathers: four texels around a point.
fn gathers(g: &mut Grammar) {
    for (shape, size) in
        [(Shape::Plane, [5, 3, 1]), (Shape::Planes, [5, 3, 3]), (Shape::Cube, [4, 4, 6]), (Shape::Cubes, [4, 4, 12])]
    {
        for (component, letter) in ["r", "g", "b", "a"].into_iter().enumerate() {
            for (channel, integers, mode) in [
                (Channel::F32, false, Clamp),
                (Channel::U8, false, Mirror),
                (Channel::S16, true, Wrap),
                (Channel::F16, false, Border),
            ] {
                if shape.is_cube() && mode != Clamp {
                    continue;
                }
                let sampling = Sampling { modes: [mode; 3], integers, normalized: true, border: BORDER, ..PLAIN };
                let made = Texture { sampling, ..texture(shape, size, channel, 4) };
                let (_, dtype) = result(&made);
                let text = format!("tld4.{letter}.{}.v4.{dtype}.f32", geometry(shape));
                let (kinds, operand) = operand(shape, F32, 0);
                let operands = format!("[%texture, {operand}]");
                g.add(fetch(&made, &text, (kinds, operands), coordinates(&made), move |texture, row| {
                    texture.gather(at(texture, row, [0; 3]), component)
                }));
            }
        }
    }
}

/// Offsets, residency, and separate samplers.
fn others(g: &mut Grammar) {
    for (shape, size, operand_offset, offset) in [
        (Shape::Line, [7, 1, 1], "{2}", [2, 0, 0]),
        (Shape::Plane, [5, 3, 1], "{1, -2}", [1, -2, 0]),
        (Shape::Volume, [4, 3, 5], "{-1, 7, -8, 0}", [-1, 7, -8]),
        (Shape::Planes, [5, 3, 3], "{3, -1}", [3, -1, 0]),
    ] {
        let sampling = Sampling { linear: true, ..PLAIN };
        let made = Texture { sampling, ..texture(shape, size, Channel::F32, 1) };
        let (kinds, operand) = operand(shape, F32, 0);
        let text = format!("tex.{}.v4.f32.f32", geometry(shape));
        let operands = format!("[%texture, {operand}], {operand_offset}");
        let form = fetch(&made, &text, (kinds, operands), coordinates(&made), move |texture, row| {
            texture.sample(at(texture, row, offset))
        });
        let file = format!("{}.offset", form.file);
        g.add(form.file(file));
    }
    let made = texture(Shape::Plane, [5, 3, 1], Channel::F32, 1);
    let (kinds, operand) = operand(made.shape, F32, 0);
    let text = "tex.2d.v4.f32.f32";
    let mut form = fetch(&made, text, (kinds, String::new()), coordinates(&made), |texture, row| {
        let mut values = texture.sample(at(texture, row, [0; 3]));
        values.push(1);
        values
    });
    form.outputs.push((Pred, Tolerance::Exact));
    let code = format!(".reg .b32 %rest<4>;\n{text} {{%d, %rest1, %rest2, %rest3}}|%q, [%texture, {operand}];");
    let file = format!("{}.resident", form.file);
    g.add(form.code(code).file(file).needs(70, 71));
}

/// Queries of a texture.
fn queries(g: &mut Grammar) {
    for (made, answers) in [
        (texture(Shape::Line, [7, 1, 1], Channel::F32, 1), &[("width", 7)][..]),
        (texture(Shape::Plane, [5, 3, 1], Channel::F32, 1), &[("width", 5), ("height", 3)]),
        (texture(Shape::Volume, [4, 3, 5], Channel::U8, 4), &[("width", 4), ("height", 3), ("depth", 5)]),
        (texture(Shape::Planes, [5, 3, 6], Channel::F32, 1), &[("width", 5), ("height", 3), ("array_size", 6)]),
        (mipmapped(Shape::Plane, [8, 4, 1], 4), &[("width", 8), ("num_mipmap_levels", 4)]),
    ] {
        for (query, answer) in answers {
            let text = format!("txq.{query}.b32");
            let answer = *answer;
            let form = forms(&text, &[U32], &[U32], move |_| vec![answer]);
            let file = format!("{query}.b32.{}", name(&made));
            let form = form.code(format!("{text} %d, [%texture];")).file(file).given(vec![vec![0]; 2]);
            g.add(form.texture(made.clone()));
        }
    }
    let made = mipmapped(Shape::Plane, [8, 4, 1], 4);
    for (query, axis) in [("width", 0), ("height", 1)] {
        let text = format!("txq.level.{query}.b32");
        let sizes = made.clone();
        let form = forms(&text, &[U32], &[U32], move |row| vec![sizes.level_size(row[0] as u32)[axis].into()]);
        let rows = (0..4).map(|level| vec![level]).collect();
        let form = form.code(format!("{text} %d, [%texture], %a;")).given(rows).texture(made.clone());
        g.add(form.needs(70, 70));
    }
}
