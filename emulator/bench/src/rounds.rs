//! The rounds: each runs every kernel in every way once, so that a machine that becomes slower or faster affects all
//! alike.

use anyhow::{Context as _, ensure};
use gpufleet_bench_plain::Kernel;

use crate::cases::{Buffer, Case, Likeness};
use crate::clock::{Time, time};
use crate::emulated::{Machine, Prepared, Way};
use crate::plain;

/// What does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Plain Rust without vectorisation.
    Scalar,
    /// Plain Rust as the compiler optimises it by default.
    Vectorised,
    /// The emulator on one thread.
    One,
    /// The emulator on two threads.
    Two,
    /// The emulator on one thread, without this machine's vector instructions.
    Portable,
}

pub const SUBJECTS: [Subject; 5] =
    [Subject::Scalar, Subject::Vectorised, Subject::One, Subject::Two, Subject::Portable];

/// The times of one case, in the order of the rounds.
#[derive(Debug)]
pub struct Result {
    pub name: &'static str,
    pub size: String,
    times: [Vec<Time>; SUBJECTS.len()],
}

impl Result {
    pub fn times(&self, subject: Subject) -> &[Time] {
        &self.times[subject as usize]
    }
}

/// A case, ready to run repeatedly.
struct Subjects<'a> {
    case: &'a Case,
    scalar: Kernel,
    vectorised: Kernel,
    buffers: Vec<Buffer>,
    emulated: Prepared<'a>,
}

/// Runs every case in every way, once to warm up and then in `rounds` rounds.
pub fn measure(
    cases: &[Case],
    scalar: &plain::Library,
    vectorised: &plain::Library,
    machine: &Machine,
    rounds: u32,
) -> anyhow::Result<Vec<Result>> {
    let mut subjects = Vec::new();
    for case in cases {
        let (scalar, vectorised) = (scalar.kernel(case)?, vectorised.kernel(case)?);
        let (buffers, emulated) = (case.buffers.clone(), machine.prepare(case)?);
        subjects.push(Subjects { case, scalar, vectorised, buffers, emulated });
    }
    let empty = |case: &Case| Result { name: case.name, size: case.size.clone(), times: Default::default() };
    let mut results: Vec<Result> = cases.iter().map(empty).collect();
    for round in 0..=rounds {
        for (subject, result) in subjects.iter_mut().zip(&mut results) {
            for kind in SUBJECTS {
                let took = subject.run(kind).with_context(|| format!("failed to run {}", subject.case.name))?;
                // The first round warms up: it allocates pages and fills caches.
                if round > 0 {
                    result.times[kind as usize].push(took);
                }
            }
        }
    }
    Ok(results)
}

impl Subjects<'_> {
    /// Runs a case once from fresh inputs. The result of an emulated run is compared with that of the plain run before
    /// it.
    fn run(&mut self, subject: Subject) -> anyhow::Result<Time> {
        let way = match subject {
            Subject::Scalar => return Ok(self.run_plain(self.scalar, self.case.plain_numbers)),
            Subject::Vectorised => return Ok(self.run_plain(self.vectorised, self.case.vectorised_numbers)),
            Subject::One => Way { threads: 1, vector: true },
            Subject::Two => Way { threads: 2, vector: true },
            Subject::Portable => Way { threads: 1, vector: false },
        };
        self.emulated.reset()?;
        let (outcome, took) = time(|| self.emulated.run(way));
        outcome?;
        for (index, likeness) in &self.case.results {
            compare(&self.emulated.result(*index)?, &self.buffers[*index], *likeness)
                .with_context(|| format!("failed to compare buffer {index} with that of plain Rust"))?;
        }
        Ok(took)
    }

    fn run_plain(&mut self, kernel: Kernel, numbers: [u32; 2]) -> Time {
        for (buffer, initial) in self.buffers.iter_mut().zip(&self.case.buffers) {
            buffer.bytes_mut().copy_from_slice(initial.bytes());
        }
        time(|| plain::run(kernel, self.case, numbers, &mut self.buffers)).1
    }
}

fn compare(found: &Buffer, expected: &Buffer, likeness: Likeness) -> anyhow::Result<()> {
    let words = |buffer: &Buffer| -> Vec<u32> {
        let words = buffer.bytes().chunks_exact(4);
        words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    };
    for (index, (found, expected)) in words(found).into_iter().zip(words(expected)).enumerate() {
        let alike = match likeness {
            Likeness::Bits => found == expected,
            Likeness::Near(share) => {
                let (found, expected) = (f32::from_bits(found), f32::from_bits(expected));
                (found - expected).abs() <= share * expected.abs().max(1.0)
            }
        };
        let as_float = f32::from_bits;
        ensure!(
            alike,
            "element {index} is {found:#x} ({}), not {expected:#x} ({})",
            as_float(found),
            as_float(expected)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpufleet_bench_plain as plain;

    use super::{SUBJECTS, Subjects};
    use crate::cases::{Sizes, all};
    use crate::emulated::Machine;

    #[test]
    fn every_kernel_answers_what_plain_rust_does_in_all_ways() {
        let machine = Machine::new().unwrap();
        for case in &all(Sizes { elements: 1 << 15, side: 64, bodies: 128, picture_side: 32 }) {
            let kernel = plain::kernel(case.plain).unwrap();
            let (buffers, emulated) = (case.buffers.clone(), machine.prepare(case).unwrap());
            let mut subjects = Subjects { case, scalar: kernel, vectorised: kernel, buffers, emulated };
            for subject in SUBJECTS {
                subjects.run(subject).unwrap_or_else(|error| panic!("{} {subject:?}: {error:#}", case.name));
            }
        }
    }
}
