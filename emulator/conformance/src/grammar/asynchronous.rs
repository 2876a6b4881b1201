//! Asynchronous copies (`cp.async`), and cache hints.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{Form, form, forms},
};

const SHARED: &str = ".shared .align 128 .b8 shared_bytes[1024];\n";
/// PTX that prepares 16 bytes of ones in shared memory, and 16 bytes with the inputs in global memory, for each thread.
const SETUP: &str = ".reg .b64 %p;\n.reg .b32 %n;\n.reg .pred %ignored;\nmov.u64 %p, shared_bytes;\nmad.wide.u32 %p, %thread, 16, %p;\n\
                     st.shared.v2.b64 [%p], {-1, -1};\nst.global.v2.b64 [%m], {%a, %b};\n";

pub fn add(g: &mut Grammar) {
    copies(g);
    groups(g);
    hints(g);
}

/// Returns the words after a copy of `size` bytes, of which only the first `taken` come from the source.
fn copied(x: &[u64], size: u32, taken: u32) -> Vec<u64> {
    let source = u128::from(x[0]) | u128::from(x[1]) << 64;
    let byte = |i: u32| match i {
        _ if i >= size => 0xff,
        _ if i >= taken => 0,
        _ => source >> (8 * i) & 0xff,
    };
    let bytes = (0..16).fold(0u128, |bytes, i| bytes | byte(i) << (8 * i));
    vec![bytes as u64, (bytes >> 64) as u64]
}

/// A copy for which `taken` returns how many bytes come from the source.
fn case(text: &str, operands: &str, size: u32, taken: impl Fn(&[u64]) -> u32 + 'static, waits: &str) -> Form {
    let made = forms(text, &[B64, B64], &[B64, B64], move |x| copied(x, size, taken(x)));
    let code = format!("{SETUP}{text} [%p], [%m], {size}{operands};\n{waits}\nld.shared.v2.b64 {{%d, %q}}, [%p];");
    made.code(code).globals(SHARED).scratch(2).count(8).needs(80, 70)
}

const ALL: &str = "cp.async.wait_all;";

fn copies(g: &mut Grammar) {
    for (space, ptx) in [("shared", 70), ("shared::cta", 78)] {
        for (cache, sizes) in [("ca", &[4u32, 8, 16][..]), ("cg", &[16])] {
            for (prefetch, least) in [("", 70), (".L2::64B", 74), (".L2::128B", 74), (".L2::256B", 74)] {
                for policy in ["", ".L2::cache_hint"] {
                    let text = format!("cp.async.{cache}.{space}.global{policy}{prefetch}");
                    let end = if policy.is_empty() { "" } else { ", %policy" };
                    let add = |g: &mut Grammar, made: Form, part: &str| {
                        let mut made = made
                            .file(format!("async.{cache}.{space}{part}"))
                            .needs(80, ptx.max(least))
                            .hint(!prefetch.is_empty() || !policy.is_empty() || space != "shared");
                        if !policy.is_empty() {
                            made = made.needs(80, 74);
                            made.code = format!(
                                ".reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n{}",
                                made.code
                            );
                        }
                        g.add(made);
                    };
                    for size in sizes {
                        let size = *size;
                        add(g, case(&text, end, size, move |_| size, ALL), "");
                        for taken in [0, 3, size] {
                            add(g, case(&text, &format!(", {taken}{end}"), size, move |_| taken, ALL), "");
                        }
                        let some = case(&text, &format!(", %n{end}"), size, move |x| size.min(x[0] as u32 & 31), ALL);
                        let number = format!("cvt.u32.u64 %n, %a;\nand.b32 %n, %n, 31;\nmin.u32 %n, %n, {size};");
                        add(g, before_copy(some, &number), "");
                        // Older assemblers do not accept this operand.
                        let none = case(
                            &text,
                            &format!(", %ignored{end}"),
                            size,
                            move |x| if x[0] & 1 != 0 { 0 } else { size },
                            ALL,
                        );
                        let odd = ".reg .b64 %bit;\nand.b64 %bit, %a, 1;\nsetp.ne.u64 %ignored, %bit, 0;";
                        add(g, before_copy(none, odd).needs(80, 75), ".ignored");
                    }
                }
            }
        }
    }
    // The memory ends with the bytes that are read.
    let text = "cp.async.cg.shared.global";
    let mut last = case(text, ", 8", 16, |_| 8, ALL).scratch(1).given(vec![vec![0x1122_3344_5566_7788, 1]]);
    last.code = last.code.replace("st.global.v2.b64 [%m], {%a, %b}", "st.global.b64 [%m], %a");
    g.add(last.file("async.cg.shared.last"));
}

fn before_copy(mut form: Form, code: &str) -> Form {
    form.code = form.code.replace("cp.async.c", &format!("{code}\ncp.async.c"));
    form
}

fn groups(g: &mut Grammar) {
    let (text, committed) = ("cp.async.ca.shared.global", "cp.async.commit_group;\n");
    for (form_text, waits) in [
        ("cp.async.commit_group", format!("{committed}cp.async.wait_group 0;")),
        ("cp.async.wait_group", format!("{committed}{committed}cp.async.wait_group 1;")),
        ("cp.async.wait_all", ALL.to_owned()),
    ] {
        let mut made = case(text, "", 16, |_| 16, &waits);
        made.text = form_text.to_owned();
        g.add(made.file(&form_text[3..]));
    }
    for (space, ptx) in [("", 70), (".shared", 70), (".shared::cta", 78)] {
        for (counted, arrivals) in [("", 1), (".noinc", 2)] {
            arrivals_of_copies(g, space, counted, arrivals, ptx);
        }
    }
}

/// An mbarrier for the thread itself and for its copies, if these are counted from the start.
fn arrivals_of_copies(g: &mut Grammar, space: &str, counted: &str, arrivals: u32, ptx: u32) {
    let text = format!("cp.async.mbarrier.arrive{counted}{space}.b64");
    let waits = format!(
        "{text} [%bar];\nmbarrier.arrive{space}.b64 %state, [%bar];\n\
         WAIT: mbarrier.test_wait{space}.b64 %over, [%bar], %state;\n@!%over bra WAIT;"
    );
    let mut made = case("cp.async.ca.shared.global", "", 16, |_| 16, &waits);
    let generic = if space.is_empty() { "cvta.shared.u64 %bar, %bar;\n" } else { "" };
    made.code = format!(
        ".reg .b64 %bar, %state;\n.reg .pred %over;\nmov.u64 %bar, barriers;\nmad.wide.u32 %bar, %thread, 8, %bar;\n\
         {generic}mbarrier.init{space}.b64 [%bar], {arrivals};\n{}\nmbarrier.inval{space}.b64 [%bar];",
        made.code
    );
    made.text.clone_from(&text);
    let made = made.globals(format!("{SHARED}.shared .align 8 .b64 barriers[64];\n"));
    g.add(made.file(&text[3..]).needs(80, ptx));
}

/// Hints do not change memory.
fn hints(g: &mut Grammar) {
    let line = ".reg .b64 %y;\nmov.u64 %y, line;\n";
    const LINE: &str = ".global .align 128 .b64 line[16] = {0x1122334455667788};\n";
    for (text, operands, sm, ptx) in [
        ("prefetch.global.L1", "[%y]", 70, 70),
        ("prefetch.global.L2", "[%y]", 70, 70),
        ("prefetch.L1", "[%y]", 70, 70),
        ("prefetch.L2", "[%y]", 70, 70),
        ("prefetch.global.L2::evict_last", "[%y]", 80, 74),
        ("prefetch.global.L2::evict_normal", "[%y]", 80, 74),
        ("prefetchu.L1", "[%y]", 70, 70),
        ("applypriority.global.L2::evict_normal", "[%y], 128", 80, 74),
        ("applypriority.L2::evict_normal", "[%y], 128", 80, 74),
    ] {
        let made = form(text, B64, &[U32], |_| 0x1122_3344_5566_7788);
        let code = format!("{line}{text} {operands};\nld.global.b64 %d, [%y];");
        g.add(made.code(code).globals(LINE).given(vec![vec![0]; 2]).needs(sm, ptx));
    }
    // Discarded memory has arbitrary contents until it is written again.
    const DISCARDED: &str = ".global .align 128 .b64 discarded[16];\n";
    for text in ["discard.global.L2", "discard.L2"] {
        let made = form(text, B64, &[B64], |x| x[0]);
        let code = format!(
            ".reg .b64 %y;\nmov.u64 %y, discarded;\n{text} [%y], 128;\nst.global.b64 [%y], %a;\nld.global.b64 %d, [%y];"
        );
        g.add(made.code(code).globals(DISCARDED).given(vec![vec![5]]).needs(80, 74));
    }
    for (text, operands) in [
        ("createpolicy.fractional.L2::evict_last.b64", ", 1.0"),
        ("createpolicy.fractional.L2::evict_normal.b64", ", 1.0"),
        ("createpolicy.fractional.L2::evict_first.b64", ", 0.5"),
        ("createpolicy.fractional.L2::evict_unchanged.b64", ""),
        ("createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64", ", 0.5"),
        ("createpolicy.range.global.L2::evict_last.b64", ", [%m], 8, 16"),
        ("createpolicy.range.L2::evict_last.L2::evict_first.b64", ", [%m], 8, 16"),
    ] {
        let made = form(text, B64, &[B64], |x| x[0]);
        let code = format!(
            ".reg .b64 %y;\n{text} %y{operands};\nst.global.b64 [%m], %a;\nld.global.L2::cache_hint.b64 %d, [%m], %y;"
        );
        g.add(made.code(code).scratch(2).count(2).needs(80, 74));
    }
}
