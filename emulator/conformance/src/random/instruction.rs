//! Instructions of random programs.

use std::collections::BTreeMap;

use super::{REGISTERS, Register, class};
use crate::{
    grammar,
    inputs::Random,
    kind::Kind::{self, *},
    recipe::{Eval, Form, INPUTS, OUTPUTS},
    scalar::{float::Format, integer::int},
};

/// Architecture of random programs: the emulated device's default.
const ARCHITECTURE: u32 = 80;

/// Operations that take constants, as they often do in compiled code.
const WITH_CONSTANTS: [&str; 18] = [
    "add", "sub", "mul", "mad", "and", "or", "xor", "shl", "shr", "min", "max", "selp", "prmt", "shf", "bfe", "bfi",
    "div", "rem",
];

/// A form of the grammar that random programs may use.
#[derive(Clone, Debug)]
pub struct Template {
    form: Form,
    /// True if it is more than one instruction, so that a result must not overwrite operands that are still to be read.
    is_sequence: bool,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Register(Register),
    Constant(Kind, u64),
}

/// A form with its registers.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Indices of its mnemonic and its form in the pool.
    template: (usize, usize),
    sources: Vec<Source>,
    results: Vec<Register>,
}

/// All forms that random programs use, by mnemonic.
#[derive(Debug)]
pub struct Pool {
    mnemonics: Vec<Vec<Template>>,
}

impl Pool {
    pub fn new() -> Pool {
        let mut mnemonics: BTreeMap<String, Vec<Template>> = BTreeMap::new();
        for form in grammar::recipes().into_iter().flat_map(|recipe| recipe.forms).filter(is_usable) {
            let template = Template { is_sequence: form.code.matches(';').count() > 1, form };
            mnemonics.entry(template.form.mnemonic().to_owned()).or_default().push(template);
        }
        Pool { mnemonics: mnemonics.into_values().collect() }
    }

    fn at(&self, (mnemonic, form): (usize, usize)) -> &Template {
        &self.mnemonics[mnemonic][form]
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

fn is_usable(form: &Form) -> bool {
    let divides = matches!(form.mnemonic(), "div" | "rem") && !form.inputs[0].is_float();
    // The ISA does not define which NaN a pair or a short float becomes, and programs can't unify it with instructions
    // that every device has.
    let open = form.mnemonic() == "cvt"
        && form.outputs.iter().any(|(kind, _)| matches!(kind, Bf16 | F16x2 | Bf16x2 | Tf32 | E4m3x2 | E5m2x2));
    (form.is_plain || divides) && !open && form.needs.sm <= ARCHITECTURE && matches!(form.eval, Eval::Row(_))
}

impl Instruction {
    pub(super) fn new(random: &mut Random, pool: &Pool) -> Instruction {
        // Every mnemonic has equal probability, regardless of the number of its forms.
        let mnemonic = random.below(pool.mnemonics.len());
        let template = (mnemonic, random.below(pool.mnemonics[mnemonic].len()));
        let Template { form, is_sequence } = pool.at(template);
        let register = |random: &mut Random, kind| Register { class: class(kind), number: random.below(REGISTERS) };
        let divides = matches!(form.mnemonic(), "div" | "rem") && !form.inputs[0].is_float();
        let takes_constants = WITH_CONSTANTS.contains(&form.mnemonic()) && !form.text.contains(".cc");
        let sources: Vec<Source> = form
            .inputs
            .iter()
            .enumerate()
            .map(|(index, kind)| {
                if divides && index == 1 {
                    // Never zero, nor the only divisor whose quotient may not fit.
                    return Source::Constant(*kind, 1 + random.draw() % 1000);
                }
                let constant =
                    takes_constants && index > 0 && kind.element().is_none() && *kind != Pred && kind.lanes() == 1;
                match constant && random.below(5) == 0 {
                    true => Source::Constant(*kind, random.value(*kind)),
                    false => Source::Register(register(random, *kind)),
                }
            })
            .collect();
        let mut results: Vec<Register> = Vec::new();
        for (kind, _) in &form.outputs {
            let is_taken = |found: Register, results: &[Register]| {
                let is_read = sources.iter().any(|source| matches!(source, Source::Register(read) if *read == found));
                results.contains(&found) || *is_sequence && is_read
            };
            let mut found = register(random, *kind);
            while is_taken(found, &results) {
                found = register(random, *kind);
            }
            results.push(found);
        }
        Instruction { template, sources, results }
    }

    /// Computes the results from a thread's registers and stores them there.
    pub(super) fn run(&self, pool: &Pool, registers: &mut [u64]) {
        let form = &pool.at(self.template).form;
        let inputs: Vec<u64> = self
            .sources
            .iter()
            .map(|source| match source {
                Source::Register(register) => registers[register.place()],
                Source::Constant(_, value) => *value,
            })
            .collect();
        let Eval::Row(eval) = &form.eval else { unreachable!("only such forms are in the pool") };
        for ((value, register), (kind, _)) in eval(&inputs).into_iter().zip(&self.results).zip(&form.outputs) {
            registers[register.place()] = match unified(form, *kind) {
                Some(format) if format.is_nan(value) => format.nan,
                _ => value,
            };
        }
    }

    /// Returns the statements of the instruction, one per line, so that a guard can precede each.
    pub(super) fn lines(&self, pool: &Pool) -> Vec<String> {
        let form = &pool.at(self.template).form;
        let mut code = form.code.clone();
        for (source, name) in self.sources.iter().zip(INPUTS) {
            let text = match source {
                Source::Register(register) => register.to_string(),
                Source::Constant(kind, value) => int(*kind, *value).to_string(),
            };
            code = substituted(&code, name, &text);
        }
        for (result, name) in self.results.iter().zip(OUTPUTS) {
            code = substituted(&code, name, &result.to_string());
        }
        let mut lines: Vec<String> = code.lines().map(str::to_owned).collect();
        for (register, (kind, _)) in self.results.iter().zip(&form.outputs) {
            if let Some(format) = unified(form, *kind) {
                let width = kind.bits();
                lines.push(format!("setp.nan.{kind} %nan, {register}, {register};"));
                lines.push(format!("selp.b{width} {register}, {:#x}, {register}, %nan;", format.nan));
            }
        }
        lines
    }
}

/// Returns the format of a result whose NaN the ISA does not define; programs replace it by one NaN.
fn unified(form: &Form, kind: Kind) -> Option<Format> {
    let open = kind == F64 || form.mnemonic() == "cvt" && matches!(kind, F32 | F16);
    (open && kind.is_float()).then(|| Format::of(kind))
}

/// Replaces a register's name by a text, except where it is the prefix of a longer name.
fn substituted(code: &str, name: &str, by: &str) -> String {
    let mut parts = code.split(name);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_longer = part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        text.push_str(if is_longer { name } else { by });
        text.push_str(part);
    }
    text
}
