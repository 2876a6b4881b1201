//! Bulk copies (`cp.async.bulk`), and the two ways to wait for them: an mbarrier that counts bytes, or a bulk group.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{Form, forms},
};

const SHARED: &str = ".shared .align 128 .b8 to_bytes[256];\n.shared .align 128 .b8 from_bytes[256];\n\
                      .shared .align 8 .b64 barriers[8];\n";
/// PTX that prepares 32 bytes in each array and an mbarrier, for each thread. Ordinary instructions have written what
/// the copies read and overwrite, so a proxy fence orders them.
const SETUP: &str = ".reg .b64 %to, %from, %bar, %state;\n.reg .b32 %n;\n.reg .pred %over;\n\
                     mov.u64 %to, to_bytes;\nmad.wide.u32 %to, %thread, 32, %to;\n\
                     mov.u64 %from, from_bytes;\nmad.wide.u32 %from, %thread, 32, %from;\n\
                     mov.u64 %bar, barriers;\nmad.wide.u32 %bar, %thread, 8, %bar;\n\
                     st.shared.v2.b64 [%to], {-1, -1};\nst.shared.v2.b64 [%to+16], {-1, -1};\n\
                     st.shared.v2.b64 [%from], {%a, %b};\nst.shared.v2.b64 [%from+16], {%b, %a};\n";
/// PTX that prepares these bytes in global memory.
const GLOBAL_SOURCE: &str = "st.global.v2.b64 [%m], {%a, %b};\nst.global.v2.b64 [%m+16], {%b, %a};\n";
const GLOBAL_TARGET: &str = "st.global.v2.b64 [%m], {-1, -1};\nst.global.v2.b64 [%m+16], {-1, -1};\n";
const POLICY: &str = ".reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n";
/// PTX that computes a size from the inputs.
const SIZE: &str = "cvt.u32.u64 %n, %a;\nand.b32 %n, %n, 1;\nadd.u32 %n, %n, 1;\nshl.b32 %n, %n, 4;\n";

/// Size of a copy in bytes.
#[derive(Clone, Copy)]
enum Size {
    Fixed(u32),
    /// 16, or 32 if the first input is odd.
    Register,
}

impl Size {
    fn operand(self) -> String {
        match self {
            Self::Fixed(bytes) => bytes.to_string(),
            Self::Register => "%n".to_owned(),
        }
    }

    fn bytes(self, x: &[u64]) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Register => 16 + 16 * (x[0] & 1) as u32,
        }
    }
}

const SIZES: [Size; 3] = [Size::Fixed(16), Size::Fixed(32), Size::Register];

pub fn add(g: &mut Grammar) {
    for (to, from, ptx) in
        [("shared::cluster", "global", 80), ("shared::cta", "global", 86), ("shared::cluster", "shared::cta", 80)]
    {
        let text = format!("cp.async.bulk.{to}.{from}.mbarrier::complete_tx::bytes");
        for size in SIZES {
            g.add(to_barrier(&text, size, "").needs(90, ptx));
            if from == "global" {
                let hinted = format!("{text}.L2::cache_hint");
                g.add(to_barrier(&hinted, size, ", %policy").needs(90, ptx).hint(true));
            }
        }
    }
    groups(g);
    prefetches(g);
}

/// Reads four words after a copy, which wrote the first ones.
fn copied(text: &str, size: Size, code: String) -> Form {
    let made = forms(text, &[B64; 4], &[B64, B64], move |x| match size.bytes(x) {
        16 => vec![x[0], x[1], u64::MAX, u64::MAX],
        _ => vec![x[0], x[1], x[1], x[0]],
    });
    made.code(code).globals(SHARED).scratch(4).count(8)
}

/// A copy that completes on the thread's mbarrier.
fn to_barrier(text: &str, size: Size, end: &str) -> Form {
    let policy = if end.is_empty() { "" } else { POLICY };
    let from = if text.contains("global") { "%m" } else { "%from" };
    let bytes = size.operand();
    let code = format!(
        "{SETUP}{GLOBAL_SOURCE}{policy}{SIZE}mbarrier.init.shared.b64 [%bar], 1;\nfence.proxy.async;\n\
         mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], {bytes};\n{text} [%to], [{from}], {bytes}, [%bar]{end};\n\
         WAIT: mbarrier.try_wait.shared.b64 %over, [%bar], %state;\n@!%over bra WAIT;\n\
         ld.shared.v2.b64 {{%d, %q}}, [%to];\nld.shared.v2.b64 {{%s, %t}}, [%to+16];\nmbarrier.inval.shared.b64 [%bar];"
    );
    copied(text, size, code)
}

/// Copies to global memory, and bulk groups.
fn groups(g: &mut Grammar) {
    const COPY: &str = "cp.async.bulk.global.shared::cta.bulk_group";
    const COMMIT: &str = "cp.async.bulk.commit_group";
    const WAIT: &str = "cp.async.bulk.wait_group";
    const WAIT_READ: &str = "cp.async.bulk.wait_group.read";
    let hinted = format!("{COPY}.L2::cache_hint");
    for size in SIZES {
        g.add(to_group(COPY, COPY, "", size, &format!("{COMMIT};\n{WAIT} 0;")));
        g.add(to_group(&hinted, &hinted, ", %policy", size, &format!("{COMMIT};\n{WAIT} 0;")).hint(true));
    }
    let size = Size::Fixed(32);
    g.add(to_group(COMMIT, COPY, "", size, &format!("{COMMIT};\n{WAIT} 0;")));
    g.add(to_group(WAIT, COPY, "", size, &format!("{COMMIT};\n{COMMIT};\n{WAIT} 1;")));
    // After `wait_group.read` the source may be overwritten.
    let reused = format!("{COMMIT};\n{WAIT_READ} 0;\nst.shared.v2.b64 [%from], {{-1, -1}};\n{WAIT} 0;");
    g.add(to_group(WAIT_READ, COPY, "", size, &reused));
}

fn to_group(text: &str, copy: &str, end: &str, size: Size, waits: &str) -> Form {
    let policy = if end.is_empty() { "" } else { POLICY };
    let bytes = size.operand();
    let code = format!(
        "{SETUP}{GLOBAL_TARGET}{policy}{SIZE}fence.proxy.async;\n{copy} [%m], [%from], {bytes}{end};\n{waits}\n\
         ld.global.v2.b64 {{%d, %q}}, [%m];\nld.global.v2.b64 {{%s, %t}}, [%m+16];"
    );
    copied(text, size, code).needs(90, 80)
}

/// Prefetches do not change memory.
fn prefetches(g: &mut Grammar) {
    for (text, end, policy) in [
        ("cp.async.bulk.prefetch.L2.global", "", ""),
        ("cp.async.bulk.prefetch.L2.global.L2::cache_hint", ", %policy", POLICY),
    ] {
        for size in SIZES {
            let code = format!(
                "{SETUP}{GLOBAL_SOURCE}{policy}{SIZE}{text} [%m], {}{end};\n\
                 ld.global.v2.b64 {{%d, %q}}, [%m];\nld.global.v2.b64 {{%s, %t}}, [%m+16];",
                size.operand()
            );
            let whole = copied(text, Size::Fixed(32), code);
            g.add(whole.needs(90, 80).hint(!policy.is_empty()));
        }
    }
}
