//! Moves between registers, vectors and special registers; conversions of addresses between state spaces.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{form, forms},
};

/// Number of threads in cases on thread indices.
const THREADS: usize = 40;

pub fn add(g: &mut Grammar) {
    for k in [Pred, B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64] {
        g.add(form(format!("mov.{k}"), k, &[k], |x| x[0]).count(8).composed());
    }
    vectors(g);
    specials(g);
    generic(g);
    spaces(g);
}

fn vectors(g: &mut Grammar) {
    let join = |bits: u32| move |x: &[u64]| x.iter().rev().fold(0, |value, part| value << bits | part);
    for (name, k, part, count) in [("b32", B32, B16, 2), ("b64", B64, B32, 2), ("b64", B64, B16, 4)] {
        let parts = vec![part; count];
        let (inputs, outputs) = (&crate::recipe::INPUTS[..count], &crate::recipe::OUTPUTS[..count]);
        let text = format!("mov.{name}");
        let file = format!("{name}.of.{count}");
        g.add(
            form(text.clone(), k, &parts, join(part.bits()))
                .code(format!("{text} %d, {{{}}};", inputs.join(", ")))
                .file(&file)
                .count(8),
        );
        let split = forms(text.clone(), &parts, &[k], move |x| {
            (0..count as u32).map(|i| x[0] >> (i * part.bits()) & part.mask()).collect()
        });
        g.add(
            split.code(format!("{text} {{{}}}, %a;", outputs.join(", "))).file(format!("{name}.to.{count}")).count(8),
        );
    }
    // Only one part is used.
    g.add(
        form("mov.b64", B32, &[B64], |x| x[0] >> 32)
            .code("mov.b64 {_, %d}, %a;")
            .file("b64.to.one")
            .count(8)
            .needs(70, 71),
    );
    g.add(
        forms("mov.b128", &[B64, B64], &[B64, B64], |x| x.to_vec())
            .code(".reg .b128 %y, %z;\nmov.b128 %y, {%a, %b};\nmov.b128 %z, %y;\nmov.b128 {%d, %q}, %z;")
            .needs(70, 83)
            .count(8),
    );
}

/// Returns the value that thread `i` reads.
type Value = fn(u64) -> u64;

/// Special registers in a block of one row of threads, alone in its grid.
fn specials(g: &mut Grammar) {
    let words: [(&str, Value); 24] = [
        ("%tid.x", |i| i),
        ("%tid.y", |_| 0),
        ("%tid.z", |_| 0),
        ("%ntid.x", |_| THREADS as u64),
        ("%ntid.y", |_| 1),
        ("%ntid.z", |_| 1),
        ("%ctaid.x", |_| 0),
        ("%ctaid.y", |_| 0),
        ("%ctaid.z", |_| 0),
        ("%nctaid.x", |_| 1),
        ("%nctaid.y", |_| 1),
        ("%nctaid.z", |_| 1),
        ("%laneid", |i| i % 32),
        ("%lanemask_eq", |i| 1 << (i % 32)),
        ("%lanemask_lt", |i| (1 << (i % 32)) - 1),
        ("%lanemask_le", |i| (2 << (i % 32)) - 1),
        ("%lanemask_gt", |i| !((2u64 << (i % 32)) - 1) & 0xffff_ffff),
        ("%lanemask_ge", |i| !((1u64 << (i % 32)) - 1) & 0xffff_ffff),
        ("WARP_SZ", |_| 32),
        ("%dynamic_smem_size", |_| 0),
        ("%tid.w", |_| 0),
        ("%ntid.w", |_| 0),
        ("%ctaid.w", |_| 0),
        ("%nctaid.w", |_| 0),
    ];
    let rows: Vec<Vec<u64>> = (0..THREADS as u64).map(|i| vec![i]).collect();
    for (name, value) in words {
        let made = form("mov.u32", U32, &[U32], move |x| value(x[0])).code(format!("mov.u32 %d, {name};"));
        let file = name.trim_start_matches('%').replace("WARP_SZ", "warp_size");
        g.add(made.file(format!("u32.{file}")).given(rows.clone()));
    }
    // Clock registers: a later reading is not smaller.
    for (name, k) in [("%clock64", "u64"), ("%globaltimer", "u64")] {
        let code = format!(".reg .b64 %y, %z;\nmov.{k} %y, {name};\nmov.{k} %z, {name};\nsetp.le.u64 %d, %y, %z;");
        g.add(form("mov.u64", Pred, &[U32], |_| 1).code(code).file(format!("u64.{}", &name[1..])).given(vec![vec![0]]));
    }
    for name in ["%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi", "%smid", "%warpid", "%nwarpid", "%nsmid"]
    {
        let code = format!(".reg .b32 %y;\nmov.u32 %y, {name};\nmov.u32 %d, %a;");
        g.add(
            form("mov.u32", U32, &[U32], |x| x[0]).code(code).file(format!("u32.{}", &name[1..])).given(vec![vec![7]]),
        );
    }
    // Clusters of one block.
    for (name, value) in [
        ("%cluster_ctaid.x", 0),
        ("%cluster_nctaid.x", 1),
        ("%clusterid.x", 0),
        ("%nclusterid.x", 1),
        ("%cluster_ctarank", 0),
        ("%cluster_nctarank", 1),
    ] {
        let made = form("mov.u32", U32, &[U32], move |_| value).code(format!("mov.u32 %d, {name};"));
        g.add(made.file(format!("u32.{}", &name[1..])).given(vec![vec![0]]).needs(90, 78));
    }
}

const SHARED: &str = ".shared .align 16 .b8 shared_bytes[2048];\n";
const CONSTANT: &str = ".const .align 8 .b64 constant = 0x0123456789abcdef;\n";
const GLOBAL: &str = ".global .align 8 .b64 variable = 0xfedcba9876543210;\n";

/// Generic addresses: an access by one reaches its origin, and converting it back returns the original address.
fn generic(g: &mut Grammar) {
    let both = |name: &str, file: &str, setup: &str, globals: &str, ptx: u32, sm: u32| {
        let to = format!("cvta.{name}.u64");
        let back = format!("cvta.to.{name}.u64");
        let through = forms(to.clone(), &[B64], &[B64], |x| x.to_vec());
        let through =
            through.code(format!(".reg .b64 %y, %z;\n{setup}st.{file}.b64 [%y], %a;\n{to} %z, %y;\nld.b64 %d, [%z];"));
        let returned = form(back.clone(), B64, &[B64], |x| x[0]).code(format!(
            ".reg .b64 %y, %z;\n{setup}{to} %z, %y;\nst.b64 [%z], %a;\n{back} %z, %z;\nld.{file}.b64 %d, [%z];"
        ));
        [through, returned]
            .map(|made| made.file(name.to_owned() + ".u64").needs(sm, ptx).globals(globals).scratch(1).count(8))
    };
    let shared = "mov.u64 %y, shared_bytes;\nmad.wide.u32 %y, %thread, 8, %y;\n";
    let local = ".local .align 8 .b64 own;\nmov.u64 %y, own;\n";
    let cases = [
        both("global", "global", "mov.b64 %y, %m;\n", "", 70, 70),
        both("shared", "shared", shared, SHARED, 70, 70),
        both("shared::cta", "shared::cta", shared, SHARED, 78, 70),
        both("shared::cluster", "shared::cluster", shared, SHARED, 78, 90),
        both("local", "local", local, "", 70, 70),
    ];
    cases.into_iter().flatten().for_each(|made| g.add(made));
    for (text, code) in [
        ("cvta.const.u64", "mov.u64 %y, constant;\ncvta.const.u64 %z, %y;\nld.b64 %d, [%z];"),
        (
            "cvta.to.const.u64",
            "mov.u64 %y, constant;\ncvta.const.u64 %z, %y;\ncvta.to.const.u64 %z, %z;\nld.const.b64 %d, [%z];",
        ),
    ] {
        let made = form(text, B64, &[B64], |_| 0x0123_4567_89ab_cdef).code(format!(".reg .b64 %y, %z;\n{code}"));
        g.add(made.file("const.u64").globals(CONSTANT).count(2));
    }
    // A kernel parameter: the address of the results.
    for space in ["param", "param::entry"] {
        let ptx = if space == "param" { 77 } else { 83 };
        for (text, code) in [
            (format!("cvta.{space}.u64"), "ld.u64 %z, [%z];".to_owned()),
            (format!("cvta.to.{space}.u64"), format!("cvta.to.{space}.u64 %z, %z;\nld.{space}.u64 %z, [%z];")),
        ] {
            let made = form(text, Pred, &[U32], |_| 1).code(format!(
                ".reg .b64 %y, %z;\nmov.u64 %y, in;\ncvta.{space}.u64 %z, %y;\n{code}\nld.param.u64 %y, [in];\nsetp.eq.u64 %d, %y, %z;"
            ));
            g.add(made.file(format!("{space}.u64")).needs(70, ptx).given(vec![vec![0]]));
        }
    }
    let made = form("ld.param::entry.u64", Pred, &[U32], |_| 1);
    let code = ".reg .b64 %y, %z;\nld.param.u64 %y, [in];\nld.param::entry.u64 %z, [in];\nsetp.eq.u64 %d, %y, %z;";
    g.add(made.code(code).needs(70, 83).given(vec![vec![0]]));
    // In a cluster of one block every address in shared memory belongs to block 0.
    for (space, setup) in [("", "cvta.shared.u64 %z, %z;\n"), (".shared::cluster", "")] {
        for (k, register) in [(U32, "b32"), (U64, "b64")] {
            if k == U32 && space.is_empty() {
                continue;
            }
            let narrow = if k == U32 { "cvt.u32.u64 %n, %z;\n" } else { "mov.b64 %n, %z;\n" };
            let setup = format!(".reg .b64 %z;\n.reg .{register} %n, %o;\nmov.u64 %z, shared_bytes;\n{setup}{narrow}");
            let text = format!("mapa{space}.{k}");
            let made = form(text.clone(), Pred, &[U32], |_| 1)
                .code(format!("{setup}{text} %o, %n, %a;\nsetp.eq.{k} %d, %n, %o;"));
            g.add(made.needs(90, 78).globals(SHARED).given(vec![vec![0]]));
            let text = format!("getctarank{space}.{k}");
            let made = form(text.clone(), U32, &[U32], |_| 0).code(format!("{setup}{text} %d, %n;"));
            g.add(made.needs(90, 78).globals(SHARED).given(vec![vec![0]]));
        }
    }
    let made = form("mov.u64", B64, &[B64], |_| 0xfedc_ba98_7654_3210)
        .code(".reg .b64 %y;\nmov.u64 %y, variable;\nld.global.b64 %d, [%y];");
    g.add(made.file("u64.variable").globals(GLOBAL).given(vec![vec![0]]));
}

/// Tests addresses of every state space with `isspacep` of every state space.
fn spaces(g: &mut Grammar) {
    let addresses = [
        ("global", "mov.b64 %z, %m;\n"),
        ("shared", "mov.u64 %y, shared_bytes;\ncvta.shared.u64 %z, %y;\n"),
        ("local", ".local .align 8 .b64 own;\nmov.u64 %y, own;\ncvta.local.u64 %z, %y;\n"),
        ("const", "mov.u64 %y, constant;\ncvta.const.u64 %z, %y;\n"),
    ];
    for (asked, ptx, sm) in [
        ("global", 70, 70),
        ("shared", 70, 70),
        ("shared::cta", 78, 70),
        ("shared::cluster", 78, 90),
        ("local", 70, 70),
        ("const", 70, 70),
        ("param", 77, 70),
        ("param::entry", 83, 70),
    ] {
        for (space, setup) in addresses {
            // Constants are in global memory too.
            if (asked, space) == ("global", "const") {
                continue;
            }
            let is_inside = asked.split("::").next() == Some(space);
            let made = form(format!("isspacep.{asked}"), Pred, &[U32], move |_| is_inside.into());
            let made = made.code(format!(".reg .b64 %y, %z;\n{setup}isspacep.{asked} %d, %z;"));
            let globals = if space == "shared" { SHARED } else { CONSTANT };
            g.add(
                made.file(format!("{asked}.of.{space}"))
                    .needs(sm, ptx)
                    .globals(globals)
                    .scratch(1)
                    .given(vec![vec![0]]),
            );
        }
    }
}
