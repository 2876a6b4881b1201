//! Runs every case on the emulator, in both builds of its interpreter.

use std::{
    fs,
    sync::{Arc, LazyLock, atomic::AtomicBool},
};

use gpufleet_conformance::{
    case::Case,
    checksums,
    children::Outcome,
    driver::{RunError, UNWRITTEN},
    files, grammar, report,
    verdict::{CaseVerdict, judge},
};
use gpufleet_emulator::{
    memory::Memory,
    module::{ComputeCapability, Module, Reuse},
    simt::{LaunchConfig, RunLimits, RunOptions, launch},
};

use crate::image::Bound;

/// The newest architecture of the grammar.
const TARGET: ComputeCapability = ComputeCapability { major: 9, minor: 0 };
pub const MEMORY_BYTES: u64 = 64 << 20;
/// Instruction budget of a case. The longest case takes a few thousand instructions; this ends an endless one.
const INSTRUCTIONS_MAX: u64 = 10_000_000;

/// The cases of the grammar, made once for all tests.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(grammar::cases);

fn words_as_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn run(case: &Case, memory: &Arc<Memory>, vector: bool, reuse: Reuse) -> Outcome {
    let module = match Module::load_reusing(&case.ptx, memory, TARGET, reuse) {
        Ok(module) => module,
        Err(error) => return Outcome::Failed(RunError::Load(error.to_string())),
    };
    let input = words_as_bytes(&case.input_words());
    let mut output = vec![UNWRITTEN; case.output_bytes() * case.rows.len()];
    let on_device = memory.alloc(input.len() as u64).unwrap();
    let results = memory.alloc(output.len() as u64).unwrap();
    // SAFETY: both vectors are as long as what is copied.
    unsafe {
        memory.copy_in(on_device, input.as_ptr().cast(), input.len() as u64).unwrap();
        memory.copy_in(results, output.as_ptr().cast(), output.len() as u64).unwrap();
    }
    let bound = case.texture.as_ref().map(|texture| Bound::new(texture, memory));
    let mut params = words_as_bytes(&[on_device, results]);
    params.extend(bound.iter().flat_map(|bound| bound.handle.to_le_bytes()));
    let config = LaunchConfig { grid: [1; 3], block: [case.rows.len() as u32, 1, 1], shared_bytes: 0, params: &params };
    let options = RunOptions {
        threads: 1,
        cancel: &AtomicBool::new(false),
        instructions_max: Some(INSTRUCTIONS_MAX),
        print: &|_| {},
        vector,
        limits: RunLimits::default(),
    };
    let entry = module.entry("test").expect("every case has this kernel");
    let launched = launch(&entry, &config, memory, &options);
    // SAFETY: the vector is as long as what is copied.
    unsafe { memory.copy_out(output.as_mut_ptr().cast(), results, output.len() as u64).unwrap() };
    memory.free(on_device).unwrap();
    memory.free(results).unwrap();
    match launched {
        Ok(()) => Outcome::Ran(output.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()),
        Err(fault) => Outcome::Failed(RunError::Run(fault.kind.code())),
    }
}

fn verdicts(vector: bool, reuse: Reuse) -> Vec<CaseVerdict> {
    let memory = Arc::new(Memory::new(MEMORY_BYTES).unwrap());
    let regressions = files::list(&files::regressions()).unwrap();
    let regressions: Vec<Case> = regressions.iter().map(|path| files::read(path).unwrap()).collect();
    CASES.iter().chain(&regressions).map(|case| judge(case, &run(case, &memory, vector, reuse))).collect()
}

fn every_case_passes(vector: bool, reuse: Reuse) {
    let verdicts = verdicts(vector, reuse);
    assert!(verdicts.iter().all(CaseVerdict::passed), "\n{}", report::failures(&verdicts));
    // Arithmetic returns one NaN, as on devices; the ISA does not define which NaN a conversion returns.
    let payloads: Vec<_> = verdicts
        .iter()
        .flat_map(|case| &case.forms)
        .filter(|form| form.payloads > 0 && !form.form.starts_with("cvt."))
        .map(|form| &form.form)
        .collect();
    assert!(payloads.is_empty(), "NaN of other bits: {payloads:?}");
}

#[test]
fn every_case_passes_with_vector_instructions() {
    every_case_passes(true, Reuse::default());
}

#[test]
fn every_case_passes_without_vector_instructions() {
    every_case_passes(false, Reuse::default());
}

#[test]
fn every_case_passes_with_shared_slots() {
    every_case_passes(true, Reuse::Always);
}

#[test]
fn the_grammar_makes_the_cases_of_the_committed_checksums() {
    let committed = fs::read_to_string(checksums::path()).unwrap();
    let difference = checksums::difference(&committed, &checksums::render(&CASES));
    assert!(
        difference.is_empty(),
        "the grammar makes other cases than checksums.txt says:\n{difference}\
         to accept them, run `cargo xtask ptx-cases --checksums` and commit the file; \
         to see them, run `cargo xtask ptx-cases --write FOLDER` before and after the change"
    );
}

/// The architectures that introduced instructions.
const TARGETS: [u32; 7] = [70, 72, 75, 80, 86, 89, 90];

#[test]
fn a_text_has_no_instruction_that_its_target_lacks() {
    let memory = Arc::new(Memory::new(MEMORY_BYTES).unwrap());
    let is_accepted = |case: &&Case| {
        let target = case.target().unwrap();
        let Some(before) = TARGETS.into_iter().rev().find(|known| *known < target) else { return false };
        let ptx = case.ptx.replace(&format!(".target sm_{target}"), &format!(".target sm_{before}"));
        Module::load(&ptx, &memory, TARGET).is_ok()
    };
    let accepted: Vec<&str> = CASES.iter().filter(is_accepted).map(|case| case.name.as_str()).collect();
    assert!(accepted.is_empty(), "{} cases run on targets that are too old: {accepted:#?}", accepted.len());
}

#[test]
fn a_case_survives_being_written_and_read() {
    for made in CASES.iter() {
        let read = Case::parse(&made.render()).unwrap();
        assert_eq!(&Case { ptx: made.ptx.clone(), ..read }, made);
    }
}
