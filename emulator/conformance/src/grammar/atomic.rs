//! Atomic operations, in every form, with a location per thread. Separate cases check that no update is lost among many
//! threads.

use super::{
    Grammar,
    float::extreme,
    memory::{SPACES, Space},
};
use crate::{
    inputs::Random,
    kind::Kind::{self, *},
    recipe::{INPUTS, OUTPUTS, block, forms},
    scalar::{
        float::{Format, Mode, decode, encode, sum},
        integer::{halves, int, wrap},
    },
};

/// Returns the new value for the old value and the operands.
type Update = fn(Kind, u64, &[u64]) -> u64;

struct Operation {
    name: &'static str,
    kinds: &'static [Kind],
    /// Number of operands in addition to the address.
    operands: usize,
    update: Update,
    is_reduction: bool,
}

const OPERATIONS: [Operation; 9] = [
    Operation { name: "and", kinds: &[B32, B64], operands: 1, update: |_, m, x| m & x[0], is_reduction: true },
    Operation { name: "or", kinds: &[B32, B64], operands: 1, update: |_, m, x| m | x[0], is_reduction: true },
    Operation { name: "xor", kinds: &[B32, B64], operands: 1, update: |_, m, x| m ^ x[0], is_reduction: true },
    Operation { name: "exch", kinds: &[B32, B64], operands: 1, update: |_, _, x| x[0], is_reduction: false },
    Operation {
        name: "cas",
        kinds: &[B16, B32, B64],
        operands: 2,
        update: |_, m, x| if m == x[0] { x[1] } else { m },
        is_reduction: false,
    },
    Operation {
        name: "inc",
        kinds: &[U32],
        operands: 1,
        update: |_, m, x| if m >= x[0] { 0 } else { m + 1 },
        is_reduction: true,
    },
    Operation {
        name: "dec",
        kinds: &[U32],
        operands: 1,
        update: |_, m, x| if m == 0 || m > x[0] { x[0] } else { m - 1 },
        is_reduction: true,
    },
    Operation {
        name: "min",
        kinds: &[U32, S32, U64, S64],
        operands: 1,
        update: |k, m, x| wrap(k, int(k, m).min(int(k, x[0]))),
        is_reduction: true,
    },
    Operation {
        name: "max",
        kinds: &[U32, S32, U64, S64],
        operands: 1,
        update: |k, m, x| wrap(k, int(k, m).max(int(k, x[0]))),
        is_reduction: true,
    },
];

/// Memory orders; `red` does not have those with acquire.
const ORDERS: [&str; 5] = ["", ".relaxed", ".acquire", ".release", ".acq_rel"];
const SCOPES: [(&str, u32); 5] = [("", 70), (".cta", 70), (".gpu", 70), (".sys", 70), (".cluster", 90)];

fn atomic_spaces() -> impl Iterator<Item = Space> {
    SPACES.into_iter().filter(|space| space.name != ".local")
}

pub fn add(g: &mut Grammar) {
    for operation in &OPERATIONS {
        for k in operation.kinds {
            let update = operation.update;
            let (name, k) = (operation.name, *k);
            one(g, name, "", k, operation.operands, operation.is_reduction, (70, 70), move |_, m, x| update(k, m, x));
        }
    }
    for k in [U32, S32, U64] {
        one(g, "add", "", k, 1, true, (70, 70), move |_, m, x| wrap(k, int(k, m) + int(k, x[0])));
    }
    floats(g);
    vectors(g);
    whole(g);
    contended(g);
}

/// All forms of one operation on one type.
#[expect(clippy::too_many_arguments, reason = "a table's row, spelled out at each call")]
fn one(
    g: &mut Grammar,
    name: &str,
    suffix: &str,
    k: Kind,
    operands: usize,
    is_reduction: bool,
    (sm, ptx): (u32, u32),
    update: impl Fn(Space, u64, &[u64]) -> u64 + Clone + 'static,
) {
    let columns = vec![k; operands + 1];
    let bits = k.bits();
    for space in atomic_spaces() {
        for order in ORDERS {
            for (scope, scope_sm) in SCOPES {
                for mnemonic in ["atom", "red"] {
                    if mnemonic == "red" && (!is_reduction || order.starts_with(".ac")) {
                        continue;
                    }
                    let text = format!("{mnemonic}{order}{scope}{}.{name}{suffix}.{k}", space.name);
                    let values = INPUTS[1..=operands].join(", ");
                    let setup = space.setup;
                    let own = space.name;
                    let (update, before) = (update.clone(), format!("{setup}st{own}.b{bits} [%p], %a;\n"));
                    let made = if mnemonic == "red" {
                        forms(text.clone(), &[k], &columns, move |x| vec![update(space, x[0], &x[1..])])
                            .code(format!("{before}{text} [%p], {values};\nld{own}.b{bits} %d, [%p];"))
                    } else {
                        forms(text.clone(), &[k, k], &columns, move |x| vec![x[0], update(space, x[0], &x[1..])])
                            .code(format!("{before}{text} %d, [%p], {values};\nld{own}.b{bits} %q, [%p];"))
                    };
                    let newest = if scope_sm == 90 { 78 } else { 70 };
                    g.add(
                        made.file(format!("{name}.{k}"))
                            .globals(space.globals)
                            .scratch(2)
                            .and(if name == "cas" { &[&[5, 5, 9], &[0, 0, 1], &[7, 8, 9]] } else { &[] })
                            .count(24)
                            .needs(sm.max(space.sm).max(scope_sm), ptx.max(space.ptx).max(newest))
                            .hint(!order.is_empty() || !scope.is_empty() || space.name.contains("::")),
                    );
                }
            }
        }
    }
}

fn plus(k: Kind, flushes: bool, a: u64, b: u64) -> u64 {
    let f = Format::of(k);
    let clean = |x: u64| if flushes { f.flush(x) } else { x };
    clean(encode(f, sum(decode(f, clean(a)), decode(f, clean(b)), Mode::Nearest), Mode::Nearest))
}

fn floats(g: &mut Grammar) {
    // In global memory, subnormals are flushed; in shared memory they are not.
    one(g, "add", "", F32, 1, true, (70, 70), |space, m, x| plus(F32, !space.name.starts_with(".shared"), m, x[0]));
    one(g, "add", "", F64, 1, true, (70, 70), |_, m, x| plus(F64, false, m, x[0]));
    for (k, needs) in [(F16, (70, 70)), (Bf16, (90, 78))] {
        one(g, "add", ".noftz", k, 1, true, needs, move |_, m, x| plus(k, false, m, x[0]));
    }
    for (k, e, needs) in [(F16x2, F16, (70, 70)), (Bf16x2, Bf16, (90, 78))] {
        one(g, "add", ".noftz", k, 1, true, needs, move |_, m, x| halves(&[m, x[0]], |x| plus(e, false, x[0], x[1])));
    }
}

/// Kinds, vector lengths, operations, and the suffix of their names.
type Vectors = (&'static [Kind], &'static [usize], &'static [&'static str], &'static str);

/// Vector operations, which are atomic per element.
fn vectors(g: &mut Grammar) {
    let tables: [Vectors; 3] = [
        (&[F32], &[2, 4], &["add"], ""),
        (&[F16, Bf16], &[2, 4, 8], &["add", "min", "max"], ".noftz"),
        (&[F16x2, Bf16x2], &[2, 4], &["add", "min", "max"], ".noftz"),
    ];
    for (kinds, counts, names, suffix) in tables {
        for (k, count, name) in product(kinds, counts, names) {
            let columns = vec![k; 2 * count];
            let mut random = Random::named(name);
            // Results for values other than normal numbers are not defined.
            let ordinary = |x: u64| {
                let e = k.element().unwrap_or(k);
                let f = Format::of(e);
                (0..k.lanes())
                    .map(|lane| x >> (lane * e.bits()) & e.mask())
                    .all(|x| !f.is_nan(x) && !f.is_infinite(x) && !f.is_zero(x) && !f.is_subnormal(x))
            };
            let mut value = || loop {
                let value = random.value(k);
                if ordinary(value) {
                    return value;
                }
            };
            let rows: Vec<Vec<u64>> = (0..8).map(|_| (0..2 * count).map(|_| value()).collect()).collect();
            let one = move |e: Kind, a: u64, b: u64| match name {
                "add" => plus(e, false, a, b),
                _ => extreme(Format::of(e), name == "max", false, &[a, b]),
            };
            let each = move |a: u64, b: u64| match k {
                F16x2 => halves(&[a, b], |x| one(F16, x[0], x[1])),
                Bf16x2 => halves(&[a, b], |x| one(Bf16, x[0], x[1])),
                _ => one(k, a, b),
            };
            let list = |names: &[&str]| format!("{{{}}}", names.join(", "));
            let halfway = |text: &str, names: &[&str]| {
                // A vector of eight is passed as two of four.
                let bits = k.bits();
                let chunks: Vec<String> = names
                    .chunks(4)
                    .enumerate()
                    .map(|(i, chunk)| {
                        let (place, v) = (format!("[%p+{}]", i as u32 * 4 * bits / 8), chunk.len());
                        match text {
                            "st" => format!("st.global.v{v}.b{bits} {place}, {};\n", list(chunk)),
                            _ => format!("ld.global.v{v}.b{bits} {}, {place};\n", list(chunk)),
                        }
                    })
                    .collect();
                chunks.concat()
            };
            for space in &SPACES[..2] {
                for (order, scope) in [("", ""), (".relaxed", ".gpu")] {
                    for is_reduction in [false, true] {
                        let mnemonic = if is_reduction { "red" } else { "atom" };
                        let text = format!("{mnemonic}{order}{scope}{}.{name}{suffix}.v{count}.{k}", space.name);
                        let before = format!("{}{}", space.setup, halfway("st", &INPUTS[..count]));
                        let operands = list(&INPUTS[count..2 * count]);
                        let sums = move |x: &[u64]| (0..count).map(|i| each(x[i], x[count + i])).collect::<Vec<_>>();
                        let made = if is_reduction {
                            forms(text.clone(), &columns[..count], &columns, sums)
                                .code(format!("{before}{text} [%p], {operands};\n{}", halfway("ld", &OUTPUTS[..count])))
                        } else {
                            let old = list(&OUTPUTS[..count]);
                            let after = halfway("ld", &OUTPUTS[count..2 * count]);
                            forms(text.clone(), &columns, &columns, move |x| [&x[..count], &sums(x)].concat())
                                .code(format!("{before}{text} {old}, [%p], {operands};\n{after}"))
                        };
                        let hint = space.name.is_empty() || !order.is_empty();
                        let made = made.given(rows.clone()).needs(90, 81).scratch(2).hint(hint);
                        g.add(made.file(format!("{name}.v{count}.{k}")));
                    }
                }
            }
        }
    }
}

fn product(
    kinds: &'static [Kind],
    counts: &'static [usize],
    names: &'static [&'static str],
) -> impl Iterator<Item = (Kind, usize, &'static str)> {
    kinds
        .iter()
        .flat_map(move |k| counts.iter().flat_map(move |count| names.iter().map(move |name| (*k, *count, *name))))
}

/// 128-bit operations, which only exchange.
fn whole(g: &mut Grammar) {
    for space in atomic_spaces() {
        for order in ORDERS {
            for (scope, scope_sm) in SCOPES {
                let ptx = if scope == ".sys" { 84 } else { 83 };
                let (setup, own) = (space.setup, space.name);
                let before = format!(
                    "{setup}.reg .b128 %x, %y, %z;\nst{own}.v2.b64 [%p], {{%a, %b}};\nmov.b128 %x, {{%c, %e}};\n"
                );
                let after = format!("mov.b128 {{%d, %q}}, %z;\nld{own}.v2.b64 {{%s, %t}}, [%p];");
                let text = format!("atom{order}{scope}{own}.exch.b128");
                let made = forms(text.clone(), &[B64; 4], &[B64; 4], |x| vec![x[0], x[1], x[2], x[3]]);
                let made = made.code(format!("{before}{text} %z, [%p], %x;\n{after}")).file("exch.b128").count(8);
                let hint = !order.is_empty() || !scope.is_empty() || own.contains("::");
                g.add(made.globals(space.globals).scratch(2).needs(scope_sm.max(90), ptx).hint(hint));
                // The memory of the first two rows equals the comparand, that of the others does not.
                let text = format!("atom{order}{scope}{own}.cas.b128");
                let made = forms(text.clone(), &[B64; 4], &[B64, B64, B64, B64, Pred], |x| {
                    if x[4] != 0 { vec![x[0], x[1], x[2], x[3]] } else { vec![x[0], x[1], x[0], x[1]] }
                });
                let compared =
                    "{\n.reg .b64 %n;\nxor.b64 %n, %b, 1;\nselp.b64 %n, %b, %n, %f;\nmov.b128 %y, {%a, %n};\n}\n";
                let made =
                    made.code(format!("{before}{compared}{text} %z, [%p], %y, %x;\n{after}")).file("cas.b128").count(8);
                g.add(made.globals(space.globals).scratch(2).needs(scope_sm.max(90), ptx).hint(hint));
            }
        }
    }
}

/// All threads on one location: every update counts, and every old value is distinct.
fn contended(g: &mut Grammar) {
    const COUNTER: &str = ".shared .align 4 .b32 counter;\n";
    let rows: Vec<Vec<u64>> = (0..96).map(|i| vec![i]).collect();
    let made = block("atom.shared.add.u32", &[U32, U32], &[U32], |rows| {
        // Old values come in any order, so the sum of their squares is checked, and every thread receives the total.
        let count = rows.len() as u64;
        rows.iter().map(|_| vec![count, (0..count).map(|i| i * i).sum()]).collect()
    });
    let code = ".reg .b32 %y, %z;\n.reg .pred %first;\n.shared .align 4 .b32 squares;\nmov.u32 %y, 0;\nst.shared.u32 [counter], %y;\n\
                st.shared.u32 [squares], %y;\nbar.sync 0;\natom.shared.add.u32 %z, [counter], 1;\nmul.lo.u32 %z, %z, %z;\n\
                red.shared.add.u32 [squares], %z;\nbar.sync 0;\nld.shared.u32 %d, [counter];\nld.shared.u32 %q, [squares];";
    g.add(made.code(code).file("contended.u32").globals(COUNTER).given(rows.clone()));
    // A lock that each thread takes in turn; the data that it guards is not atomic.
    let made = block("atom.shared.cas.b32", &[U32], &[U32], |rows| {
        let total: u64 = rows.iter().map(|row| row[0]).sum();
        rows.iter().map(|_| vec![total]).collect()
    });
    let code = ".reg .b32 %y, %z;\n.reg .pred %held;\n.shared .align 4 .b32 total;\nmov.u32 %y, 0;\nst.shared.u32 [counter], %y;\n\
                st.shared.u32 [total], %y;\nbar.sync 0;\nagain:\natom.acquire.cta.shared.cas.b32 %z, [counter], 0, 1;\n\
                setp.ne.u32 %held, %z, 0;\n@%held bra again;\nld.volatile.shared.u32 %z, [total];\nadd.u32 %z, %z, %a;\n\
                st.volatile.shared.u32 [total], %z;\nmembar.cta;\natom.release.cta.shared.exch.b32 %z, [counter], 0;\n\
                bar.sync 0;\nld.shared.u32 %d, [total];";
    g.add(made.code(code).file("lock.b32").globals(COUNTER).given(rows));
}
