//! Surface reductions (`sured`).

use super::{
    Grammar,
    surface::{operand, place, rows, surfaces},
    texture::texture,
};
use crate::{
    inputs::Random,
    kind::Kind::{self, *},
    recipe::{Form, forms},
    texture::{Channel, Shape, Texture},
};

/// Operations and their types.
const OPERATIONS: [(&str, &[Kind]); 5] = [
    ("add", &[U32, S32, U64]),
    ("min", &[U32, S32, U64, S64]),
    ("max", &[U32, S32, U64, S64]),
    ("and", &[B32]),
    ("or", &[B32]),
];
const MODES: [&str; 3] = ["trap", "clamp", "zero"];

pub fn add(g: &mut Grammar) {
    for (geometry, surface) in surfaces().into_iter().filter(|(geometry, _)| !geometry.starts_with('a')) {
        for (operation, kinds) in OPERATIONS {
            for kind in kinds {
                for mode in MODES {
                    // 64-bit minima and maxima came later.
                    let is_late = kind.bits() == 64 && operation != "add";
                    g.add(
                        of_bytes(geometry, &surface, operation, *kind, mode).needs(70, if is_late { 81 } else { 70 }),
                    );
                }
            }
        }
    }
    for (geometry, shape, size) in
        [("1d", Shape::Line, [24, 1, 1]), ("2d", Shape::Plane, [8, 4, 1]), ("3d", Shape::Volume, [8, 2, 2])]
    {
        for (channel, kind) in [(Channel::U32, U32), (Channel::S32, S32)] {
            let surface = Texture { is_surface: true, ..texture(shape, size, channel, 1) };
            for (operation, _) in OPERATIONS {
                for mode in MODES {
                    g.add(of_texels(geometry, &surface, operation, kind, mode));
                }
            }
        }
    }
}

/// Returns the value that an operation writes.
fn combined(operation: &str, kind: Kind, old: u64, value: u64) -> u64 {
    let signed = |bits: u64| if kind.bits() == 64 { bits as i64 } else { i64::from(bits as u32 as i32) };
    let is_less = if kind.is_signed() { signed(old) < signed(value) } else { old < value };
    let new = match operation {
        "add" => old.wrapping_add(value),
        "and" => old & value,
        "or" => old | value,
        "min" => [value, old][usize::from(is_less)],
        _ => [old, value][usize::from(is_less)],
    };
    new & kind.mask()
}

/// A reduction of bytes, which are then read. No two rows use one place.
fn reduced(text: &str, surface: &Texture, operation: &'static str, kind: Kind, mode: &str) -> Form {
    let (bytes, clamps) = (i64::from(kind.bits() / 8), mode == "clamp");
    let (evaluated, held) = (surface.clone(), surface.level_bytes(0));
    let form = forms(text, &[kind], &[S32, S32, S32, kind], move |row| {
        let found = place(&evaluated, row, bytes, clamps).map(|start| &held[start..start + bytes as usize]);
        let old = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        vec![found.map_or(0, |found| combined(operation, kind, old(found), row[3] & kind.mask()))]
    });
    let (mut taken, mut given, mut random) = (Vec::new(), Vec::new(), Random::named(text));
    for mut row in rows(surface, bytes, mode != "trap") {
        let start = place(surface, &row, bytes, clamps);
        if start.is_some_and(|start| taken.contains(&start)) {
            continue;
        }
        taken.extend(start);
        row.push(random.draw() & kind.mask());
        given.push(row);
    }
    form.given(given).texture(surface.clone())
}

fn of_bytes(geometry: &str, surface: &Texture, operation: &'static str, kind: Kind, mode: &str) -> Form {
    let text = format!("sured.b.{operation}.{geometry}.{kind}.{mode}");
    let read = format!("suld.b.{geometry}.b{}.{mode}", kind.bits());
    let at = operand(surface.shape);
    let code = format!("{text} [%texture, {at}], %e;\n{read} {{%d}}, [%texture, {at}];");
    reduced(&text, surface, operation, kind, mode).code(code)
}

/// A reduction on texels. The first coordinate counts texels, so it is a fourth of the bytes; places outside stay
/// outside.
fn of_texels(geometry: &str, surface: &Texture, operation: &'static str, kind: Kind, mode: &str) -> Form {
    let text = format!("sured.p.{operation}.{geometry}.b32.{mode}");
    let read = format!("suld.b.{geometry}.b32.{mode}");
    let at = operand(surface.shape);
    let texel = at.replace("%a", "%texel");
    let code = format!(
        ".reg .s32 %texel;\nshr.s32 %texel, %a, 2;\n{text} [%texture, {texel}], %e;\n{read} {{%d}}, [%texture, {at}];"
    );
    let file = format!("p.{operation}.{geometry}.b32.{mode}.{kind}");
    reduced(&text, surface, operation, kind, mode).code(code).file(file)
}
