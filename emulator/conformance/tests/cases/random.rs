//! Random programs on the emulator, in both builds of its interpreter, and with shared register slots.
//! `GPUFLEET_RANDOM_SEED` and `GPUFLEET_RANDOM_COUNT` select other programs than the fixed ones; a failure prints the
//! seed.

use std::{env, sync::Arc};

use gpufleet_conformance::{
    case::Case,
    random::{Pool, Program},
    report,
    verdict::judge,
};
use gpufleet_emulator::{memory::Memory, module::Reuse};

use crate::emulated::{MEMORY_BYTES, run};

/// Number of random programs, which take a few seconds; `cargo xtask ptx-cases --random SECONDS` runs more.
const COUNT: u64 = 60;
const SEED: u64 = 1;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_programs_give_what_their_instructions_say() {
    let pool = Pool::new();
    let memory = Arc::new(Memory::new(MEMORY_BYTES).unwrap());
    let (first, count) = (number("GPUFLEET_RANDOM_SEED", SEED), number("GPUFLEET_RANDOM_COUNT", COUNT));
    for seed in first..first + count {
        let case = Program::new(seed, &pool).case();
        for (vector, reuse) in [(true, Reuse::default()), (false, Reuse::default()), (true, Reuse::Always)] {
            let verdict = judge(&case, &run(&case, &memory, vector, reuse));
            assert!(
                verdict.passed(),
                "seed {seed}, vector instructions {vector}, slots {reuse:?}: {}\nto keep it: cargo xtask ptx-cases --random 1 --seed {seed}",
                report::failures(&[verdict])
            );
        }
    }
}

#[test]
fn a_program_is_the_same_each_time_and_smaller_when_shrunk() {
    let pool = Pool::new();
    let program = Program::new(7, &pool);
    let case = program.case();
    assert_eq!(case, Program::new(7, &pool).case());
    // If any program with a multiplication counts as failing, the shrunk program contains little else.
    let wanted = |case: &Case| case.ptx.contains("mul.");
    if wanted(&case) {
        let small = program.shrunk(wanted).case();
        assert!(wanted(&small) && small.ptx.lines().count() < case.ptx.lines().count());
    }
}
