//! Warp-level operations: shuffles, votes, matches, reductions, elections.

use super::Grammar;
use crate::{
    inputs::{Random, edges},
    kind::Kind::{self, *},
    recipe::{Form, block},
    scalar::integer::{int, wrap},
};

/// Lanes of a warp, which is also the number of rows in these cases.
const LANES: usize = 32;
/// Mask of the participating lanes in the second half of the cases: a pattern without symmetry.
const SOME: u32 = 0x7ac3_91d6;

pub fn add(g: &mut Grammar) {
    shuffles(g);
    votes(g);
    matches(g);
    reductions(g);
    who(g);
}

/// Returns one row per lane.
fn rows(columns: &[Kind], name: &str, few: bool) -> Vec<Vec<u64>> {
    let mut random = Random::named(name);
    (0..LANES)
        .map(|_| {
            columns.iter().map(|kind| if few { edges(*kind)[random.below(2)] } else { random.value(*kind) }).collect()
        })
        .collect()
}

/// Makes the case for all lanes, and the one for some lanes while the others skip the instruction.
fn both(
    text: &str,
    outputs: &[Kind],
    inputs: &[Kind],
    code: &str,
    eval: impl Fn(&[Vec<u64>], u32) -> Vec<Vec<u64>> + Clone + 'static,
) -> [Form; 2] {
    let all = eval.clone();
    let whole = block(text, outputs, inputs, move |rows| all(rows, u32::MAX)).code(code.replace("MASK", "0xffffffff"));
    let some = block(text, outputs, inputs, move |rows| {
        let mut results = eval(rows, SOME);
        for (lane, row) in results.iter_mut().enumerate().filter(|(lane, _)| SOME >> lane & 1 == 0) {
            row.fill(lane as u64 & 1);
        }
        results
    });
    // Lanes that are left out have a value of their own.
    let mut set = String::new();
    for (kind, name) in outputs.iter().zip(crate::recipe::OUTPUTS) {
        set += &match kind {
            Pred => format!("and.b32 %y, %thread, 1;\nsetp.ne.u32 {name}, %y, 0;\n"),
            _ if kind.bits() == 32 => format!("and.b32 {name}, %thread, 1;\n"),
            _ => format!("and.b32 %y, %thread, 1;\ncvt.u64.u32 {name}, %y;\n"),
        };
    }
    let guarded = format!(
        ".reg .b32 %y;\n.reg .pred %on;\n{set}shr.u32 %y, {SOME}, %thread;\nand.b32 %y, %y, 1;\nsetp.ne.u32 %on, %y, 0;\n\
         @!%on bra around;\n{}\naround:",
        code.replace("MASK", &format!("{SOME:#x}"))
    );
    let file = whole.file.clone();
    [whole, some.code(guarded).file(format!("{file}.some"))]
}

fn shuffles(g: &mut Grammar) {
    type Source = fn(i64, i64, i64, i64) -> (i64, bool);
    // The source lane, given this lane, the operand, and the ends of the segment.
    let modes: [(&str, u64, Source); 4] = [
        ("up", 0, |lane, b, least, _| (lane - b, lane - b >= least)),
        ("down", 31, |lane, b, _, most| (lane + b, lane + b <= most)),
        ("bfly", 31, |lane, b, _, most| (lane ^ b, lane ^ b <= most)),
        ("idx", 31, |_, b, _, most| (b, b <= most)),
    ];
    for (mode, clamp, source) in modes {
        // Segments of 32, 8 and 16 lanes.
        for segment in [0u64, 0x18, 0x10] {
            let c = segment << 8 | clamp;
            let eval = move |rows: &[Vec<u64>], mask: u32| {
                let (clamp, segment) = ((c & 31) as i64, (c >> 8 & 31) as i64);
                (0..LANES as i64)
                    .map(|lane| {
                        let most = (lane & segment) | (clamp & !segment);
                        let least = lane & segment;
                        let b = (rows[lane as usize][1] & 31) as i64;
                        // For `up`, the clamp is the lower limit.
                        let (mut from, inside) = match mode {
                            "up" => source(lane, b, most, most),
                            "idx" => {
                                let from = least | (b & !segment);
                                (from, from <= most)
                            }
                            _ => source(lane, b, least, most),
                        };
                        if !inside {
                            from = lane;
                        }
                        // Reading a lane that does not participate is undefined.
                        let value = if mask >> from & 1 != 0 { rows[from as usize][0] } else { rows[lane as usize][0] };
                        vec![value, inside.into()]
                    })
                    .collect()
            };
            let text = format!("shfl.sync.{mode}.b32");
            let code = format!("{text} %d|%q, %a, %b, {c:#x}, MASK;");
            let [whole, _] = both(&text, &[B32, Pred], &[B32, U32], &code, eval);
            let rows = rows(&[B32, U32], &format!("{mode}{c}"), false);
            let file = format!("{}.{segment:02x}", whole.file);
            g.add(whole.file(&file).given(rows.clone()));
            // One amount for all lanes, without the predicate.
            let alone = block(text.clone(), &[B32], &[B32, U32], move |rows| {
                let same: Vec<Vec<u64>> = rows.iter().map(|row| vec![row[0], 3]).collect();
                eval(&same, u32::MAX).into_iter().map(|row| vec![row[0]]).collect()
            });
            g.add(alone.code(format!("{text} %d, %a, 3, {c:#x}, 0xffffffff;")).file(&file).given(rows));
        }
    }
}

fn votes(g: &mut Grammar) {
    type Vote = fn(u32, u32) -> u64;
    let modes: [(&str, Kind, Vote); 4] = [
        ("all.pred", Pred, |set, mask| (set == mask).into()),
        ("any.pred", Pred, |set, _| (set != 0).into()),
        ("uni.pred", Pred, |set, mask| (set == 0 || set == mask).into()),
        ("ballot.b32", B32, |set, _| set.into()),
    ];
    for (mode, k, vote) in modes {
        for (negated, spelled) in [(false, ""), (true, "!")] {
            for column in ["mixed", "ones", "zeros"] {
                let eval = move |rows: &[Vec<u64>], mask: u32| {
                    let set = (0..LANES)
                        .filter(|lane| (rows[*lane][0] != 0) != negated)
                        .fold(0u32, |set, lane| set | 1 << lane);
                    vec![vec![vote(set & mask, mask)]; LANES]
                };
                let text = format!("vote.sync.{mode}");
                let code = format!("{text} %d, {spelled}%a, MASK;");
                let values = match column {
                    "ones" => vec![vec![1]; LANES],
                    "zeros" => vec![vec![0]; LANES],
                    _ => rows(&[Pred], mode, true),
                };
                for made in both(&text, &[k], &[Pred], &code, eval) {
                    let file = format!("{}.{column}", made.file);
                    g.add(made.file(file).given(values.clone()));
                }
            }
        }
    }
}

fn matches(g: &mut Grammar) {
    for k in [B32, B64] {
        let any = move |rows: &[Vec<u64>], mask: u32| {
            let same =
                |value: u64| (0..LANES).filter(|lane| rows[*lane][0] == value).fold(0u32, |set, lane| set | 1 << lane);
            rows.iter().map(|row| vec![u64::from(same(row[0]) & mask)]).collect()
        };
        let text = format!("match.any.sync.{k}");
        for made in both(&text, &[B32], &[k], &format!("{text} %d, %a, MASK;"), any) {
            g.add(made.given(rows(&[k], "match", true)));
        }
        for equal in [false, true] {
            let all = move |rows: &[Vec<u64>], mask: u32| {
                let first = mask.trailing_zeros() as usize;
                let is_same = (0..LANES).all(|lane| mask >> lane & 1 == 0 || rows[lane][0] == rows[first][0]);
                let set = if is_same { mask.into() } else { 0 };
                vec![vec![set, is_same.into()]; LANES]
            };
            let text = format!("match.all.sync.{k}");
            let values = if equal { vec![vec![7]; LANES] } else { rows(&[k], "match", true) };
            for made in both(&text, &[B32, Pred], &[k], &format!("{text} %d|%q, %a, MASK;"), all) {
                let file = format!("{}.{}", made.file, if equal { "same" } else { "mixed" });
                g.add(made.file(file).given(values.clone()));
            }
        }
    }
}

fn reductions(g: &mut Grammar) {
    type Join = fn(Kind, u64, u64) -> u64;
    let joins: [(&str, &[Kind], Join); 6] = [
        ("add", &[U32, S32], |k, a, b| wrap(k, int(k, a) + int(k, b))),
        ("min", &[U32, S32], |k, a, b| wrap(k, int(k, a).min(int(k, b)))),
        ("max", &[U32, S32], |k, a, b| wrap(k, int(k, a).max(int(k, b)))),
        ("and", &[B32], |_, a, b| a & b),
        ("or", &[B32], |_, a, b| a | b),
        ("xor", &[B32], |_, a, b| a ^ b),
    ];
    for (name, kinds, join) in joins {
        for k in kinds {
            let k = *k;
            let eval = move |rows: &[Vec<u64>], mask: u32| {
                let taking = (0..LANES).filter(|lane| mask >> lane & 1 != 0).map(|lane| rows[lane][0]);
                let total = taking.reduce(|a, b| join(k, a, b)).unwrap_or_default();
                vec![vec![total]; LANES]
            };
            let text = format!("redux.sync.{name}.{k}");
            for made in both(&text, &[k], &[k], &format!("{text} %d, %a, MASK;"), eval) {
                g.add(made.needs(80, 70).given(rows(&[k], name, false)));
            }
        }
    }
}

fn who(g: &mut Grammar) {
    let made = block("activemask.b32", &[B32], &[U32], |rows| vec![vec![0xffff_ffff]; rows.len()]);
    g.add(made.code("activemask.b32 %d;").given(vec![vec![0]; LANES]));
    // The ISA does not define which lane is elected: a participating one, equal for all lanes, and only that one has
    // the predicate.
    let elected = |_: &[Vec<u64>], _: u32| vec![vec![1, 1]; LANES];
    let code = ".reg .b32 %leader, %member;\n.reg .pred %chosen, %me;\nelect.sync %leader|%chosen, MASK;\n\
                setp.eq.u32 %me, %leader, %thread;\nxor.pred %d, %chosen, %me;\nnot.pred %d, %d;\nmov.b32 %member, MASK;\n\
                shr.u32 %member, %member, %leader;\nand.b32 %member, %member, 1;\nsetp.eq.u32 %q, %member, 1;";
    for made in both("elect.sync", &[Pred, Pred], &[U32], code, elected) {
        g.add(made.needs(90, 80).given(vec![vec![0]; LANES]));
    }
}
