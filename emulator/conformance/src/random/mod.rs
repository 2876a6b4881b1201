//! Random straight-line programs: instructions of the grammar on a few registers, with guards and forward branches. The
//! grammar's own evaluators compute the expected results, one thread at a time.

mod instruction;
mod text;

pub use self::instruction::Pool;

use crate::{
    case::{Case, Output, Row},
    compare::Tolerance,
    files::REGRESSIONS,
    inputs::Random,
    kind::Kind::{self, *},
    random::instruction::Instruction,
};

/// Number of registers of each class.
const REGISTERS: usize = 6;
/// Register classes, as the widest kind of each.
const CLASSES: [Kind; 4] = [Pred, B16, B32, B64];
/// Number of threads: one whole warp and one partial one.
const THREADS: usize = 48;
/// Number of steps of a program: enough for values to propagate, and few enough to read.
const STEPS: usize = 60;

/// One of the registers of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    class: usize,
    number: usize,
}

/// A predicate, and whether it is negated.
#[derive(Clone, Copy, Debug)]
struct Guard {
    number: usize,
    negated: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Compute(Option<Guard>, Instruction),
    /// Continues at the step with this number.
    Branch(Guard, usize),
    /// A removed step.
    Nothing,
}

/// A program with the initial values of its registers.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    seed: u64,
    pool: &'a Pool,
    steps: Vec<Step>,
    /// For each thread, its registers, ordered by class and number.
    start: Vec<Vec<u64>>,
}

fn class(kind: Kind) -> usize {
    match kind.register() {
        "pred" => 0,
        "b16" => 1,
        "b32" => 2,
        _ => 3,
    }
}

/// Returns the kinds of all registers, in order.
fn columns() -> Vec<Kind> {
    CLASSES.iter().flat_map(|kind| [*kind; REGISTERS]).collect()
}

impl Register {
    fn place(self) -> usize {
        self.class * REGISTERS + self.number
    }
}

impl<'a> Program<'a> {
    /// Makes the program of a seed, from the instructions of a pool.
    pub fn new(seed: u64, pool: &'a Pool) -> Program<'a> {
        let mut random = Random::new(seed);
        let start = (0..THREADS)
            .map(|_| {
                columns()
                    .into_iter()
                    .map(|column| match column {
                        // Registers are untyped: they contain values of any kind of their width.
                        B16 => {
                            let kind = *random.pick(&[B16, F16, Bf16]);
                            random.value(kind)
                        }
                        B32 => {
                            let kind = *random.pick(&[B32, F32, F16x2, S32]);
                            random.value(kind)
                        }
                        B64 => {
                            let kind = *random.pick(&[B64, F64, S64]);
                            random.value(kind)
                        }
                        _ => random.value(column),
                    })
                    .collect()
            })
            .collect();
        let mut steps = Vec::new();
        for index in 0..STEPS {
            if random.below(12) == 0 && index + 2 < STEPS {
                let ahead = index + 2 + random.below((STEPS - index - 1).min(10));
                steps.push(Step::Branch(Guard::new(&mut random), ahead.min(STEPS)));
                continue;
            }
            let guard = (random.below(4) == 0).then(|| Guard::new(&mut random));
            steps.push(Step::Compute(guard, Instruction::new(&mut random, pool)));
        }
        Program { seed, pool, steps, start }
    }

    /// Returns the program as a case, with the evaluators' results as expected values.
    pub fn case(&self) -> Case {
        let name = format!("{REGRESSIONS}/seed-{}", self.seed);
        let rows =
            self.start.iter().map(|start| Row { inputs: start.clone(), expected: self.run(start.clone()) }).collect();
        let output = |kind| Output { kind, tolerance: Tolerance::Exact, form: format!("program {}", self.seed) };
        Case {
            name,
            inputs: columns(),
            outputs: columns().into_iter().map(output).collect(),
            texture: None,
            scratch: 0,
            rows,
            status: 0,
            ptx: self.text(),
        }
    }

    /// Returns one thread's registers at the end.
    fn run(&self, mut registers: Vec<u64>) -> Vec<u64> {
        let holds = |guard: &Guard, registers: &[u64]| (registers[guard.number] != 0) != guard.negated;
        let mut next = 0;
        while let Some(step) = self.steps.get(next) {
            next += 1;
            match step {
                Step::Branch(guard, label) if holds(guard, &registers) => next = *label,
                Step::Compute(guard, instruction) if guard.is_none_or(|guard| holds(&guard, &registers)) => {
                    instruction.run(self.pool, &mut registers);
                }
                _ => {}
            }
        }
        registers
    }

    /// Returns the smallest program that still fails, found by leaving out steps.
    pub fn shrunk(mut self, mut fails: impl FnMut(&Case) -> bool) -> Program<'a> {
        for index in (0..self.steps.len()).rev() {
            let kept = std::mem::replace(&mut self.steps[index], Step::Nothing);
            if !fails(&self.case()) {
                self.steps[index] = kept;
            }
        }
        self
    }
}

impl Guard {
    fn new(random: &mut Random) -> Guard {
        Guard { number: random.below(REGISTERS), negated: random.below(2) == 0 }
    }
}
