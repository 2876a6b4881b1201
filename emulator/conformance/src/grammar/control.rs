//! Control flow: branches, branch tables, calls, ends.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{form, forms},
};

/// Status of a launch whose kernel traps.
const LAUNCH_FAILED: u32 = 719;

pub fn add(g: &mut Grammar) {
    branches(g);
    calls(g);
    parameters(g);
    ends(g);
}

fn branches(g: &mut Grammar) {
    // A guard that is a result too: both results use its old value.
    let made = forms("setp.gt.u32", &[Pred, Pred], &[U32, U32, Pred], |x| {
        let is_greater = u64::from(x[0] > x[1]);
        if x[2] != 0 { vec![is_greater, 1 - is_greater] } else { vec![0, 1] }
    });
    g.add(made.code("mov.pred %d, %c;\nnot.pred %q, %c;\n@%d setp.gt.u32 %d|%q, %a, %b;").file("guard.replaced"));
    let choose = |x: &[u64]| if x[0] != 0 { 1 } else { 2 };
    for (guard, swap) in [("@%a", false), ("@!%a", true)] {
        let made = form("bra", U32, &[Pred], move |x| if swap { 3 - choose(x) } else { choose(x) });
        let code = format!("mov.u32 %d, 1;\n{guard} bra over;\nmov.u32 %d, 2;\nover:");
        g.add(made.code(code).file(if swap { "guarded.not" } else { "guarded" }).count(40));
    }
    let made = form("bra.uni", U32, &[U32], |x| x[0]).code("mov.u32 %d, %a;\nbra.uni over;\nmov.u32 %d, 5;\nover:");
    g.add(made.count(4));
    // A loop that each lane leaves at its own time.
    let made = form("bra", U32, &[U32], |x| (0..=x[0] & 15).sum());
    let code = ".reg .b32 %y;\n.reg .pred %more;\nand.b32 %y, %a, 15;\nmov.u32 %d, 0;\nagain:\nadd.u32 %d, %d, %y;\n\
                sub.u32 %y, %y, 1;\nsetp.ge.s32 %more, %y, 0;\n@%more bra again;";
    g.add(made.code(code).file("loop").count(40));
    for uni in ["", ".uni"] {
        let text = format!("brx.idx{uni}");
        let code = format!(
            ".reg .b32 %y;\nand.b32 %y, %a, 3;\ntable: .branchtargets one, two, three, two;\n{text} %y, table;\n\
             one:\nmov.u32 %d, 1;\nbra end;\ntwo:\nmov.u32 %d, 2;\nbra end;\nthree:\nmov.u32 %d, 3;\nend:"
        );
        let made = form(text, U32, &[U32], |x| [1, 2, 3, 2][(x[0] & 3) as usize]).code(code);
        // `.uni` needs one direction for all lanes.
        g.add(if uni.is_empty() { made.count(40) } else { made.given(vec![vec![2]; 32]) });
    }
    // Any instruction may have a guard.
    let made = form("add.u32", U32, &[U32, Pred], |x| if x[1] != 0 { (x[0] + 1) & 0xffff_ffff } else { x[0] });
    g.add(made.code("mov.u32 %d, %a;\n@%b add.u32 %d, %d, 1;").file("guarded.u32"));
}

const TWICE: &str = ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n.reg .b32 %v;\nld.param.b32 %v, [x];\nadd.u32 %v, %v, %v;\n\
                     st.param.b32 [r], %v;\nret;\n}\n";
/// The factorial, as a recursive function.
const FACTORIAL: &str = ".visible .func (.param .b32 r) factorial(.param .b32 x)\n{\n.reg .b32 %v, %w;\n.reg .pred %stop;\n\
                         ld.param.b32 %v, [x];\nmov.u32 %w, 1;\nsetp.le.u32 %stop, %v, 1;\n@%stop bra done;\nsub.u32 %w, %v, 1;\n{\n\
                         .param .b32 p;\n.param .b32 q;\nst.param.b32 [p], %w;\ncall (q), factorial, (p);\nld.param.b32 %w, [q];\n}\n\
                         mul.lo.u32 %w, %w, %v;\ndone:\nst.param.b32 [r], %w;\nret.uni;\n}\n";

fn call(instruction: &str) -> String {
    format!(".param .b32 p;\n.param .b32 q;\nst.param.b32 [p], %a;\n{instruction};\nld.param.b32 %d, [q];")
}

fn calls(g: &mut Grammar) {
    let twice = |x: &[u64]| (x[0] * 2) & 0xffff_ffff;
    for uni in ["", ".uni"] {
        let text = format!("call{uni}");
        let made = form(text.clone(), U32, &[U32], twice).code(call(&format!("{text} (q), twice, (p)")));
        g.add(made.globals(TWICE).file(format!("direct{uni}")).count(8));
        let indirect = format!(
            ".reg .b64 %y;\nprototype: .callprototype (.param .b32 _) _ (.param .b32 _);\nmov.u64 %y, twice;\n{}",
            call(&format!("{text} (q), %y, (p), prototype"))
        );
        let made = form(text.clone(), U32, &[U32], twice).code(indirect);
        g.add(made.globals(TWICE).file(format!("indirect{uni}")).count(8));
        let targets = format!(
            ".reg .b64 %y;\ntargets: .calltargets twice;\nmov.u64 %y, twice;\n{}",
            call(&format!("{text} (q), %y, (p), targets"))
        );
        let made = form(text.clone(), U32, &[U32], twice).code(targets);
        g.add(made.globals(TWICE).file(format!("targets{uni}")).count(8));
    }
    for text in ["ret", "ret.uni"] {
        let made = form(text, U32, &[U32], |x| (1..=x[0]).product()).code(call("call (q), factorial, (p)"));
        let globals = FACTORIAL.replace("ret.uni", text);
        // Each lane returns from another depth, so only the plain form is correct for all.
        let rows = if text == "ret" { (0..12).map(|n| vec![n]).collect() } else { vec![vec![9]; 8] };
        g.add(made.globals(globals).given(rows));
    }
}

/// Parameters of functions, of every type.
fn parameters(g: &mut Grammar) {
    for k in [B8, U8, S8, B16, U16, S16, B32, U32, S32, F32, B64, U64, S64, F64] {
        let (bits, register) = (k.bits(), k.register());
        let column = match bits {
            8 => B8,
            16 => B16,
            32 => B32,
            _ => B64,
        };
        let name = format!("pass_{k}");
        for (inner, outer) in [("", ""), ("::func", "::func")] {
            let globals = format!(
                ".visible .func (.param .b{bits} r) {name}(.param .b{bits} x)\n{{\n.reg .{register} %v;\nld.param{inner}.{k} %v, [x];\n\
                 st.param{inner}.{k} [r], %v;\nret;\n}}\n"
            );
            for mnemonic in ["ld", "st"] {
                let text = format!("{mnemonic}.param{outer}.{k}");
                let code = format!(
                    ".param .b{bits} p;\n.param .b{bits} q;\nst.param{outer}.{k} [p], %a;\ncall (q), {name}, (p);\nld.param{outer}.{k} %d, [q];"
                );
                let made = forms(text, &[column], &[column], |x| x.to_vec()).code(code).globals(globals.clone());
                g.add(
                    made.file(format!("param{outer}.{k}")).count(6).needs(70, if outer.is_empty() { 70 } else { 83 }),
                );
            }
        }
    }
    // Kernel parameters need no case, because every case loads addresses by `ld.param`.
    for (v, k, count) in
        [("v2", B32, 2), ("v4", B32, 4), ("v2", B64, 2), ("v2", B16, 2), ("v4", B16, 4), ("v4", B8, 4), ("v2", B8, 2)]
    {
        let (bits, register) = (k.bits(), k.register());
        let bytes = bits / 8 * count;
        let (inputs, outputs) = (&crate::recipe::INPUTS[..count as usize], &crate::recipe::OUTPUTS[..count as usize]);
        let values = ["%v0", "%v1", "%v2", "%v3"][..count as usize].join(", ");
        let globals = format!(
            ".visible .func (.param .align 16 .b8 r[{bytes}]) pass(.param .align 16 .b8 x[{bytes}])\n{{\n.reg .{register} %v<4>;\n\
             ld.param.{v}.{k} {{{values}}}, [x];\nst.param.{v}.{k} [r], {{{values}}};\nret;\n}}\n"
        );
        for mnemonic in ["ld", "st"] {
            let text = format!("{mnemonic}.param.{v}.{k}");
            let code = format!(
                ".param .align 16 .b8 p[{bytes}];\n.param .align 16 .b8 q[{bytes}];\nst.param.{v}.{k} [p], {{{}}};\ncall (q), pass, (p);\n\
                 ld.param.{v}.{k} {{{}}}, [q];",
                inputs.join(", "),
                outputs.join(", ")
            );
            let columns = vec![k; count as usize];
            let made = forms(text, &columns, &columns, |x| x.to_vec()).code(code).globals(globals.clone());
            g.add(made.file(format!("param.{v}.{k}")).count(6));
        }
    }
}

fn ends(g: &mut Grammar) {
    // What a thread stored before it ended remains; what comes after does not run.
    for text in ["exit", "ret"] {
        let made = form(text, U32, &[U32, Pred], |x| if x[1] != 0 { 1 } else { x[0] });
        let code = format!("mov.u32 %d, %a;\nst.global.u32 [%out], 1;\n@%b {text};");
        g.add(made.code(code).file("guarded").count(40));
    }
    let made = form("trap", U32, &[U32], |_| 0).code("mov.u32 %d, %a;\ntrap;");
    g.add(made.given(vec![vec![1]]).ends(LAUNCH_FAILED));
    // The ISA does not define a breakpoint without a debugger.
    g.add(form("brkpt", U32, &[U32], |_| 0).code("brkpt;").open());
}
