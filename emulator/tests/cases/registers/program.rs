//! Random programs of branches, loops, guarded instructions and calls, in which every read follows a write on every
//! path.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Number of words that programs read; a power of two.
pub const INPUT_WORDS: u32 = 64;

const WORDS: u32 = 14;
const DOUBLES: u32 = 5;
const PREDICATES: u32 = 6;
/// Maximum nesting of blocks, and maximum instructions of a program.
const DEPTH_MAX: u32 = 3;
const STEPS_MAX: u32 = 60;

/// Names of the registers that were written.
type Written = BTreeSet<String>;

pub struct Program {
    pub text: String,
    /// Number of words that each thread writes.
    pub outputs: u32,
}

/// A function with a branch and a loop.
const MIX: &str = ".func (.param .b32 result) mix(.param .b32 first, .param .b32 second)
{
.reg .b32 %a, %b, %c, %t, %u;
.reg .pred %q;
ld.param.b32 %a, [first];
ld.param.b32 %b, [second];
and.b32 %t, %a, 3;
mov.u32 %c, 1;
AGAIN:
mad.lo.u32 %c, %c, 5, %b;
setp.eq.u32 %q, %t, 0;
@%q bra DONE;
sub.u32 %t, %t, 1;
bra AGAIN;
DONE:
xor.b32 %u, %c, %a;
st.param.b32 [result], %u;
ret;
}
";

impl Program {
    pub fn new(seed: u64) -> Program {
        let mut maker =
            Maker { random: seed, body: String::new(), labels: 0, steps: 0, outputs: 0, leaves: Vec::new() };
        let mut written = Written::new();
        maker.line("mov.u32 %w0, %tid.x;");
        written.insert("%w0".to_owned());
        while maker.steps < STEPS_MAX {
            maker.step(0, &mut written);
        }
        for register in &written {
            maker.output(register);
        }
        let Maker { body, outputs, .. } = maker;
        let declared = "%c0, %c1, %c2, %c3, %at, %mask";
        let text = format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n{MIX}\
             .visible .entry kernel(.param .u64 input, .param .u64 output)\n{{\n\
             .reg .pred %p<{PREDICATES}>;\n.reg .b32 %w<{WORDS}>;\n.reg .b32 {declared};\n\
             .reg .b64 %d<{DOUBLES}>;\n.reg .b64 %in, %out, %place;\n\
             ld.param.u64 %in, [input];\nld.param.u64 %out, [output];\nmov.u32 %at, %ctaid.x;\nmov.u32 %c0, %ntid.x;\n\
             mov.u32 %c1, %tid.x;\nmad.lo.u32 %at, %at, %c0, %c1;\nmul.wide.u32 %place, %at, {};\n\
             add.s64 %out, %out, %place;\n{body}ret;\n}}\n",
            4 * outputs
        );
        Program { text, outputs }
    }
}

struct Maker {
    random: u64,
    body: String,
    labels: u32,
    steps: u32,
    outputs: u32,
    /// For each enclosing loop, the registers that are written on every exit so far.
    leaves: Vec<(u32, Option<Written>)>,
}

impl Maker {
    /// Returns a number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.random >> 33) % u64::from(end)) as u32
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.body, "{line}");
        self.steps += 1;
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// Chooses a register with this prefix that all lanes here have written.
    fn source(&mut self, written: &Written, start: &str) -> Option<String> {
        let found: Vec<&String> = written.iter().filter(|name| name.starts_with(start)).collect();
        let index = if found.is_empty() { None } else { Some(self.below(found.len() as u32) as usize) };
        index.map(|index| found[index].clone())
    }

    fn word(&mut self, written: &Written) -> String {
        self.source(written, "%w").expect("the first word is always written")
    }

    fn target(&mut self, kind: char) -> String {
        let count = match kind {
            'w' => WORDS,
            'd' => DOUBLES,
            _ => PREDICATES,
        };
        // The first word never changes, so that there is always one to read.
        let number = if kind == 'w' { 1 + self.below(count - 1) } else { self.below(count) };
        format!("%{kind}{number}")
    }

    /// Returns a predicate with a new value that differs between lanes.
    fn condition(&mut self, written: &mut Written) -> String {
        let (p, a) = (self.target('p'), self.word(written));
        let bit = self.below(6);
        self.line(&format!("and.b32 %mask, {a}, {};", 1 << bit));
        self.line(&format!("setp.ne.u32 {p}, %mask, 0;"));
        written.insert(p.clone());
        p
    }

    fn step(&mut self, depth: u32, written: &mut Written) {
        match self.below(16) {
            0 | 1 if depth < DEPTH_MAX => self.fork(depth, written),
            2 if depth < DEPTH_MAX => self.repeat(depth, written),
            3 if !self.leaves.is_empty() => self.leave(written),
            4 => {
                if let Some(register) = self.source(written, "%") {
                    self.output(&register);
                }
            }
            5 => self.call(written),
            6 | 7 => self.memory(written),
            8 => self.together(written),
            9 => self.wide(written),
            10 => drop(self.condition(written)),
            _ => self.compute(written),
        }
    }

    fn steps(&mut self, depth: u32, written: &mut Written) {
        for _ in 0..1 + self.below(6) {
            self.step(depth, written);
        }
    }

    /// Emits `if`, with or without `else`.
    fn fork(&mut self, depth: u32, written: &mut Written) {
        let (p, label) = (self.condition(written), self.label());
        let mut other = written.clone();
        self.line(&format!("@{p} bra ELSE{label};"));
        self.steps(depth + 1, written);
        self.line(&format!("bra END{label};\nELSE{label}:"));
        if self.below(2) == 0 {
            self.steps(depth + 1, &mut other);
        }
        self.line(&format!("END{label}:"));
        written.retain(|register| other.contains(register));
    }

    /// Emits a loop of one to four iterations, which lanes may leave early.
    fn repeat(&mut self, depth: u32, written: &mut Written) {
        let (label, count) = (self.label(), format!("%c{depth}"));
        let a = self.word(written);
        self.line(&format!("and.b32 {count}, {a}, 3;\nLOOP{label}:"));
        self.leaves.push((label, None));
        self.steps(depth + 1, written);
        let p = self.target('p');
        self.line(&format!("setp.ne.u32 {p}, {count}, 0;\nsub.u32 {count}, {count}, 1;\n@{p} bra LOOP{label};"));
        self.line(&format!("LEFT{label}:"));
        if let Some((_, Some(left))) = self.leaves.pop() {
            written.retain(|register| left.contains(register));
        }
    }

    fn leave(&mut self, written: &mut Written) {
        let p = self.condition(written);
        let (label, left) = self.leaves.last_mut().expect("there is a loop around");
        left.get_or_insert_with(|| written.clone()).retain(|register| written.contains(register));
        let line = format!("@{p} bra LEFT{label};");
        self.line(&line);
    }

    /// Emits an instruction on words. Under a guard it writes only some lanes, so the register does not count as
    /// written.
    fn compute(&mut self, written: &mut Written) {
        let (a, b, c) = (self.word(written), self.word(written), self.word(written));
        let d = self.target('w');
        let what = match self.below(5) {
            0 => format!("add.u32 {d}, {a}, {b};"),
            1 => format!("xor.b32 {d}, {a}, {b};"),
            2 => format!("mad.lo.u32 {d}, {a}, {b}, {c};"),
            3 => format!("add.cc.u32 {d}, {a}, {b};\naddc.u32 {d}, {c}, 0;"),
            _ => format!("mov.b32 {d}, {};", self.below(1000)),
        };
        let guard = if self.below(3) == 0 && !what.contains('\n') { self.source(written, "%p") } else { None };
        match guard {
            Some(p) => {
                let negation = if self.below(2) == 0 { "!" } else { "" };
                self.line(&format!("@{negation}{p} {what}"));
                // Lanes with this guard may read it; the others keep the previous value.
                let (e, known) = (self.target('w'), written.contains(&d));
                self.line(&format!("@{negation}{p} add.u32 {e}, {d}, 3;"));
                if !known {
                    written.remove(&d);
                }
            }
            None => {
                self.line(&what);
                written.insert(d);
            }
        }
    }

    /// Emits an operation on a 64-bit register, composed of words or split into them.
    fn wide(&mut self, written: &mut Written) {
        let (a, b, d) = (self.word(written), self.word(written), self.target('d'));
        match self.source(written, "%d") {
            Some(wide) if self.below(2) == 0 => {
                let (low, high) = (self.target('w'), self.target('w'));
                self.line(&format!("mov.b64 {{{low}, {high}}}, {wide};"));
                written.extend([low, high]);
            }
            Some(wide) => {
                self.line(&format!("mul.wide.u32 {d}, {a}, {b};\nadd.s64 {d}, {d}, {wide};"));
                written.insert(d);
            }
            None => {
                self.line(&format!("mov.b64 {d}, {{{a}, {b}}};"));
                written.insert(d);
            }
        }
    }

    /// Emits a load by an index, whose address takes several instructions.
    fn memory(&mut self, written: &mut Written) {
        let (a, d) = (self.word(written), self.target('d'));
        let count = [1, 2, 4][self.below(3) as usize];
        let (i, targets) = (self.target('w'), (0..count).map(|_| self.target('w')).collect::<Vec<_>>());
        self.line(&format!("and.b32 {i}, {a}, {};", (INPUT_WORDS - 1) & !(count - 1)));
        self.line(&format!("mul.wide.u32 {d}, {i}, 4;\nadd.s64 {d}, %in, {d};"));
        let unique: BTreeSet<&String> = targets.iter().collect();
        if count == 1 || unique.len() < targets.len() {
            self.line(&format!("ld.global.u32 {}, [{d}];", targets[0]));
            written.insert(targets[0].clone());
        } else {
            self.line(&format!("ld.global.v{count}.u32 {{{}}}, [{d}];", targets.join(", ")));
            written.extend(targets);
        }
        written.extend([i, d]);
    }

    /// Emits an operation that the lanes here compute together.
    fn together(&mut self, written: &mut Written) {
        let (a, d) = (self.word(written), self.target('w'));
        self.line("activemask.b32 %mask;");
        match self.source(written, "%p") {
            Some(p) if self.below(2) == 0 => self.line(&format!("vote.sync.ballot.b32 {d}, {p}, %mask;")),
            _ => self.line(&format!("redux.sync.add.u32 {d}, {a}, %mask;")),
        }
        written.insert(d);
    }

    fn call(&mut self, written: &mut Written) {
        let (a, b, d) = (self.word(written), self.word(written), self.target('w'));
        self.line(&format!(
            "{{\n.param .b32 one;\n.param .b32 two;\n.param .b32 back;\nst.param.b32 [one], {a};\n\
             st.param.b32 [two], {b};\ncall (back), mix, (one, two);\nld.param.b32 {d}, [back];\n}}"
        ));
        written.insert(d);
    }

    fn output(&mut self, register: &str) {
        let place = 4 * self.outputs;
        match &register[..2] {
            "%p" => self.line(&format!("selp.u32 %mask, 1, 2, {register};\nst.global.u32 [%out+{place}], %mask;")),
            "%d" => self.line(&format!("cvt.u32.u64 %mask, {register};\nst.global.u32 [%out+{place}], %mask;")),
            _ => self.line(&format!("st.global.u32 [%out+{place}], {register};")),
        }
        self.outputs += 1;
    }
}
