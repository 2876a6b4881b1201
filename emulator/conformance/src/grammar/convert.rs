//! Conversions (`cvt`). The forms are not a product of their parts, so these lists contain what the ISA's text and
//! NVIDIA's assembler agree on.

use super::{Grammar, float::switch};
use crate::{
    kind::Kind::{self, *},
    recipe::{Form, form},
    scalar::{
        eight,
        float::{DOUBLE, Format, MODES, Mode, Number, SINGLE, decode, encode, integral, to_integer, whole},
        integer::{clamp, int, wrap},
    },
};

const INTEGERS: [Kind; 8] = [U8, U16, U32, U64, S8, S16, S32, S64];
const FLOATS: [Kind; 4] = [F16, Bf16, F32, F64];
/// Modes of rounding to an integral value.
const INTEGRAL: [(&str, Mode); 4] =
    [("rni", Mode::Nearest), ("rzi", Mode::Zero), ("rmi", Mode::Down), ("rpi", Mode::Up)];

pub fn add(g: &mut Grammar) {
    between_integers(g);
    to_integers(g);
    from_integers(g);
    between_floats(g);
    to_halves(g);
    to_tensor(g);
    eights(g);
    packs(g);
}

/// Returns the column of a kind in files: 8-bit values are in 16-bit columns, whose upper bits are arbitrary.
fn source(k: Kind) -> Kind {
    if k.bits() == 8 { B16 } else { k }
}

/// Returns the column of a result: 8-bit results are extended to the register.
fn target(k: Kind) -> Kind {
    match k {
        U8 => U16,
        S8 => S16,
        _ => k,
    }
}

fn extended(k: Kind, value: u64) -> u64 {
    wrap(target(k), int(k, value))
}

fn convert(text: String, to: Kind, from: Kind, eval: impl Fn(u64) -> u64 + 'static) -> Form {
    let made = form(text, target(to), &[source(from)], move |x| extended(to, eval(x[0])));
    let made = made.file(format!("{to}.{from}"));
    let brain = to == Bf16 || from == Bf16;
    match (to, from) {
        (Bf16, F32) => made.needs(80, 70),
        (F32, Bf16) => made.needs(80, 71),
        _ if brain => made.needs(90, 78),
        _ => made,
    }
}

fn between_integers(g: &mut Grammar) {
    for from in INTEGERS {
        for to in INTEGERS {
            g.add(convert(format!("cvt.{to}.{from}"), to, from, move |x| wrap(to, int(from, x))));
            let fits = |value| wrap(to, value) == clamp(to, value);
            // If no value is out of range, there is no such form.
            if !fits(crate::scalar::integer::least(from)) || !fits(crate::scalar::integer::most(from)) {
                g.add(convert(format!("cvt.sat.{to}.{from}"), to, from, move |x| clamp(to, int(from, x))));
            }
        }
    }
}

fn to_integers(g: &mut Grammar) {
    for from in FLOATS {
        for to in INTEGERS {
            if from == Bf16 && to.bits() == 8 {
                continue;
            }
            for (rounding, mode) in INTEGRAL {
                for (ftz, flushes) in switch(".ftz") {
                    for (sat, saturates) in switch(".sat") {
                        if flushes && from != F32 || saturates && from == Bf16 {
                            continue;
                        }
                        // Every such conversion saturates, with or without the modifier.
                        g.add(convert(format!("cvt.{rounding}{ftz}{sat}.{to}.{from}"), to, from, move |x| {
                            let f = Format::of(from);
                            let number = decode(f, if flushes { f.flush(x) } else { x });
                            // A NaN becomes 0, or only the top bit if either side has 64 bits.
                            let top = if from == F64 || to.bits() == 64 { 1 << (to.bits() - 1) } else { 0 };
                            to_integer(integral(number, mode)).map_or(top, |value| clamp(to, value))
                        }));
                    }
                }
            }
        }
    }
}

fn from_integers(g: &mut Grammar) {
    for from in INTEGERS {
        for to in FLOATS {
            if to == Bf16 && from.bits() == 8 {
                continue;
            }
            for (rounding, mode) in MODES {
                for (ftz, flushes) in switch(".ftz") {
                    for (sat, saturates) in switch(".sat") {
                        if flushes && to != F32 || saturates && to == Bf16 {
                            continue;
                        }
                        g.add(convert(format!("cvt.{rounding}{ftz}{sat}.{to}.{from}"), to, from, move |x| {
                            let f = Format::of(to);
                            let value = encode(f, whole(int(from, x)), mode);
                            if saturates { f.saturate(value) } else { value }
                        }));
                    }
                }
            }
        }
    }
}

/// Returns the rounding modes of a conversion between two floats; the empty one is none.
fn roundings(to: Kind, from: Kind) -> Vec<(&'static str, Mode, bool)> {
    let plain = MODES.map(|(name, mode)| (name, mode, false));
    let whole = INTEGRAL.map(|(name, mode)| (name, mode, true));
    let none = [("", Mode::Nearest, false)];
    match (to, from) {
        _ if to == from => [&none[..], &whole].concat(),
        (F32, F16) | (F64, F16 | F32) => none.to_vec(),
        (F32, Bf16) => [&none[..], &plain].concat(),
        _ => plain.to_vec(),
    }
}

fn between_floats(g: &mut Grammar) {
    for from in FLOATS {
        for to in FLOATS {
            for (rounding, mode, is_whole) in roundings(to, from) {
                for (ftz, flushes) in switch(".ftz") {
                    for (sat, saturates) in switch(".sat") {
                        let single = to == F32 || from == F32;
                        if flushes && !single || saturates && (to == Bf16 || from == Bf16) {
                            continue;
                        }
                        let dot = if rounding.is_empty() { "" } else { "." };
                        g.add(convert(format!("cvt{dot}{rounding}{ftz}{sat}.{to}.{from}"), to, from, move |x| {
                            let (f, t) = (Format::of(from), Format::of(to));
                            if f == t && !is_whole && !saturates {
                                // The conversion is just a move.
                                return if flushes { f.flush(x) } else { x };
                            }
                            let number = decode(f, if flushes && from == F32 { f.flush(x) } else { x });
                            let number = if is_whole { integral(number, mode) } else { number };
                            let value = encode(t, number, mode);
                            let value = if flushes && to == F32 { t.flush(value) } else { value };
                            if saturates { t.saturate(value) } else { value }
                        }));
                    }
                }
            }
        }
    }
}

/// Replaces an infinite result by the largest finite number.
fn finite(f: Format, value: u64) -> u64 {
    if f.is_infinite(value) { value - 1 } else { value }
}

/// Conversions from f32 to one or two 16-bit floats, with `.relu` and `.satfinite`.
fn to_halves(g: &mut Grammar) {
    for (one, pair) in [(F16, F16x2), (Bf16, Bf16x2)] {
        for (rounding, mode) in [("rn", Mode::Nearest), ("rz", Mode::Zero)] {
            for (relu, positive) in switch(".relu") {
                for (sat, limited) in switch(".satfinite") {
                    let convert_one = move |x: u64| {
                        let f = Format::of(one);
                        let value = encode(f, decode(SINGLE, x), mode);
                        let value = if limited { finite(f, value) } else { value };
                        if positive { f.relu(value) } else { value }
                    };
                    let text = |k: Kind| format!("cvt.{rounding}{relu}{sat}.{k}.f32");
                    let needs = |made: Form| made.needs(80, if limited { 81 } else { 70 });
                    if positive || limited {
                        let file = format!("{one}.f32.relu");
                        g.add(needs(form(text(one), one, &[F32], move |x| convert_one(x[0])).file(file)));
                    }
                    let made =
                        form(text(pair), pair, &[F32, F32], move |x| convert_one(x[1]) | convert_one(x[0]) << 16);
                    g.add(needs(made.file(format!("{pair}.f32"))));
                }
            }
        }
    }
}

/// Conversions from f32 to tf32, whose low bits do not count.
fn to_tensor(g: &mut Grammar) {
    let modes = [("rna", Mode::Away, 80), ("rn", Mode::Nearest, 90), ("rz", Mode::Zero, 90)];
    for (rounding, mode, sm) in modes {
        for (relu, positive) in switch(".relu") {
            for (sat, limited) in switch(".satfinite") {
                if positive && sm == 80 || limited && sm == 90 {
                    continue;
                }
                let ptx = if limited || sm == 90 { 86 } else { 70 };
                let text = format!("cvt.{rounding}{relu}{sat}.tf32.f32");
                let made = form(text.clone(), Tf32, &[F32], move |x| {
                    let tensor = Format { exponent_bits: 8, fraction_bits: 10, nan: 0x3ffff };
                    let value = encode(tensor, decode(SINGLE, x[0]), mode);
                    let value = if limited { finite(tensor, value) } else { value };
                    (if positive { tensor.relu(value) } else { value }) << 13
                });
                let code = format!("{text} %d, %a;\nand.b32 %d, %d, 0xffffe000;");
                let made = made.code(code).needs(sm, ptx).file(format!("tf32.f32.{rounding}"));
                // NaNs whose payload is only in bits that do not count are left out.
                let rows = crate::inputs::rows(&[F32], &made.rows, "tensor");
                g.add(made.given(rows.into_iter().filter(|row| row[0] != 0xff80_0001).collect()));
            }
        }
    }
}

/// Conversions of 8-bit floats, which come in pairs.
fn eights(g: &mut Grammar) {
    for k in [E4m3x2, E5m2x2] {
        for (relu, positive) in switch(".relu") {
            let value = |number: Number| f64::from_bits(encode(DOUBLE, number, Mode::Nearest));
            let narrow = move |number: Number| {
                let x = value(number);
                if positive && x <= 0.0 { 0 } else { eight::encode(k, x) }
            };
            let text = format!("cvt.rn.satfinite{relu}.{k}.f32");
            let made =
                form(text, k, &[F32, F32], move |x| narrow(decode(SINGLE, x[1])) | narrow(decode(SINGLE, x[0])) << 8);
            g.add(made.needs(89, 81).file(format!("{k}.f32")));
            let half = Format::of(F16);
            let text = format!("cvt.rn.satfinite{relu}.{k}.f16x2");
            let made = form(text, k, &[F16x2], move |x| {
                narrow(decode(half, x[0] & 0xffff)) | narrow(decode(half, x[0] >> 16)) << 8
            });
            g.add(made.needs(89, 81).file(format!("{k}.f16x2")));
            let made = form(format!("cvt.rn{relu}.f16x2.{k}"), F16x2, &[k], move |x| {
                let widen = |x: u64| {
                    let value = encode(half, decode(DOUBLE, eight::decode(k, x).to_bits()), Mode::Nearest);
                    if positive { half.relu(value) } else { value }
                };
                widen(x[0] & 0xff) | widen(x[0] >> 8) << 16
            });
            g.add(made.needs(89, 81).file(format!("f16x2.{k}")));
        }
    }
}

/// `cvt.pack`: two saturated integers in the low bits; earlier ones are shifted up.
fn packs(g: &mut Grammar) {
    let saturated = |signed: bool, bits: u32, x: u64| {
        let (least, most) =
            if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        int(S32, x).clamp(least, most) as u64 & ((1 << bits) - 1)
    };
    for signed in [false, true] {
        let letter = if signed { "s" } else { "u" };
        g.add(
            form(format!("cvt.pack.sat.{letter}16.s32"), B32, &[S32, S32], move |x| {
                saturated(signed, 16, x[1]) | saturated(signed, 16, x[0]) << 16
            })
            .needs(72, 70),
        );
        for bits in [2u32, 4, 8] {
            g.add(
                form(format!("cvt.pack.sat.{letter}{bits}.s32.b32"), B32, &[S32, S32, B32], move |x| {
                    let packed = saturated(signed, bits, x[1]) | saturated(signed, bits, x[0]) << bits;
                    (packed | x[2] << (2 * bits)) & 0xffff_ffff
                })
                .needs(if bits == 8 { 72 } else { 75 }, 70),
            );
        }
    }
}
