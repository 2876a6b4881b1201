//! Barrier objects in shared memory (`mbarrier`), which count arrivals and the bytes of copies: each thread has its
//! own.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{Form, forms},
};

const SHARED: &str = ".shared .align 8 .b64 barriers[8];\n";

/// Orders and scopes of an arrival, with the architecture and the PTX version that they need.
const ORDERS: [(&str, &str, u32, u32); 4] =
    [("", "", 80, 70), (".release", ".cta", 80, 80), (".release", ".cluster", 90, 80), (".relaxed", ".cta", 90, 86)];

/// The steps in the life of an object, spelled as the form under test requires.
#[derive(Clone)]
struct Life {
    space: &'static str,
    /// Number of arrivals that the first one counts for.
    count: u32,
    arrive: String,
    wait: String,
}

pub fn add(g: &mut Grammar) {
    for (space, ptx) in [("", 70), (".shared", 70), (".shared::cta", 78)] {
        let plain = Life {
            space,
            count: 1,
            arrive: format!("mbarrier.arrive{space}.b64 %state, [%p];"),
            wait: format!("mbarrier.test_wait{space}.b64"),
        };
        let case = |g: &mut Grammar, text: String, life: Life, sm: u32, least: u32| {
            g.add(lived(text, &life).needs(sm, ptx.max(least)));
        };
        for name in ["init", "inval", "arrive"] {
            case(g, format!("mbarrier.{name}{space}.b64"), plain.clone(), 80, 70);
        }
        for (order, scope, sm, least) in ORDERS {
            let text = format!("mbarrier.arrive{order}{scope}{space}.b64");
            if !order.is_empty() {
                let arrive = format!("{text} %state, [%p];");
                case(g, text.clone(), Life { arrive, ..plain.clone() }, sm, least);
            }
            let arrive = format!("{text} %state, [%p], 3;");
            let life = Life { count: 3, arrive, ..plain.clone() };
            g.add(apart(lived(text, &life).needs(90, ptx.max(least).max(78))));
        }
        for (text, sm, least) in [
            (format!("mbarrier.test_wait{space}.b64"), 80, 70),
            (format!("mbarrier.test_wait.acquire.cta{space}.b64"), 80, 80),
            (format!("mbarrier.try_wait{space}.b64"), 90, 78),
            (format!("mbarrier.try_wait.acquire.cta{space}.b64"), 90, 80),
            (format!("mbarrier.test_wait.relaxed.cta{space}.b64"), 90, 86),
            (format!("mbarrier.try_wait.acquire.cluster{space}.b64"), 90, 80),
        ] {
            case(g, text.clone(), Life { wait: text, ..plain.clone() }, sm, least);
        }
        for (text, sm, least) in [
            (format!("mbarrier.test_wait.parity{space}.b64"), 80, 71),
            (format!("mbarrier.try_wait.parity{space}.b64"), 90, 78),
        ] {
            case(g, text.clone(), Life { wait: text, ..plain.clone() }, sm, least);
        }
        let text = format!("mbarrier.arrive.noComplete{space}.b64");
        let made = forms(text.clone(), &[Pred, Pred], &[U32], |_| vec![0, 1]);
        let code = format!(
            "mbarrier.init{space}.b64 [%p], 2;\n{text} %state, [%p], 1;\nmbarrier.test_wait{space}.b64 %d, [%p], %state;\n\
             mbarrier.arrive{space}.b64 %other, [%p];\nmbarrier.test_wait{space}.b64 %q, [%p], %state;"
        );
        g.add(alone(made, space, &code).needs(80, ptx));
        for (order, scope, sm, least) in ORDERS {
            let text = format!("mbarrier.arrive_drop{order}{scope}{space}.b64");
            g.add(dropped(&text, space, 1, "").needs(sm, ptx.max(least)));
            g.add(apart(dropped(&text, space, 3, ", 3").needs(90, ptx.max(least).max(78))));
        }
        g.add(dropped(&format!("mbarrier.arrive_drop.noComplete{space}.b64"), space, 2, ", 2").needs(80, ptx));
    }
    for (arrive, taken) in
        [("mbarrier.arrive.shared.b64 %state, [%p];", 1), ("mbarrier.arrive.noComplete.shared.b64 %state, [%p], 3;", 3)]
    {
        let made = forms("mbarrier.pending_count.b64", &[U32, U32], &[U32], move |_| vec![5, 5 - taken]);
        let code = format!(
            "mbarrier.init.shared.b64 [%p], 5;\n{arrive}\nmbarrier.pending_count.b64 %d, %state;\n\
             mbarrier.arrive.shared.b64 %other, [%p];\nmbarrier.pending_count.b64 %q, %other;"
        );
        g.add(alone(made, ".shared", &code).needs(80, 70));
    }
    transactions(g);
}

/// Puts a form with a count, which only newer devices have, into a file of its own.
fn apart(form: Form) -> Form {
    let file = format!("{}.counted", form.file);
    form.file(file)
}

/// `arrive_drop`: an arrival that leaves later phases. Of two expected arrivals, the next phase needs only one.
fn dropped(text: &str, space: &str, count: u32, operand: &str) -> Form {
    let made = forms(text, &[Pred, Pred, Pred], &[U32], |_| vec![0, 1, 1]);
    let (arrive, wait) = (format!("mbarrier.arrive{space}.b64"), format!("mbarrier.test_wait{space}.b64"));
    let code = format!(
        "mbarrier.init{space}.b64 [%p], {};\n{text} %state, [%p]{operand};\n{wait} %d, [%p], %state;\n\
         {arrive} %other, [%p];\n{wait} %q, [%p], %state;\n{arrive} %state, [%p];\n{wait} %s, [%p], %state;",
        count + 1
    );
    alone(made, space, &code)
}

/// Bytes that are expected and then arrive, and bytes that arrive before they are expected.
fn transactions(g: &mut Grammar) {
    for space in ["", ".shared", ".shared::cta", ".shared::cluster"] {
        let own = if space == ".shared::cluster" { ".shared" } else { space };
        let arrive = format!("mbarrier.arrive{own}.b64 %other, [%p];");
        let wait = |over: &str| format!("mbarrier.test_wait.parity{own}.b64 {over}, [%p], 0;");
        let (first, second) = (wait("%d"), wait("%q"));
        for order in ["", ".relaxed.cta", ".relaxed.cluster"] {
            let expect = format!("mbarrier.expect_tx{order}{space}.b64");
            let complete = format!("mbarrier.complete_tx{order}{space}.b64");
            for (text, file) in [(&expect, "expect_tx"), (&complete, "complete_tx")] {
                for code in [
                    format!(
                        "{expect} [%p], 96;\n{arrive}\n{complete} [%p], 32;\n{first}\n{complete} [%p], 64;\n{second}"
                    ),
                    format!("{complete} [%p], 1048575;\n{first}\n{expect} [%p], 1048575;\n{arrive}\n{second}"),
                ] {
                    g.add(counted(text, own, &code).file(file));
                }
            }
        }
        let complete = format!("mbarrier.complete_tx{own}.b64 [%p],");
        for name in ["arrive", "arrive_drop"] {
            for (order, scope, _, least) in ORDERS {
                let text = format!("mbarrier.{name}.expect_tx{order}{scope}{space}.b64");
                let expect = format!("{text} {}, [%p], 96;", if space == own { "%other" } else { "_" });
                for code in [
                    format!("{expect}\n{complete} 32;\n{first}\n{complete} 64;\n{second}"),
                    format!("{complete} 96;\n{first}\n{expect}\n{second}"),
                ] {
                    let relaxed = if order == ".relaxed" { ".relaxed" } else { "" };
                    let made = counted(&text, own, &code).file(format!("{name}.expect_tx{relaxed}"));
                    g.add(made.needs(90, least));
                }
            }
        }
    }
}

/// An object that has received one of two arrivals; the phase is incomplete at first and complete in the end.
fn counted(text: &str, space: &str, code: &str) -> Form {
    let code = format!("mbarrier.init{space}.b64 [%p], 2;\nmbarrier.arrive{space}.b64 %state, [%p];\n{code}");
    alone(forms(text, &[Pred, Pred], &[U32], |_| vec![0, 1]), space, &code).needs(90, 80)
}

/// Two arrivals: after the first the phase is incomplete, after the second it is complete.
fn lived(text: String, life: &Life) -> Form {
    let Life { space, count, arrive, wait } = life;
    // By parity, the incomplete phase is even.
    let phase = if wait.contains(".parity") { "0" } else { "%state" };
    let code = format!(
        "mbarrier.init{space}.b64 [%p], {};\n{arrive}\n{wait} %d, [%p], {phase};\n\
         mbarrier.arrive{space}.b64 %other, [%p];\n{wait} %q, [%p], {phase};",
        count + 1
    );
    alone(forms(text, &[Pred, Pred], &[U32], |_| vec![0, 1]), space, &code)
}

/// Adds code for an object at `%p` in `space`, which is invalidated at the end.
fn alone(made: Form, space: &str, code: &str) -> Form {
    let generic = if space.is_empty() { "cvta.shared.u64 %p, %p;\n" } else { "" };
    let code = format!(
        ".reg .b64 %p, %state, %other;\nmov.u64 %p, barriers;\nmad.wide.u32 %p, %thread, 8, %p;\n{generic}\
         {code}\nmbarrier.inval{space}.b64 [%p];"
    );
    made.code(code).globals(SHARED).given((0..4).map(|i| vec![i]).collect())
}
