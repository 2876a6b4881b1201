//! Matrix products of a warp (`mma`). All numbers are small integers, so that every sum is exact in any order; the
//! lanes of elements are those of the ISA's fragment tables.

use super::Grammar;
use crate::{
    inputs::Random,
    kind::Kind::{self, *},
    recipe::{Form, INPUTS, OUTPUTS, block},
    scalar::{
        eight,
        float::{BRAIN, DOUBLE, Format, HALF, Mode, SINGLE, approximate, decode, encode},
    },
};

const LANES: usize = 32;

/// Element type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Half,
    Brain,
    Tensor,
    Single,
    Double,
    /// Integers of this many bits, signed or unsigned.
    Integer(u32, bool),
    Word,
    Bit,
    Eight(Kind),
}

use Element::{Bit, Brain, Double, Eight, Half, Integer, Single, Tensor, Word};

impl Element {
    pub fn name(self) -> &'static str {
        match self {
            Half => "f16",
            Brain => "bf16",
            Tensor => "tf32",
            Single => "f32",
            Double => "f64",
            Integer(8, true) => "s8",
            Integer(8, false) => "u8",
            Integer(_, true) => "s4",
            Integer(_, false) => "u4",
            Word => "s32",
            Bit => "b1",
            Eight(E4m3x2) => "e4m3",
            Eight(_) => "e5m2",
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Half | Brain => 16,
            Tensor | Single | Word => 32,
            Double => 64,
            Integer(bits, _) => bits,
            Bit => 1,
            Eight(_) => 8,
        }
    }

    /// Returns the register kind for one or several elements.
    pub fn register(self) -> Kind {
        if self == Double { B64 } else { B32 }
    }

    fn format(self) -> Option<Format> {
        match self {
            Half => Some(HALF),
            Brain => Some(BRAIN),
            Tensor | Single => Some(SINGLE),
            Double => Some(DOUBLE),
            _ => None,
        }
    }

    pub fn decode(self, bits: u64) -> i64 {
        match self {
            Word => i64::from(bits as i32),
            Bit | Integer(_, false) => bits as i64,
            Integer(width, true) => (bits << (64 - width)) as i64 >> (64 - width),
            Eight(kind) => eight::decode(kind, bits) as i64,
            _ => approximate(self.format().expect("a float"), bits) as i64,
        }
    }

    pub fn encode(self, value: i64) -> u64 {
        match self {
            Eight(kind) => eight::encode(kind, value as f64),
            _ => match self.format() {
                Some(format) => encode(format, decode(DOUBLE, (value as f64).to_bits()), Mode::Nearest),
                None => value as u64 & u64::MAX >> (64 - self.bits()),
            },
        }
    }

    /// Returns a number whose products are exact in all results.
    pub fn small(self, random: &mut Random) -> i64 {
        match self {
            Bit => (random.draw() & 1) as i64,
            Integer(bits, true) => (random.draw() << (64 - bits)) as i64 >> (64 - bits),
            Integer(bits, false) => (random.draw() >> (64 - bits)) as i64,
            Word => (random.draw() % 2_000_001) as i64 - 1_000_000,
            _ => (random.draw() % 9) as i64 - 4,
        }
    }
}

/// A position in a matrix: row and column.
type Place = (usize, usize);

/// Shape of a product: `m` by `k` times `k` by `n`.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

/// Returns the position of an element of A: the `i`-th in register `r` of a lane.
fn place_a(e: usize, lane: usize, r: usize, i: usize) -> Place {
    (lane / 4 + 8 * (r % 2), lane % 4 * e + i + r / 2 * 4 * e)
}

/// Returns the position of an element of A with eight rows, for which further registers continue to the right.
fn place_a_short(e: usize, lane: usize, r: usize, i: usize) -> Place {
    (lane / 4, lane % 4 * e + i + r * 4 * e)
}

fn place_b(e: usize, lane: usize, r: usize, i: usize) -> Place {
    (lane % 4 * e + i + r * 4 * e, lane / 4)
}

/// Returns the position of the `i`-th element of a lane in C and D.
fn place_c(lane: usize, i: usize) -> Place {
    (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2)
}

/// One form of `mma`.
struct Product {
    text: String,
    shape: Shape,
    a: Element,
    b: Element,
    c: Element,
    d: Element,
    needs: (u32, u32),
    /// Boolean operation on single bits.
    bits: &'static str,
    saturates: bool,
}

pub fn add(g: &mut Grammar) {
    for product in products() {
        g.add(case(product));
    }
    quads(g);
}

fn products() -> Vec<Product> {
    let mut all = Vec::new();
    let mut list = |m, n, ks: &[usize], types: &[(Element, Element, Element, Element)], needs| {
        for k in ks {
            for (d, a, b, c) in types {
                all.push(product(Shape { m, n, k: *k }, (*d, *a, *b, *c), needs, "", false));
            }
        }
    };
    list(16, 8, &[8], &[(Half, Half, Half, Half), (Single, Half, Half, Single)], (75, 70));
    list(16, 8, &[16], &[(Half, Half, Half, Half), (Single, Half, Half, Single)], (80, 70));
    list(16, 8, &[8, 16], &[(Single, Brain, Brain, Single)], (80, 70));
    list(16, 8, &[4, 8], &[(Single, Tensor, Tensor, Single)], (80, 70));
    list(8, 8, &[4], &[(Double, Double, Double, Double)], (80, 70));
    list(16, 8, &[4, 8, 16], &[(Double, Double, Double, Double)], (90, 78));
    for (a, b) in [(E4m3x2, E4m3x2), (E4m3x2, E5m2x2), (E5m2x2, E4m3x2), (E5m2x2, E5m2x2)] {
        list(16, 8, &[32], &[(Single, Eight(a), Eight(b), Single)], (89, 84));
    }
    for (bits, k) in [(8, [16, 16, 32]), (4, [32, 32, 64])] {
        for a in [false, true] {
            for b in [false, true] {
                for saturates in [false, true] {
                    let types = (Word, Integer(bits, a), Integer(bits, b), Word);
                    let [short, low, high] = k;
                    all.push(product(Shape { m: 8, n: 8, k: short }, types, (75, 70), "", saturates));
                    all.push(product(Shape { m: 16, n: 8, k: low }, types, (80, 70), "", saturates));
                    all.push(product(Shape { m: 16, n: 8, k: high }, types, (80, 70), "", saturates));
                }
            }
        }
    }
    for (join, needs) in [("xor", (75, 70)), ("and", (80, 71))] {
        for (m, k) in [(8, 128), (16, 128), (16, 256)] {
            let needs = if m == 16 { (80, needs.1) } else { needs };
            all.push(product(Shape { m, n: 8, k }, (Word, Bit, Bit, Word), needs, join, false));
        }
    }
    all
}

fn product(
    shape: Shape,
    (d, a, b, c): (Element, Element, Element, Element),
    needs: (u32, u32),
    bits: &'static str,
    saturates: bool,
) -> Product {
    let Shape { m, n, k } = shape;
    let sat = if saturates { ".satfinite" } else { "" };
    let end = if bits.is_empty() { String::new() } else { format!(".{bits}.popc") };
    let types = [d, a, b, c].map(Element::name).join(".");
    let text = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col{sat}.{types}{end}");
    Product { text, shape, a, b, c, d, needs, bits, saturates }
}

/// Returns the number of registers of a fragment with this many elements in all.
fn registers(element: Element, elements: usize) -> usize {
    elements * element.bits() as usize / LANES / element.register().bits() as usize
}

fn packed(element: Element) -> usize {
    (element.register().bits() / element.bits()) as usize
}

fn part(element: Element, register: u64, i: usize) -> i64 {
    let bits = element.bits();
    element.decode(register >> (bits * i as u32) & u64::MAX >> (64 - bits))
}

fn pack(element: Element, values: &[i64]) -> u64 {
    values.iter().rev().fold(0, |register, value| (register << (element.bits() % 64)) | element.encode(*value))
}

/// Multiplies two elements.
pub fn multiplied(bits: &str, a: i64, b: i64) -> i64 {
    match bits {
        "xor" => a ^ b,
        _ => a * b,
    }
}

pub fn limited(saturates: bool, sum: i64) -> i64 {
    if saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum }
}

fn case(product: Product) -> Form {
    let Product { text, shape, a, b, c, d, needs: (sm, ptx), bits, saturates } = product;
    let Shape { m, n, k } = shape;
    let counts = [registers(a, m * k), registers(b, n * k), registers(c, m * n), registers(d, m * n)];
    let inputs: Vec<Kind> = [(a, counts[0]), (b, counts[1]), (c, counts[2])]
        .iter()
        .flat_map(|(e, count)| vec![e.register(); *count])
        .collect();
    let mut random = Random::named(&text);
    let mut register = |element: Element| {
        let values: Vec<i64> = (0..packed(element)).map(|_| element.small(&mut random)).collect();
        // Sums that do not fit, for the saturating and the wrapping form.
        if element == Word && random.below(4) == 0 {
            let edge = if random.below(2) == 0 { i32::MAX } else { i32::MIN };
            return u64::from(edge as u32);
        }
        pack(element, &values)
    };
    let rows: Vec<Vec<u64>> = (0..LANES)
        .map(|_| {
            [(a, counts[0]), (b, counts[1]), (c, counts[2])]
                .iter()
                .flat_map(|(element, count)| (0..*count).map(|_| register(*element)).collect::<Vec<_>>())
                .collect()
        })
        .collect();
    let eval = move |rows: &[Vec<u64>]| {
        let (mut left, mut right) = (vec![vec![0; k]; m], vec![vec![0; n]; k]);
        for (lane, row) in rows.iter().enumerate() {
            for (r, register) in row[..counts[0]].iter().enumerate() {
                for i in 0..packed(a) {
                    let (y, x) =
                        if m == 16 { place_a(packed(a), lane, r, i) } else { place_a_short(packed(a), lane, r, i) };
                    left[y][x] = part(a, *register, i);
                }
            }
            for (r, register) in row[counts[0]..][..counts[1]].iter().enumerate() {
                for i in 0..packed(b) {
                    let (y, x) = place_b(packed(b), lane, r, i);
                    right[y][x] = part(b, *register, i);
                }
            }
        }
        let result = |lane: usize, row: &[u64], i: usize| {
            let (y, x) = place_c(lane, i);
            let third = &row[counts[0] + counts[1]..];
            let start = part(c, third[i / packed(c)], i % packed(c));
            let sum = start + (0..k).map(|j| multiplied(bits, left[y][j], right[j][x])).sum::<i64>();
            limited(saturates, sum)
        };
        rows.iter()
            .enumerate()
            .map(|(lane, row)| {
                let values: Vec<i64> = (0..counts[3] * packed(d)).map(|i| result(lane, row, i)).collect();
                values.chunks(packed(d)).map(|chunk| pack(d, chunk)).collect()
            })
            .collect()
    };
    let outputs = vec![d.register(); counts[3]];
    let list = |names: &[&str]| format!("{{{}}}", names.join(", "));
    let (first, second) = (counts[0], counts[0] + counts[1]);
    let code = format!(
        "{text} {}, {}, {}, {};",
        list(&OUTPUTS[..counts[3]]),
        list(&INPUTS[..first]),
        list(&INPUTS[first..second]),
        list(&INPUTS[second..second + counts[2]])
    );
    block(text, &outputs, &inputs, eval).code(code).given(rows).needs(sm, ptx)
}

/// `mma.m8n8k4` on f16: four products at once, each by four lanes of either half of the warp.
fn quads(g: &mut Grammar) {
    let below = |lane: usize| if lane < 16 { 0 } else { 4 };
    let place_result = move |e: Element, lane: usize, i: usize| match e {
        Half => (lane % 4 + below(lane), i),
        _ => ((lane & 1) + (i & 2) + below(lane), (i & 4) + (lane & 2) + (i & 1)),
    };
    for left in ["row", "col"] {
        for right in ["row", "col"] {
            for (d, c) in [(Half, Half), (Single, Half), (Single, Single)] {
                let text = format!("mma.sync.aligned.m8n8k4.{left}.{right}.{}.f16.f16.{}", d.name(), c.name());
                let registers = |e: Element| if e == Half { 4 } else { 8 };
                let inputs = vec![B32; 4 + registers(c)];
                let outputs = vec![B32; registers(d)];
                let eval = move |rows: &[Vec<u64>]| {
                    let (mut a, mut b) = ([[[0i64; 4]; 8]; 4], [[[0i64; 8]; 4]; 4]);
                    for (lane, row) in rows.iter().enumerate() {
                        let (quad, own, shift) = (lane % 16 / 4, lane % 4, below(lane));
                        for i in 0..4 {
                            let (y, x) = if left == "row" { (own + shift, i) } else { (i + shift, own) };
                            a[quad][y][x] = part(Half, row[i / 2], i % 2);
                            let (y, x) = if right == "row" { (own, i + shift) } else { (i, own + shift) };
                            b[quad][y][x] = part(Half, row[2 + i / 2], i % 2);
                        }
                    }
                    // C is collected first, because its fragment may differ from the result's.
                    let mut sums = [[[0i64; 8]; 8]; 4];
                    for (lane, row) in rows.iter().enumerate() {
                        for i in 0..8 {
                            let (y, x) = place_result(c, lane, i);
                            sums[lane % 16 / 4][y][x] = part(c, row[4 + i / packed(c)], i % packed(c));
                        }
                    }
                    (0..LANES)
                        .map(|lane| {
                            let quad = lane % 16 / 4;
                            let value = |i: usize| {
                                let (y, x) = place_result(d, lane, i);
                                sums[quad][y][x] + (0..4).map(|k| a[quad][y][k] * b[quad][k][x]).sum::<i64>()
                            };
                            let values: Vec<i64> = (0..8).map(value).collect();
                            values.chunks(packed(d)).map(|chunk| pack(d, chunk)).collect()
                        })
                        .collect()
                };
                let mut random = Random::named(&text);
                let rows = (0..LANES)
                    .map(|_| {
                        let mut word = |e: Element| {
                            let values: Vec<i64> = (0..packed(e)).map(|_| e.small(&mut random)).collect();
                            pack(e, &values)
                        };
                        (0..4 + registers(c)).map(|i| word(if i < 4 { Half } else { c })).collect()
                    })
                    .collect();
                let list = |names: &[&str]| format!("{{{}}}", names.join(", "));
                let code = format!(
                    "{text} {}, {}, {}, {};",
                    list(&OUTPUTS[..registers(d)]),
                    list(&INPUTS[..2]),
                    list(&INPUTS[2..4]),
                    list(&INPUTS[4..4 + registers(c)])
                );
                g.add(block(text, &outputs, &inputs, eval).code(code).given(rows));
            }
        }
    }
}
