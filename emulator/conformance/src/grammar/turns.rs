//! Loads, stores and transposition of matrix tiles (`ldmatrix`, `stmatrix`, `movmatrix`).

use super::Grammar;
use crate::{
    inputs::Random,
    kind::Kind::*,
    recipe::{INPUTS, OUTPUTS, block},
};

const LANES: usize = 32;

pub fn add(g: &mut Grammar) {
    transposed(g);
    moved(g);
}

const SHARED: &str = ".shared .align 128 .b8 tiles[1024];\n";

/// Tiles of eight by eight, loaded from and stored to shared memory: each lane's inputs are one row of 16 bytes, whose
/// address it provides.
fn transposed(g: &mut Grammar) {
    for (count, v) in [(1usize, "x1"), (2, "x2"), (4, "x4")] {
        for (trans, turned) in [("", false), (".trans", true)] {
            for space in ["", ".shared", ".shared::cta"] {
                let setup = ".reg .b64 %p, %y;\nmov.u64 %y, tiles;\nmad.wide.u32 %p, %thread, 16, %y;\n";
                let generic = if space.is_empty() { "cvta.shared.u64 %p, %p;\n" } else { "" };
                let ptx = if space.is_empty() || space == ".shared" { 70 } else { 78 };
                let names = |all: &[&str]| format!("{{{}}}", all.join(", "));
                // Element `x` of row `y` of tile `t`; the rows are in the lanes' inputs.
                let element =
                    |rows: &[Vec<u64>], t: usize, y: usize, x: usize| rows[8 * t + y][x / 4] >> (16 * (x % 4)) & 0xffff;
                let text = format!("ldmatrix.sync.aligned.m8n8.{v}{trans}{space}.b16");
                let loaded = block(text.clone(), &vec![B32; count], &[B64, B64], move |rows| {
                    (0..LANES)
                        .map(|lane| {
                            (0..count)
                                .map(|t| {
                                    let at = |i: usize| {
                                        let (y, x) = (lane / 4, lane % 4 * 2 + i);
                                        if turned { element(rows, t, x, y) } else { element(rows, t, y, x) }
                                    };
                                    at(0) | at(1) << 16
                                })
                                .collect()
                        })
                        .collect()
                });
                let code = format!(
                    "{setup}st.shared.v2.b64 [%p], {{%a, %b}};\nbar.warp.sync 0xffffffff;\n{generic}{text} {}, [%p];",
                    names(&OUTPUTS[..count])
                );
                let rows: Vec<Vec<u64>> = {
                    let mut random = Random::named(v);
                    (0..LANES).map(|_| vec![random.draw(), random.draw()]).collect()
                };
                let tail = if space.is_empty() { "generic" } else { &space[1..] };
                let file = format!("{v}{trans}.{tail}");
                g.add(loaded.code(code).globals(SHARED).given(rows).needs(75, ptx).file(file.clone()));
                let text = format!("stmatrix.sync.aligned.m8n8.{v}{trans}{space}.b16");
                let stored = block(text.clone(), &[B64, B64], &vec![B32; count], move |rows| {
                    (0..LANES)
                        .map(|lane| {
                            let (t, y) = (lane / 8, lane % 8);
                            let at = |x: usize| {
                                if t >= count {
                                    return 0;
                                }
                                let (y, x) = if turned { (x, y) } else { (y, x) };
                                rows[y * 4 + x / 2][t] >> (16 * (x % 2)) & 0xffff
                            };
                            (0..2).map(|half| (0..4).fold(0, |word, x| word | at(4 * half + x) << (16 * x))).collect()
                        })
                        .collect()
                });
                let code = format!(
                    "{setup}st.shared.v2.b64 [%p], {{0, 0}};\nbar.warp.sync 0xffffffff;\n{}{text} [{}], {};\n\
                     bar.warp.sync 0xffffffff;\nld.shared.v2.b64 {{%d, %q}}, [%p];",
                    if space.is_empty() { "cvta.shared.u64 %y, %p;\n" } else { "" },
                    if space.is_empty() { "%y" } else { "%p" },
                    names(&INPUTS[..count])
                );
                let rows = {
                    let mut random = Random::named(v);
                    (0..LANES).map(|_| (0..count).map(|_| random.draw() & 0xffff_ffff).collect()).collect()
                };
                g.add(stored.code(code).globals(SHARED).given(rows).needs(90, 78).file(file));
            }
        }
    }
}

/// A transposed tile in registers.
fn moved(g: &mut Grammar) {
    let made = block("movmatrix.sync.aligned.m8n8.trans.b16", &[B32], &[B32], |rows| {
        let at = |y: usize, x: usize| rows[y * 4 + x / 2][0] >> (16 * (x % 2)) & 0xffff;
        (0..LANES)
            .map(|lane| {
                let (y, x) = (lane / 4, lane % 4 * 2);
                vec![at(x, y) | at(x + 1, y) << 16]
            })
            .collect()
    });
    let mut random = Random::named("movmatrix");
    g.add(made.given((0..LANES).map(|_| vec![random.draw() & 0xffff_ffff]).collect()).needs(75, 78));
}
