//! Barriers in shared memory that count arrivals: each thread has one of its own, for two arrivals.

use super::Grammar;
use crate::{
    kind::Kind::{self, *},
    recipe::{Form, forms},
};

const SHARED: &str = ".shared .align 8 .b64 barriers[8];\n";

/// The parts of a life, each spelled as the form under test wants it.
#[derive(Clone)]
struct Life {
    space: &'static str,
    arrive: String,
    wait: String,
}

pub fn add(g: &mut Grammar) {
    for (space, ptx) in [("", 70), (".shared", 70), (".shared::cta", 78)] {
        let plain = Life {
            space,
            arrive: format!("mbarrier.arrive{space}.b64 %state, [%p];"),
            wait: format!("mbarrier.test_wait{space}.b64"),
        };
        let mut case = |text: String, life: Life, sm: u32, least: u32| {
            g.add(lived(text, &life).needs(sm, ptx.max(least)));
        };
        for name in ["init", "inval", "arrive"] {
            case(format!("mbarrier.{name}{space}.b64"), plain.clone(), 80, 70);
        }
        for (order, scope, sm, least) in
            [(".release", ".cta", 80, 80), (".release", ".cluster", 90, 80), ("", "", 80, 70)]
        {
            let text = format!("mbarrier.arrive{order}{scope}{space}.b64");
            let counted = Life { arrive: format!("{text} %state, [%p], 1;"), ..plain.clone() };
            case(text, counted, sm.max(90), least.max(78));
            let text = format!("mbarrier.arrive_drop{order}{scope}{space}.b64");
            case(text.clone(), Life { arrive: format!("{text} %state, [%p];"), ..plain.clone() }, sm, least);
        }
        for (text, sm, least) in [
            (format!("mbarrier.test_wait{space}.b64"), 80, 70),
            (format!("mbarrier.test_wait.acquire.cta{space}.b64"), 80, 80),
            (format!("mbarrier.try_wait{space}.b64"), 90, 78),
            (format!("mbarrier.try_wait.acquire.cta{space}.b64"), 90, 80),
        ] {
            case(text.clone(), Life { wait: text, ..plain.clone() }, sm, least);
        }
        for (text, sm, least) in [
            (format!("mbarrier.test_wait.parity{space}.b64"), 80, 71),
            (format!("mbarrier.try_wait.parity{space}.b64"), 90, 78),
        ] {
            case(text.clone(), Life { wait: text, ..plain.clone() }, sm, least);
        }
        let text = format!("mbarrier.arrive.noComplete{space}.b64");
        let made = forms(text.clone(), &[Pred, Pred], &[U32], |_| vec![0, 1]);
        let code = format!(
            "{}mbarrier.init{space}.b64 [%p], 2;\n{text} %state, [%p], 1;\nmbarrier.test_wait{space}.b64 %d, [%p], %state;\n\
             mbarrier.arrive{space}.b64 %other, [%p];\nmbarrier.test_wait{space}.b64 %q, [%p], %state;",
            setup(space)
        );
        g.add(finished(made, code).needs(80, ptx));
    }
    let made = forms("mbarrier.pending_count.b64", &[U32, U32], &[U32], |_| vec![5, 4]);
    let code = format!(
        "{}mbarrier.init.shared.b64 [%p], 5;\nmbarrier.arrive.shared.b64 %state, [%p];\nmbarrier.pending_count.b64 %d, %state;\n\
         mbarrier.arrive.shared.b64 %other, [%p];\nmbarrier.pending_count.b64 %q, %other;",
        setup(".shared")
    );
    g.add(finished(made, code).needs(80, 70));
}

fn setup(space: &str) -> String {
    let generic = if space.is_empty() { "cvta.shared.u64 %p, %p;\n" } else { "" };
    format!(".reg .b64 %p, %state, %other;\nmov.u64 %p, barriers;\nmad.wide.u32 %p, %thread, 8, %p;\n{generic}")
}

fn finished(made: Form, code: String) -> Form {
    made.code(code).globals(SHARED).given((0..4).map(|i| vec![i]).collect())
}

/// Two arrivals: after the first the phase goes on, after the second it is over.
fn lived(text: String, life: &Life) -> Form {
    let Life { space, arrive, wait } = life;
    // By parity, the phase that goes on is even.
    let phase = if wait.contains(".parity") { "0" } else { "%state" };
    let second = arrive.replace("%state", "%other");
    let outputs: [Kind; 2] = [Pred, Pred];
    let code = format!(
        "{}mbarrier.init{space}.b64 [%p], 2;\n{arrive}\n{wait} %d, [%p], {phase};\n{second}\n{wait} %q, [%p], {phase};\n\
         mbarrier.inval{space}.b64 [%p];",
        setup(space)
    );
    finished(forms(text, &outputs, &[U32], |_| vec![0, 1]), code)
}
