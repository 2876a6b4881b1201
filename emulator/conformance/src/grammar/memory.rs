//! Loads and stores in every state space, width and vector length, with memory orders and hints.

use super::Grammar;
use crate::{
    kind::Kind::{self, *},
    recipe::{Form, INPUTS, OUTPUTS, forms},
    scalar::integer::{int, wrap},
};

/// A state space, as an instruction names it.
#[derive(Clone, Copy, PartialEq)]
pub struct Space {
    /// Name with its dot; empty for generic addresses.
    pub name: &'static str,
    /// Declarations, and code that puts the address of 16 bytes of the thread's own into `%p`.
    pub setup: &'static str,
    pub globals: &'static str,
    pub sm: u32,
    pub ptx: u32,
}

/// Declaration of 16 bytes for each thread of the largest case.
const SHARED: &str = ".shared .align 16 .b8 shared_bytes[2048];\n";
const SHARED_SETUP: &str = ".reg .b64 %p;\nmov.u64 %p, shared_bytes;\nmad.wide.u32 %p, %thread, 16, %p;\n";
const TABLE: &str = ".const .align 16 .b64 table[8] = {0x0123456789abcdef, 0xfedcba9876543210, 0x8000000180000001, \
                     0x7fffffff7fff7f80, 1, 0xffffffffffffffff, 0x80ff7f0180ff7f01, 0};\n";
const TABLE_WORDS: [u64; 8] = [
    0x0123_4567_89ab_cdef,
    0xfedc_ba98_7654_3210,
    0x8000_0001_8000_0001,
    0x7fff_ffff_7fff_7f80,
    1,
    u64::MAX,
    0x80ff_7f01_80ff_7f01,
    0,
];

pub const SPACES: [Space; 6] = [
    Space { name: "", setup: ".reg .b64 %p;\nmov.b64 %p, %m;\n", globals: "", sm: 70, ptx: 70 },
    Space { name: ".global", setup: ".reg .b64 %p;\nmov.b64 %p, %m;\n", globals: "", sm: 70, ptx: 70 },
    Space { name: ".shared", setup: SHARED_SETUP, globals: SHARED, sm: 70, ptx: 70 },
    Space { name: ".shared::cta", setup: SHARED_SETUP, globals: SHARED, sm: 70, ptx: 78 },
    Space { name: ".shared::cluster", setup: SHARED_SETUP, globals: SHARED, sm: 90, ptx: 78 },
    Space {
        name: ".local",
        setup: ".local .align 16 .b8 local_bytes[16];\n.reg .b64 %p;\nmov.u64 %p, local_bytes;\n",
        globals: "",
        sm: 70,
        ptx: 70,
    },
];

/// A spelling of an access: the modifiers before and after the state space.
#[derive(Clone, Copy)]
struct Way {
    before: &'static str,
    after: &'static str,
    sm: u32,
    ptx: u32,
    /// True if it only orders or hints and changes no value.
    is_hint: bool,
}

const fn way(before: &'static str, after: &'static str, sm: u32, ptx: u32) -> Way {
    Way { before, after, sm, ptx, is_hint: true }
}

const PLAIN: Way = Way { before: "", after: "", sm: 70, ptx: 70, is_hint: false };

/// Orders and scopes of `.relaxed`, `.acquire` and `.release`, with what they need.
const ORDERS: [(&str, &str, u32, u32); 8] = [
    (".relaxed.cta", "", 70, 70),
    (".relaxed.gpu", "", 70, 70),
    (".relaxed.sys", "", 70, 70),
    (".relaxed.cluster", "", 90, 78),
    (".acquire.cta", ".release.cta", 70, 70),
    (".acquire.gpu", ".release.gpu", 70, 70),
    (".acquire.sys", ".release.sys", 70, 70),
    (".acquire.cluster", ".release.cluster", 90, 78),
];

const EVICTIONS: [Way; 5] = [
    way("", ".L1::evict_normal", 70, 74),
    way("", ".L1::evict_unchanged", 70, 74),
    way("", ".L1::evict_first", 70, 74),
    way("", ".L1::evict_last", 70, 74),
    way("", ".L1::no_allocate", 70, 74),
];

const PREFETCHES: [Way; 3] = [way("", ".L2::64B", 75, 74), way("", ".L2::128B", 75, 74), way("", ".L2::256B", 80, 74)];

fn ways(space: &str, is_load: bool, vector: usize) -> Vec<Way> {
    let mut ways = vec![PLAIN, way(".weak", "", 70, 70)];
    let shared = space.starts_with(".shared");
    let global = matches!(space, "" | ".global");
    if shared || global {
        ways.push(Way { is_hint: vector > 1, ..way(".volatile", "", 70, 70) });
        for (load, store, sm, ptx) in ORDERS {
            let text = if is_load || store.is_empty() { load } else { store };
            ways.push(Way { is_hint: vector > 1 || !text.ends_with(".gpu"), ..way(text, "", sm, ptx) });
        }
        if global && vector == 1 {
            ways.push(way(".mmio.relaxed.sys", "", 70, 82));
        }
    }
    let caches: &[&'static str] =
        if is_load { &[".ca", ".cg", ".cs", ".lu", ".cv"] } else { &[".wb", ".cg", ".cs", ".wt"] };
    ways.extend(caches.iter().map(|cache| way("", cache, 70, 70)));
    if global {
        ways.extend(EVICTIONS);
        if is_load {
            ways.extend(PREFETCHES);
        }
    }
    if space == ".global" && is_load {
        ways.push(Way { is_hint: vector > 1, ..way("", ".nc", 70, 70) });
        ways.extend([".ca.nc", ".cg.nc", ".cs.nc"].map(|cache| way("", cache, 70, 70)));
        ways.extend([".nc.L1::evict_first", ".nc.L1::no_allocate"].map(|hint| way("", hint, 70, 74)));
    }
    ways
}

/// Returns the types of a width.
fn types(bits: u32) -> &'static [Kind] {
    match bits {
        8 => &[B8, U8, S8],
        16 => &[B16, U16, S16],
        32 => &[B32, U32, S32, F32],
        _ => &[B64, U64, S64, F64],
    }
}

pub fn add(g: &mut Grammar) {
    for bits in [8, 16, 32, 64] {
        for vector in [1usize, 2, 4] {
            if bits as usize * vector > 128 {
                continue;
            }
            for space in SPACES {
                for k in types(bits) {
                    accesses(g, space, *k, vector);
                }
            }
            for k in types(bits) {
                constants(g, *k, vector);
            }
        }
    }
    for space in SPACES {
        widened(g, space);
        whole(g, space);
    }
    uniform(g);
}

/// Formats `{a, b}`, or a single operand.
fn list(names: &[&str]) -> String {
    if names.len() == 1 { names[0].to_owned() } else { format!("{{{}}}", names.join(", ")) }
}

fn spelled(vector: usize) -> String {
    if vector == 1 { String::new() } else { format!(".v{vector}") }
}

/// Returns the untyped kind of a width, so that all types of the width share columns.
fn column(bits: u32) -> Kind {
    match bits {
        8 => B8,
        16 => B16,
        32 => B32,
        _ => B64,
    }
}

fn accesses(g: &mut Grammar, space: Space, k: Kind, vector: usize) {
    let Space { name, setup, globals, sm, ptx } = space;
    let (v, bits) = (spelled(vector), k.bits());
    let columns = vec![column(bits); vector];
    let (inputs, outputs) = (list(&INPUTS[..vector]), list(&OUTPUTS[..vector]));
    for is_load in [true, false] {
        for way in ways(name, is_load, vector) {
            let mnemonic = if is_load { "ld" } else { "st" };
            let text = format!("{mnemonic}{}{name}{}{v}.{k}", way.before, way.after);
            let code = if is_load {
                format!("{setup}st{name}{v}.b{bits} [%p], {inputs};\n{text} {outputs}, [%p];")
            } else {
                format!("{setup}{text} [%p], {inputs};\nld{name}{v}.b{bits} {outputs}, [%p];")
            };
            let made = forms(text, &columns, &columns, |x| x.to_vec()).code(code);
            g.add(
                place(made, space, bits, &v).needs(sm.max(way.sm), ptx.max(way.ptx)).globals(globals).hint(way.is_hint),
            );
        }
    }
    if space.name == ".global" && matches!(bits, 32 | 64) {
        policies(g, k, vector);
    }
}

fn place(form: Form, space: Space, bits: u32, v: &str) -> Form {
    let name = if space.name.is_empty() { "generic" } else { &space.name[1..] };
    form.file(format!("{name}{v}.b{bits}")).scratch(2).count(6)
}

/// Accesses with an L2 cache policy.
fn policies(g: &mut Grammar, k: Kind, vector: usize) {
    const POLICY: &str = ".reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n";
    let (v, bits, space) = (spelled(vector), k.bits(), SPACES[1]);
    let columns = vec![column(bits); vector];
    let (inputs, outputs) = (list(&INPUTS[..vector]), list(&OUTPUTS[..vector]));
    for hint in [".L2::cache_hint", ".L1::evict_last.L2::cache_hint"] {
        let (load, store) = (format!("ld.global{hint}{v}.{k}"), format!("st.global{hint}{v}.{k}"));
        let setup = space.setup;
        let code = format!("{setup}{POLICY}st.global{v}.b{bits} [%p], {inputs};\n{load} {outputs}, [%p], %policy;");
        let made = forms(load, &columns, &columns, |x| x.to_vec()).code(code);
        g.add(place(made, space, bits, &v).needs(80, 74).hint(true));
        let code = format!("{setup}{POLICY}{store} [%p], {inputs}, %policy;\nld.global{v}.b{bits} {outputs}, [%p];");
        let made = forms(store, &columns, &columns, |x| x.to_vec()).code(code);
        g.add(place(made, space, bits, &v).needs(80, 74).hint(true));
    }
}

/// Constants, which are read from a table by an index.
fn constants(g: &mut Grammar, k: Kind, vector: usize) {
    let (v, bits) = (spelled(vector), k.bits());
    let columns = vec![column(bits); vector];
    let outputs = list(&OUTPUTS[..vector]);
    for cache in ["", ".weak", ".ca", ".cg", ".cs", ".lu", ".cv"] {
        let (before, after) = if cache == ".weak" { (".weak", "") } else { ("", cache) };
        let text = format!("ld{before}.const{after}{v}.{k}");
        let code = format!(".reg .b64 %p;\nmov.u64 %p, table;\nmad.wide.u32 %p, %a, 16, %p;\n{text} {outputs}, [%p];");
        let made = forms(text, &columns, &[U32], move |x| {
            let words = &TABLE_WORDS[2 * x[0] as usize..];
            let at = |i: usize| words[i * bits as usize / 64] >> (i * bits as usize % 64) & column(bits).mask();
            (0..vector).map(at).collect()
        });
        let made = made.code(code).file(format!("const{v}.b{bits}")).globals(TABLE);
        g.add(made.given((0..4).map(|index| vec![index]).collect()).hint(!cache.is_empty()));
    }
}

/// Accesses with registers wider than the type: loads extend by the type's sign, stores write the low bits.
fn widened(g: &mut Grammar, space: Space) {
    let Space { name, setup, globals, sm, ptx } = space;
    for k in [B8, U8, S8, B16, U16, S16, B32, U32, S32] {
        for wide in [U32, U64] {
            if k.bits() >= wide.bits() {
                continue;
            }
            let place = |made: Form| {
                let name = if name.is_empty() { "generic" } else { &name[1..] };
                made.file(format!("{name}.{k}.in.{}", wide.register()))
                    .scratch(2)
                    .count(12)
                    .needs(sm, ptx)
                    .globals(globals)
            };
            let (load, store) = (format!("ld{name}.{k}"), format!("st{name}.{k}"));
            let width = wide.register();
            let code = format!("{setup}st{name}.{width} [%p], %a;\n{load} %d, [%p];");
            let made = forms(load, &[wide], &[wide], move |x| vec![wrap(wide, int(k, x[0]))]).code(code);
            g.add(place(made));
            let code = format!("{setup}st{name}.{width} [%p], %b;\n{store} [%p], %a;\nld{name}.{width} %d, [%p];");
            let made =
                forms(store, &[wide], &[wide, wide], move |x| vec![x[1] & !k.mask() | x[0] & k.mask()]).code(code);
            g.add(place(made));
        }
    }
}

/// 128-bit accesses.
fn whole(g: &mut Grammar, space: Space) {
    let Space { name, setup, globals, sm, ptx } = space;
    for is_load in [true, false] {
        for way in ways(name, is_load, 1) {
            if way.before.starts_with(".mmio") {
                continue;
            }
            let mnemonic = if is_load { "ld" } else { "st" };
            let text = format!("{mnemonic}{}{name}{}.b128", way.before, way.after);
            let code = if is_load {
                format!(
                    "{setup}.reg .b128 %z;\nst{name}.v2.b64 [%p], {{%a, %b}};\n{text} %z, [%p];\nmov.b128 {{%d, %q}}, %z;"
                )
            } else {
                format!(
                    "{setup}.reg .b128 %z;\nmov.b128 %z, {{%a, %b}};\n{text} [%p], %z;\nld{name}.v2.b64 {{%d, %q}}, [%p];"
                )
            };
            let made = forms(text, &[B64, B64], &[B64, B64], |x| x.to_vec()).code(code);
            let made = place(made, space, 128, "")
                .needs(sm.max(way.sm), ptx.max(way.ptx).max(if way.before.ends_with(".sys") { 84 } else { 83 }));
            let made = made.globals(globals);
            g.add(made.hint(way.is_hint));
        }
    }
}

/// `ldu`: loads of values that are equal in the whole warp.
fn uniform(g: &mut Grammar) {
    for bits in [8, 16, 32, 64] {
        for vector in [1usize, 2, 4] {
            if bits as usize * vector > 128 {
                continue;
            }
            for space in &SPACES[..2] {
                for k in types(bits) {
                    let v = spelled(vector);
                    let text = format!("ldu{}{v}.{k}", space.name);
                    let columns = vec![column(bits); vector];
                    let code = format!(
                        "{}st.global{v}.b{bits} [%p], {};\n{text} {}, [%p];",
                        space.setup,
                        list(&INPUTS[..vector]),
                        list(&OUTPUTS[..vector])
                    );
                    let made = forms(text, &columns, &columns, |x| x.to_vec()).code(code);
                    g.add(made.file(format!("generic{v}.b{bits}")).scratch(2).count(2));
                }
            }
        }
    }
}
