//! Random programs: each call of a program is made on both drivers, which must answer alike. A program that shows a
//! difference is made shorter before it is reported.

use crate::{
    call::{Call, draw},
    driver::Driver,
    pair::{Mode, Pair, pair},
    world::World,
};

/// Calls of all programs together, unless the variable says how many.
const CALLS: usize = 20_000;
const CALLS_VARIABLE: &str = "GPUFLEET_TEST_DIFFERENTIAL_CALLS";
/// Calls of one program.
const PROGRAM_CALLS: usize = 200;
/// The first seed. Seeds that failed once are kept in `FAILED`.
const SEED_VARIABLE: &str = "GPUFLEET_TEST_DIFFERENTIAL_SEED";
const FAILED: &[u64] = &[];

/// Runs a program on both drivers; what differed, if something did.
fn run(drivers: &[Driver; 2], program: &[Call]) -> Option<String> {
    let mut world = World::default();
    for (side, driver) in drivers.iter().enumerate() {
        assert_eq!((driver.init)(0), 0);
        assert_eq!((driver.create_context)(&raw mut world.contexts[side], 0, 0), 0);
    }
    let difference = program.iter().enumerate().find_map(|(place, call)| {
        let is_captured = world.captured.is_some();
        let [here, there] = world.make(drivers, *call)?;
        // While a stream is captured, the test can't wait for the work of others, so it may have ended on one side only.
        let is_query = matches!(call, Call::QueryStream { .. } | Call::QueryEvent { .. });
        let may_differ = is_captured && is_query && is_progress(here.0) && is_progress(there.0);
        let is_alike = here == there || may_differ || is_refusal(here.0) && is_refusal(there.0) && here.1 == there.1;
        (!is_alike).then(|| {
            let at = here.1.iter().zip(&there.1).position(|(here, there)| here != there);
            format!("call {place}, {call:?}: {} here, {} there; results differ at {at:?}", here.0, there.0)
        })
    });
    // A capture that is not ended forbids calls in other contexts too.
    if let Some(on) = world.captured {
        let _ = world.make(drivers, Call::EndCapture { stream: on });
    }
    for (side, driver) in drivers.iter().enumerate() {
        let _ = (driver.destroy_context)(world.contexts[side]);
    }
    difference
}

/// Reports whether a code says that an argument is wrong: invalid value, context or handle, or not found. If several are
/// wrong, drivers may say so of any.
fn is_refusal(code: i32) -> bool {
    [1, 201, 400, 500].contains(&code)
}

/// Reports whether a code says whether work has ended: success or not ready.
fn is_progress(code: i32) -> bool {
    [0, 600].contains(&code)
}

/// Leaves out as many calls as possible without losing the difference.
fn shorten(drivers: &[Driver; 2], mut program: Vec<Call>) -> Vec<Call> {
    let mut length = program.len() / 2;
    while length > 0 {
        let mut start = 0;
        while start < program.len() {
            let mut shorter = program.clone();
            shorter.drain(start..(start + length).min(program.len()));
            if run(drivers, &shorter).is_some() {
                program = shorter;
            } else {
                start += length;
            }
        }
        length /= 2;
    }
    program
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

#[test]
fn random_programs_run_as_in_process() {
    compare(Mode::Asks);
}

#[test]
fn random_programs_run_as_in_process_without_waiting_for_posts() {
    compare(Mode::Posts);
}

fn compare(mode: Mode) {
    let (Pair { here, there }, _one) = pair(mode);
    let drivers = [Driver::of(here), Driver::of(there)];
    let first = number(SEED_VARIABLE).unwrap_or(1) as u64;
    let programs = number(CALLS_VARIABLE).unwrap_or(CALLS).div_ceil(PROGRAM_CALLS) as u64;
    for seed in FAILED.iter().copied().chain(first..first + programs) {
        let mut random = fastrand::Rng::with_seed(seed);
        let program: Vec<Call> = (0..PROGRAM_CALLS).map(|_| draw(&mut random)).collect();
        if let Some(difference) = run(&drivers, &program) {
            let short = shorten(&drivers, program);
            let last = run(&drivers, &short).unwrap_or_default();
            panic!("seed {seed}: {difference}\nshortened to {short:#?}\n{last}");
        }
    }
}
