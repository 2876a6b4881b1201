//! Barriers, fences and waits: what is written before is read after.

use super::Grammar;
use crate::{
    kind::Kind::{self, *},
    recipe::{Form, block, form},
};

/// Number of threads: three warps, so more than one and not a power of two.
const THREADS: usize = 96;
const WORDS: &str = ".shared .align 4 .b32 words[96];\n";

pub fn add(g: &mut Grammar) {
    barriers(g);
    reductions(g);
    fences(g);
    waits(g);
}

fn rows() -> Vec<Vec<u64>> {
    (0..THREADS as u64).map(|i| vec![i * 0x0101_0101 + 7]).collect()
}

/// Each thread writes a word, and after the barrier reads that of a distant thread.
fn exchange(text: &str, barrier: &str, apart: usize) -> Form {
    let made = block(text, &[U32], &[U32], move |rows| {
        (0..rows.len()).map(|i| vec![rows[(i + apart) % rows.len()][0]]).collect()
    });
    made.given(rows()).globals(WORDS).code(format!(
        ".reg .b32 %y, %z;\nmov.u32 %y, words;\nmad.lo.u32 %z, %thread, 4, %y;\nst.shared.u32 [%z], %a;\n{barrier}\n\
         add.u32 %z, %thread, {apart};\nrem.u32 %z, %z, {THREADS};\nmad.lo.u32 %z, %z, 4, %y;\nld.shared.u32 %d, [%z];"
    ))
}

fn barriers(g: &mut Grammar) {
    for (name, cta, ptx) in [("bar", "", 70), ("bar", ".cta", 78), ("barrier", "", 70), ("barrier", ".cta", 78)] {
        let aligned: &[&str] = if name == "bar" { &[""] } else { &["", ".aligned"] };
        for aligned in aligned {
            let text = format!("{name}{cta}.sync{aligned}");
            for (count, operands) in [("all", "1".to_owned()), ("counted", format!("2, {THREADS}"))] {
                let made = exchange(&text, &format!("{text} {operands};"), 45);
                g.add(made.needs(70, ptx).file(format!("{}.{count}", &text[name.len() + 1..])));
            }
            // The last warp waits until the others have arrived.
            let text = format!("{name}{cta}.arrive{aligned}");
            let wait = format!("{name}{cta}.sync{aligned} 3, {THREADS};");
            let made = block(text.clone(), &[U32], &[U32], |rows| {
                (0..rows.len()).map(|i| vec![if i < 64 { 0 } else { rows[i - 64][0] }]).collect()
            });
            let code = format!(
                ".reg .b32 %y, %z;\n.reg .pred %last;\nmov.u32 %d, 0;\nmov.u32 %y, words;\nmad.lo.u32 %z, %thread, 4, %y;\n\
                 st.shared.u32 [%z], %a;\nsetp.ge.u32 %last, %thread, 64;\n@%last bra wait;\n{text} 3, {THREADS};\nbra done;\n\
                 wait:\n{wait}\nld.shared.u32 %d, [%z+-256];\ndone:"
            );
            g.add(made.code(code).given(rows()).globals(WORDS).needs(70, ptx));
        }
    }
    // Within a warp.
    let made = exchange("bar.warp.sync", "bar.warp.sync 0xffffffff;", 0);
    g.add(made);
    for (file, arrive, wait, ptx) in [
        ("plain", "barrier.cluster.arrive", "barrier.cluster.wait", 78),
        ("aligned", "barrier.cluster.arrive.aligned", "barrier.cluster.wait.aligned", 78),
        ("ordered", "barrier.cluster.arrive.release", "barrier.cluster.wait.acquire", 80),
        ("ordered.aligned", "barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned", 80),
        ("relaxed", "barrier.cluster.arrive.relaxed", "barrier.cluster.wait", 80),
        ("relaxed.aligned", "barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait.aligned", 80),
    ] {
        // Clusters of one block.
        for text in [arrive, wait] {
            let before = if file.starts_with("relaxed") { "fence.acq_rel.cluster;\n" } else { "" };
            let made = exchange(text, &format!("{before}{arrive};\n{wait};"), 45);
            g.add(
                made.needs(90, ptx).file(format!("cluster.{file}.{}", if text == arrive { "arrive" } else { "wait" })),
            );
        }
    }
}

fn reductions(g: &mut Grammar) {
    type Count = fn(usize) -> u64;
    let kinds: [(&str, &str, Kind, Count); 3] = [
        ("popc", "u32", U32, |set| set as u64),
        ("and", "pred", Pred, |set| (set == THREADS).into()),
        ("or", "pred", Pred, |set| (set > 0).into()),
    ];
    for (name, cta, ptx) in [("bar", "", 70), ("bar", ".cta", 78), ("barrier", "", 70), ("barrier", ".cta", 78)] {
        let aligned: &[&str] = if name == "bar" { &[""] } else { &["", ".aligned"] };
        for aligned in aligned {
            for (kind, ty, k, count) in kinds {
                for (column, fill) in [("mixed", None), ("ones", Some(1)), ("zeros", Some(0))] {
                    for (operands, negated) in [("1, %a", false), ("2, 96, !%a", true)] {
                        let text = format!("{name}{cta}.red.{kind}{aligned}.{ty}");
                        let made = block(text.clone(), &[k], &[Pred], move |rows| {
                            let set = rows.iter().filter(|row| (row[0] != 0) != negated).count();
                            vec![vec![count(set)]; rows.len()]
                        });
                        let values = (0..THREADS as u64).map(|i| vec![fill.unwrap_or(u64::from(i % 7 == 3))]).collect();
                        let made = made.code(format!("{text} %d, {operands};")).given(values).needs(70, ptx);
                        g.add(made.file(format!("{}.{column}", &text[name.len() + 1..])));
                    }
                }
            }
        }
    }
}

/// A thread's own writes, in order, across a fence.
fn fences(g: &mut Grammar) {
    let mut all: Vec<(String, u32, u32)> = Vec::new();
    for (scope, sm, ptx) in [("cta", 70, 70), ("gpu", 70, 70), ("sys", 70, 70), ("cluster", 90, 78)] {
        for order in ["", ".sc", ".acq_rel"] {
            all.push((format!("fence{order}.{scope}"), sm, ptx));
        }
        for order in [".acquire", ".release"] {
            all.push((format!("fence{order}.{scope}"), 90, 86));
        }
    }
    all.extend(["membar.cta", "membar.gl", "membar.sys"].map(|text| (text.to_owned(), 70, 70)));
    all.extend(["fence.proxy.alias", "membar.proxy.alias"].map(|text| (text.to_owned(), 70, 75)));
    for space in ["", ".global", ".shared::cta", ".shared::cluster"] {
        all.push((format!("fence.proxy.async{space}"), 90, 80));
    }
    all.push(("fence.mbarrier_init.release.cluster".to_owned(), 90, 80));
    all.push(("fence.acquire.sync_restrict::shared::cluster.cluster".to_owned(), 90, 86));
    all.push(("fence.release.sync_restrict::shared::cta.cluster".to_owned(), 90, 86));
    for (text, sm, ptx) in all {
        let made = form(text.clone(), U32, &[U32], |x| x[0]);
        let code = format!("st.global.u32 [%m], %a;\n{text};\nld.global.u32 %d, [%m];");
        g.add(made.code(code).scratch(1).count(4).needs(sm, ptx));
    }
}

fn waits(g: &mut Grammar) {
    for (text, operands, sm, ptx) in [
        ("nanosleep.u32", " 20", 70, 70),
        ("nanosleep.u32", " %a", 70, 70),
        ("pmevent", " 3", 70, 70),
        ("pmevent.mask", " 5", 70, 70),
        ("griddepcontrol.wait", "", 90, 78),
        ("griddepcontrol.launch_dependents", "", 90, 78),
    ] {
        let made = form(text, U32, &[U32], |x| x[0]).code(format!("{text}{operands};\nmov.u32 %d, %a;"));
        g.add(made.given(vec![vec![0], vec![30], vec![1]]).needs(sm, ptx));
    }
}
