//! `wmma`: products of matrices with fragments of unspecified layout. They are loaded from shared memory, multiplied,
//! and stored there again.

use super::{
    Grammar,
    matrix::{Element, Element::*, limited, multiplied},
};
use crate::{
    inputs::Random,
    kind::Kind::*,
    recipe::{Form, INPUTS, OUTPUTS, block},
};

const LANES: usize = 32;
const SHARED: &str = ".shared .align 128 .b8 left[1024];\n.shared .align 128 .b8 right[1024];\n\
                      .shared .align 128 .b8 third[2048];\n.shared .align 128 .b8 result[2048];\n";

/// A shape with its element types: result, factors, addend.
#[derive(Clone, Copy)]
struct Tile {
    m: usize,
    n: usize,
    k: usize,
    d: Element,
    a: Element,
    b: Element,
    c: Element,
    sm: u32,
    ptx: u32,
    /// Registers of each fragment: both factors, addend, result.
    registers: [usize; 4],
    bits: &'static str,
    saturates: bool,
}

pub fn add(g: &mut Grammar) {
    for tile in tiles() {
        let whole_rows = tile.a.bits() < 8;
        for left in ["row", "col"] {
            for right in ["row", "col"] {
                if whole_rows && (left, right) != ("row", "col") {
                    continue;
                }
                for (which, form) in forms(tile, left, right) {
                    g.add(form.file(format!(
                        "m{}n{}k{}.{left}.{right}.{}.{which}",
                        tile.m,
                        tile.n,
                        tile.k,
                        types(tile)
                    )));
                }
            }
        }
    }
}

fn types(tile: Tile) -> String {
    let end = match (tile.bits, tile.saturates) {
        ("", true) => ".satfinite".to_owned(),
        ("", false) => String::new(),
        (bits, _) => format!(".{bits}"),
    };
    format!("{}{end}", [tile.d, tile.a, tile.b, tile.c].map(Element::name).join("."))
}

fn tiles() -> Vec<Tile> {
    let mut all = Vec::new();
    let large = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];
    for (m, n, k) in large {
        let base = Tile {
            m,
            n,
            k,
            d: Single,
            a: Half,
            b: Half,
            c: Single,
            sm: 70,
            ptx: 70,
            registers: [8, 8, 8, 8],
            bits: "",
            saturates: false,
        };
        for (d, c) in [(Half, Half), (Single, Half), (Half, Single), (Single, Single)] {
            let count = |e: Element| if e == Half { 4 } else { 8 };
            all.push(Tile { d, c, registers: [8, 8, count(c), count(d)], ..base });
        }
        let (first, second) = (m * k * 2 / 128, k * n * 2 / 128);
        all.push(Tile { a: Brain, b: Brain, sm: 80, registers: [first, second, 8, 8], ..base });
        for signed in [false, true] {
            for saturates in [false, true] {
                let e = Integer(8, signed);
                let registers = [m * k / 128, k * n / 128, 8, 8];
                all.push(Tile { a: e, b: e, c: Word, d: Word, sm: 72, registers, saturates, ..base });
            }
        }
    }
    let small = Tile {
        m: 16,
        n: 16,
        k: 8,
        d: Single,
        a: Tensor,
        b: Tensor,
        c: Single,
        sm: 80,
        ptx: 70,
        registers: [4, 4, 8, 8],
        bits: "",
        saturates: false,
    };
    all.push(small);
    all.push(Tile { m: 8, n: 8, k: 4, d: Double, a: Double, b: Double, c: Double, registers: [1, 1, 2, 2], ..small });
    for signed in [false, true] {
        for saturates in [false, true] {
            let e = Integer(4, signed);
            all.push(Tile {
                m: 8,
                n: 8,
                k: 32,
                d: Word,
                a: e,
                b: e,
                c: Word,
                sm: 75,
                registers: [1, 1, 2, 2],
                saturates,
                ..small
            });
        }
    }
    for (bits, sm, ptx) in [("xor", 75, 70), ("and", 80, 71)] {
        all.push(Tile {
            m: 8,
            n: 8,
            k: 128,
            d: Word,
            a: Bit,
            b: Bit,
            c: Word,
            sm,
            ptx,
            registers: [1, 1, 2, 2],
            bits,
            ..small
        });
    }
    all
}

/// Returns the 64-bit words of a matrix that each lane contributes.
fn words(element: Element, elements: usize) -> usize {
    (elements * element.bits() as usize).div_ceil(LANES * 64)
}

/// Returns the `i`-th element of a matrix in the words of consecutive lanes.
fn element(rows: &[Vec<u64>], first: usize, count: usize, e: Element, i: usize) -> i64 {
    let bits = e.bits() as usize;
    let word = i * bits / 64;
    e.decode(rows[word / count][first + word % count] >> (i * bits % 64) & u64::MAX >> (64 - bits))
}

/// Returns the forms of one product: the loads of both factors and the addend, the product, and the store.
fn forms(tile: Tile, left: &'static str, right: &'static str) -> Vec<(&'static str, Form)> {
    let Tile { m, n, k, d, a, b, c, sm, ptx, registers, bits, saturates } = tile;
    let (wa, wb, wc, wd) = (words(a, m * k), words(b, k * n), words(c, m * n), words(d, m * n));
    let inputs = vec![B64; wa + wb + wc];
    let outputs = vec![B64; wd];
    let eval = move |rows: &[Vec<u64>]| {
        let at_a = |y: usize, x: usize| element(rows, 0, wa, a, if left == "row" { y * k + x } else { x * m + y });
        let at_b = |y: usize, x: usize| element(rows, wa, wb, b, if right == "row" { y * n + x } else { x * k + y });
        let mut all = vec![0u64; LANES * wd];
        for i in 0..m * n {
            let (y, x) = (i / n, i % n);
            let start = element(rows, wa + wb, wc, c, if left == "row" { i } else { x * m + y });
            let sum = start + (0..k).map(|j| multiplied(bits, at_a(y, j), at_b(j, x))).sum::<i64>();
            let width = d.bits() as usize;
            let place = if right == "row" { i * width } else { (x * m + y) * width };
            all[place / 64] |= d.encode(limited(saturates, sum)) << (place % 64);
        }
        all.chunks(wd).map(<[u64]>::to_vec).collect()
    };
    let mut random = Random::named(&format!("m{m}n{n}k{k}{}", types(tile)));
    let mut word = |e: Element| {
        (0..64 / e.bits()).fold(0u64, |word, i| {
            let value = if e == Word && random.below(4) == 0 { i64::from(i32::MAX) } else { e.small(&mut random) };
            word | e.encode(value) << (i * e.bits())
        })
    };
    let rows: Vec<Vec<u64>> = (0..LANES)
        .map(|_| {
            [(a, wa), (b, wb), (c, wc)]
                .iter()
                .flat_map(|(e, count)| (0..*count).map(|_| word(*e)).collect::<Vec<_>>())
                .collect()
        })
        .collect();
    let shape = format!("m{m}n{n}k{k}");
    let (ka, kb) = (if left == "row" { k } else { m }, if right == "row" { n } else { k });
    let mut all = Vec::new();
    for (which, space, is_hint) in [("shared", ".shared", false), ("generic", "", true), ("cta", ".shared::cta", true)]
    {
        let load_a = format!("wmma.load.a.sync.aligned.{left}.{shape}{space}.{}", a.name());
        let load_b = format!("wmma.load.b.sync.aligned.{right}.{shape}{space}.{}", b.name());
        let load_c = format!("wmma.load.c.sync.aligned.{left}.{shape}{space}.{}", c.name());
        let store = format!("wmma.store.d.sync.aligned.{right}.{shape}{space}.{}", d.name());
        let sat = if saturates { ".satfinite" } else { "" };
        let middle = match (a, bits) {
            (Half, _) => format!("{}.{}", d.name(), c.name()),
            _ => [d, a, b, c].map(Element::name).join("."),
        };
        let operation = if bits.is_empty() { String::new() } else { format!(".{bits}.popc") };
        let mma = format!("wmma.mma{operation}.sync.aligned.{left}.{right}.{shape}.{middle}{sat}");
        let code = program(
            [&load_a, &load_b, &load_c, &mma, &store],
            [wa, wb, wc, wd],
            registers,
            [a, b, c, d],
            [ka, kb, if left == "row" { n } else { m }, if right == "row" { n } else { m }],
            space.is_empty(),
        );
        let made = block(mma, &outputs, &inputs, eval).code(code).globals(SHARED).given(rows.clone());
        let made = made.also([load_a, load_b, load_c, store]);
        let newest = if space.contains("::") { 78 } else { 70 };
        all.push((which, made.needs(sm, ptx.max(newest)).hint(is_hint)));
    }
    all
}

fn program(
    texts: [&str; 5],
    words: [usize; 4],
    registers: [usize; 4],
    elements: [Element; 4],
    strides: [usize; 4],
    is_generic: bool,
) -> String {
    let [load_a, load_b, load_c, mma, store] = texts;
    let mut code = ".reg .b64 %pa, %pb, %pc, %pd, %y;\n".to_owned();
    let names = ["la", "lb", "lc", "ld"];
    for ((name, count), e) in names.iter().zip(registers).zip(elements) {
        code += &format!(".reg .{} %{name}<{count}>;\n", e.register().register());
    }
    let mut input = 0;
    for ((pointer, variable), count) in [("pa", "left"), ("pb", "right"), ("pc", "third")].iter().zip(words) {
        code += &format!("mov.u64 %{pointer}, {variable};\nmad.wide.u32 %y, %thread, {}, %{pointer};\n", count * 8);
        for word in 0..count {
            code += &format!("st.shared.b64 [%y+{}], {};\n", word * 8, INPUTS[input]);
            input += 1;
        }
        if is_generic {
            code += &format!("cvta.shared.u64 %{pointer}, %{pointer};\n");
        }
    }
    code += "mov.u64 %pd, result;\n";
    if is_generic {
        code += "cvta.shared.u64 %pd, %pd;\n";
    }
    let list = |name: &str, count: usize| {
        format!("{{{}}}", (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", "))
    };
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| list(names[i], registers[i]));
    code += &format!(
        "bar.warp.sync 0xffffffff;\n{load_a} {a}, [%pa], {};\n{load_b} {b}, [%pb], {};\n{load_c} {c}, [%pc], {};\n{mma} {d}, {a}, {b}, {c};\n\
         {store} [%pd], {d}, {};\nbar.warp.sync 0xffffffff;\nmov.u64 %y, result;\nmad.wide.u32 %y, %thread, {}, %y;\n",
        strides[0],
        strides[1],
        strides[2],
        strides[3],
        words[3] * 8
    );
    for (word, name) in OUTPUTS.iter().enumerate().take(words[3]) {
        code += &format!("ld.shared.b64 {name}, [%y+{}];\n", word * 8);
    }
    code
}
