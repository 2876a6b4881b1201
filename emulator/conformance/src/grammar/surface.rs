//! Surface loads, stores and queries (`suld`, `sust`, `suq`).

use super::{Grammar, texture::texture};
use crate::{
    kind::Kind::{self, *},
    recipe::{Form, INPUTS, OUTPUTS, forms},
    texture::{Channel, Shape, Texture},
};

/// Returns a surface of each shape, with rows of at least 64 bytes.
pub(super) fn surfaces() -> [(&'static str, Texture); 5] {
    let made = |shape, size, channel, channels| {
        let plain = texture(shape, size, channel, channels);
        Texture { is_surface: true, ..plain }
    };
    [
        ("1d", made(Shape::Line, [32, 1, 1], Channel::U16, 2)),
        ("2d", made(Shape::Plane, [16, 5, 1], Channel::U8, 4)),
        ("3d", made(Shape::Volume, [16, 3, 4], Channel::F32, 1)),
        ("a1d", made(Shape::Lines, [16, 1, 3], Channel::S32, 1)),
        ("a2d", made(Shape::Planes, [8, 4, 3], Channel::F16, 4)),
    ]
}

struct Access {
    kind: Kind,
    count: usize,
    vector: &'static str,
}

fn accesses() -> Vec<Access> {
    let access = |kind: Kind, count: usize| Access { kind, count, vector: ["", "", ".v2", "", ".v4"][count] };
    let kinds = [B8, B16, B32, B64].into_iter();
    kinds.flat_map(|kind| [1, 2, 4].map(|count| access(kind, count))).filter(|one| one.bytes() <= 16).collect()
}

impl Access {
    fn bytes(&self) -> i64 {
        i64::from(self.kind.bits() / 8) * self.count as i64
    }

    fn type_name(&self) -> String {
        format!("{}.b{}", self.vector, self.kind.bits())
    }
}

/// Returns the bytes of a row, the rows, and the planes or layers.
fn extent(surface: &Texture) -> [i64; 3] {
    let [width, height, depth] = surface.size.map(i64::from);
    [width * surface.texel_bytes() as i64, height, depth]
}

/// Returns the coordinate operand, which starts at the first input: x, y and z in this order.
pub(super) fn operand(shape: Shape) -> &'static str {
    match shape {
        Shape::Line => "{%a}",
        Shape::Plane => "{%a, %b}",
        Shape::Volume => "{%a, %b, %c, %c}",
        Shape::Lines => "{%c, %a}",
        _ => "{%c, %a, %b, %b}",
    }
}

/// Returns the first byte of a place, if it is inside or the access clamps.
pub(super) fn place(surface: &Texture, row: &[u64], bytes: i64, clamps: bool) -> Option<usize> {
    let extent = extent(surface);
    let last = [extent[0] - bytes, extent[1] - 1, extent[2] - 1];
    let at = [0, 1, 2].map(|axis| i64::from((row[axis] as u32).cast_signed()));
    let inside = (0..3).all(|axis| (0..=last[axis]).contains(&at[axis]));
    let [x, y, z] = [0, 1, 2].map(|axis| at[axis].clamp(0, last[axis]));
    (inside || clamps).then_some(((z * extent[1] + y) * extent[0] + x) as usize)
}

/// Returns places all over a surface, and outside it if that is allowed. Axes that it does not have stay 0.
pub(super) fn rows(surface: &Texture, bytes: i64, outside: bool) -> Vec<Vec<u64>> {
    let extent = extent(surface);
    let used = [true, matches!(surface.shape, Shape::Plane | Shape::Volume | Shape::Planes), extent[2] > 1];
    let row = |index: i64| {
        let along = |axis: usize| {
            let (step, count) = if axis == 0 { (bytes, extent[0] / bytes) } else { (1, extent[axis]) };
            let inside = (index * [1, 3, 5][axis] + axis as i64) % count;
            let beyond = [-1, count, -5, count + 7][(index / 2 + axis as i64) as usize % 4];
            let is_beyond = outside && index % 4 == 3 && index as usize / 4 % 3 == axis;
            let at = if is_beyond { beyond } else { inside };
            if used[axis] { (at * step) as i32 } else { 0 }
        };
        (0..3).map(|axis| along(axis).cast_unsigned().into()).collect()
    };
    (0..24).map(row).collect()
}

pub fn add(g: &mut Grammar) {
    for (geometry, surface) in surfaces() {
        for access in accesses() {
            for mode in ["trap", "clamp", "zero"] {
                g.add(load(geometry, &surface, &access, mode));
                g.add(store(geometry, &surface, &access, mode));
            }
        }
        for operator in ["ca", "cg", "cs", "cv"] {
            let access = &accesses()[6];
            let form = load(geometry, &surface, access, "trap");
            g.add(with_operator(form, operator).hint(true));
        }
        for operator in ["wb", "cg", "cs", "wt"] {
            let access = &accesses()[6];
            let form = store(geometry, &surface, access, "trap");
            g.add(with_operator(form, operator).hint(true));
        }
    }
    formatted(g);
    queries(g);
}

fn with_operator(mut form: Form, operator: &str) -> Form {
    let (head, rest) = form.text.split_at(form.text.match_indices('.').nth(2).map_or(0, |(at, _)| at));
    let text = format!("{head}.{operator}{rest}");
    form.code = form.code.replace(&form.text, &text);
    form.text = text;
    form
}

fn values(names: &[&str]) -> String {
    format!("{{{}}}", names.join(", "))
}

fn load(geometry: &str, surface: &Texture, access: &Access, mode: &str) -> Form {
    let text = format!("suld.b.{geometry}{}.{mode}", access.type_name());
    let (bytes, size, count) = (access.bytes(), access.kind.bits() as usize / 8, access.count);
    let (clamps, evaluated, held) = (mode == "clamp", surface.clone(), surface.level_bytes(0));
    let form = forms(&text, &vec![access.kind; count], &[S32; 3], move |row| {
        let found = place(&evaluated, row, bytes, clamps).map(|start| &held[start..start + bytes as usize]);
        let word = |index: usize| {
            let bytes = found.map_or(&[][..], |bytes| &bytes[index * size..][..size]);
            bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        (0..count).map(word).collect()
    });
    let code = format!("{text} {}, [%texture, {}];", values(&OUTPUTS[..count]), operand(surface.shape));
    form.code(code).given(rows(surface, bytes, mode != "trap")).texture(surface.clone())
}

/// Writes, then reads what is there. Places of different rows do not overlap.
fn store(geometry: &str, surface: &Texture, access: &Access, mode: &str) -> Form {
    let text = format!("sust.b.{geometry}{}.{mode}", access.type_name());
    let read = format!("suld.b.{geometry}{}.{mode}", access.type_name());
    let (bytes, count, kind) = (access.bytes(), access.count, access.kind);
    let clamps = mode == "clamp";
    let evaluated = surface.clone();
    let inputs: Vec<Kind> = [S32; 3].into_iter().chain(vec![kind; count]).collect();
    let form = forms(&text, &vec![kind; count], &inputs, move |row| {
        let found = place(&evaluated, row, bytes, clamps);
        (0..count).map(|index| if found.is_some() { row[3 + index] & kind.mask() } else { 0 }).collect()
    });
    let mut taken = Vec::new();
    let mut random = crate::inputs::Random::named(&text);
    let mut given = Vec::new();
    for mut row in rows(surface, bytes, mode != "trap") {
        let start = place(surface, &row, bytes, clamps);
        if start.is_some_and(|start| taken.contains(&start)) {
            continue;
        }
        taken.extend(start);
        row.extend((0..count).map(|_| random.draw() & kind.mask()));
        given.push(row);
    }
    let (place, count) = (operand(surface.shape), access.count);
    let code = format!(
        "{text} [%texture, {place}], {};\n{read} {}, [%texture, {place}];",
        values(&INPUTS[3..3 + count]),
        values(&OUTPUTS[..count])
    );
    form.code(code).given(given).texture(surface.clone())
}

/// Formatted stores, which convert to the surface's format.
fn formatted(g: &mut Grammar) {
    for (channel, values) in [
        (Channel::F32, [0x3fc0_0000u64, 0xc048_0000, 0x0000_0001, 0x7f80_0000]),
        (Channel::U32, [0, 1, 0xffff_ffff, 0x8000_0000]),
        (Channel::S32, [0, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000]),
    ] {
        for (geometry, shape, size) in [
            ("1d", Shape::Line, [8, 1, 1]),
            ("2d", Shape::Plane, [4, 4, 1]),
            ("3d", Shape::Volume, [4, 2, 2]),
            ("a1d", Shape::Lines, [8, 1, 2]),
            ("a2d", Shape::Planes, [4, 4, 2]),
        ] {
            let surface = Texture { is_surface: true, ..texture(shape, size, channel, 1) };
            let text = format!("sust.p.{geometry}.b32.trap");
            let form = forms(&text, &[B32], &[S32, S32, S32, B32], |row| vec![row[3]]);
            let rows = values.iter().zip(0..).map(|(value, x)| vec![x, 0, 0, *value]).collect();
            let place = operand(shape);
            let bytes = place.replace("%a", "%bytes");
            let code = format!(
                ".reg .b32 %bytes;\nshl.b32 %bytes, %a, 2;\n{text} [%texture, {place}], {{%e}};\n\
                 suld.b.{geometry}.b32.trap {{%d}}, [%texture, {bytes}];"
            );
            let file = format!("p.{geometry}.b32.trap.{}", channel.name());
            g.add(form.code(code).file(file).given(rows).texture(surface));
        }
    }
}

fn queries(g: &mut Grammar) {
    for (geometry, surface) in surfaces() {
        let [width, height, depth] = surface.size.map(u64::from);
        let answers: &[(&str, u64)] = match surface.shape {
            Shape::Line => &[("width", width)],
            Shape::Plane => &[("width", width), ("height", height)],
            Shape::Volume => &[("width", width), ("height", height), ("depth", depth)],
            Shape::Lines => &[("width", width), ("array_size", depth)],
            _ => &[("width", width), ("height", height), ("array_size", depth)],
        };
        for (query, answer) in answers {
            let (text, answer) = (format!("suq.{query}.b32"), *answer);
            let form = forms(&text, &[U32], &[U32], move |_| vec![answer]);
            let form = form.code(format!("{text} %d, [%texture];")).file(format!("{query}.b32.{geometry}"));
            g.add(form.given(vec![vec![0]; 2]).texture(surface.clone()));
        }
    }
}
