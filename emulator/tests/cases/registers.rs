//! Register slots: programs compute equal results with shared slots and with a slot for every register.

mod program;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module, Reuse};
use gpufleet_emulator::simt::{LaunchConfig, RunLimits, RunOptions, launch};
use proptest::prelude::{any, proptest};

use self::program::{INPUT_WORDS, Program};
use super::harness::{Arg, Device, kernel, words};

const THREADS: u32 = 48;
const TARGET: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// Memory in which programs run, at equal addresses in every run.
struct Machine {
    memory: Arc<Memory>,
    input: u64,
    output: u64,
}

impl Machine {
    fn new(program: &Program) -> Machine {
        let memory = Arc::new(Memory::new(1 << 20).unwrap());
        let words: Vec<u32> = (0..INPUT_WORDS).map(|one| one.wrapping_mul(0x9e37_79b9)).collect();
        let bytes = size_of_val(&words[..]) as u64;
        let input = memory.alloc(bytes).unwrap();
        // SAFETY: the vector is as long as what is copied.
        unsafe { memory.copy_in(input, words.as_ptr().cast(), bytes).unwrap() };
        let output = memory.alloc(4 * u64::from(2 * THREADS * program.outputs)).unwrap();
        Machine { memory, input, output }
    }

    /// Returns what the program's threads write, in two blocks that use the frames one after the other.
    fn run(&self, program: &Program, reuse: Reuse, vector: bool) -> Vec<u32> {
        let module = Module::load_reusing(&program.text, &self.memory, TARGET, reuse).unwrap();
        let mut words = vec![0u32; (2 * THREADS * program.outputs) as usize];
        let bytes = size_of_val(&words[..]) as u64;
        // SAFETY: the vector is as long as what is copied.
        unsafe { self.memory.copy_in(self.output, words.as_ptr().cast(), bytes).unwrap() };
        let params: Vec<u8> = [self.input, self.output].into_iter().flat_map(u64::to_le_bytes).collect();
        let options = RunOptions {
            threads: 1,
            cancel: &AtomicBool::new(false),
            instructions_max: Some(10_000_000),
            print: &|_| {},
            vector,
            limits: RunLimits::default(),
        };
        let config = LaunchConfig { grid: [2, 1, 1], block: [THREADS, 1, 1], shared_bytes: 0, params: &params };
        launch(&module.entry("kernel").unwrap(), &config, &self.memory, &options).unwrap();
        // SAFETY: as above.
        unsafe { self.memory.copy_out(words.as_mut_ptr().cast(), self.output, bytes).unwrap() };
        words
    }
}

proptest! {
    #[test]
    fn programs_compute_the_same_with_shared_slots(seed in any::<u64>()) {
        let program = Program::new(seed);
        let machine = Machine::new(&program);
        let expected = machine.run(&program, Reuse::Never, true);
        for vector in [true, false] {
            let found = machine.run(&program, Reuse::Always, vector);
            let different = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(different, None, "{} words for each thread\n{}", program.outputs, program.text);
        }
    }
}

/// Returns a sum over `names` registers, each of which is live for a few instructions.
fn many(names: usize) -> String {
    let step = |name: usize| match (name - 1, name % 100) {
        // Every hundredth value comes from a branch that some of the lanes take.
        (before, 50) => format!(
            "and.b32 %r1, %n{before}, 1;\nsetp.eq.u32 %p1, %r1, 0;\nadd.u32 %n{name}, %n{before}, 7;\n\
             @%p1 bra L{name};\nxor.b32 %n{name}, %n{before}, {name};\nL{name}:\n"
        ),
        (before, _) => format!("add.u32 %n{name}, %n{before}, {};\n", name % 64),
    };
    let steps: String = (1..names).map(step).collect();
    format!(".reg .b32 %n<{names}>;\nmov.b32 %n0, %r0;\n{steps}st.global.u32 [%d1], %n{};", names - 1)
}

fn many_in_rust(names: usize, thread: u32) -> u32 {
    (1..names as u32).fold(thread, |value, name| match name % 100 {
        50 if value % 2 == 0 => value + 7,
        50 => value ^ name,
        _ => value + name % 64,
    })
}

#[test]
fn a_kernel_with_sixty_thousand_registers_runs() {
    const NAMES: usize = 60_000;
    let expected: Vec<u32> = (0..64).map(|thread| many_in_rust(NAMES, thread)).collect();
    assert_eq!(words(&many(NAMES), 64), expected);
}

/// Returns a function with `names` registers that it writes at its start and reads at its end.
fn at_once(names: usize) -> String {
    let writes: String = (0..names).map(|name| format!("add.u32 %n{name}, %r0, {};\n", name % 7)).collect();
    let reads: String = (0..names).map(|name| format!("xor.b32 %r1, %r1, %n{name};\n")).collect();
    format!(".reg .b32 %n<{names}>;\nmov.b32 %r1, 0;\n{writes}{reads}st.global.u32 [%d1], %r1;")
}

#[test]
fn so_many_registers_can_hold_values_at_once() {
    let expected = (0..32).map(|thread| (0..16_000).fold(0, |bits, name| bits ^ (thread + name % 7)));
    assert_eq!(words(&at_once(16_000), 32), expected.collect::<Vec<u32>>());
    let error = Device::try_new(&kernel(&at_once(17_000))).unwrap_err();
    assert_eq!(
        error.message,
        "the function has too many registers: 17014 of 32 bits hold values or constants at once, and a warp has \
         room for 16384; split the function, or keep values in local memory"
    );
    // The line with the first live register that does not fit.
    assert!((16_000..17_000).contains(&error.line), "{}", error.line);
}

#[test]
fn callers_and_functions_keep_what_they_hand_over() {
    let function = ".func (.param .b32 result) weigh(.param .b32 a, .param .b64 b)\n{\n\
                    .reg .b32 %n<300>;\n.reg .b64 %w<4>;\nld.param.u32 %n0, [a];\nld.param.u64 %w0, [b];\n\
                    cvt.u32.u64 %n1, %w0;\n{BODY}\nld.param.u32 %n299, [a];\nadd.u32 %n298, %n297, %n299;\n\
                    st.param.b32 [result], %n298;\nret;\n}\n";
    let step = |name| format!("add.u32 %n{name}, %n{}, %n{};\n", name - 1, name - 2);
    let steps: String = (2..298).map(step).collect();
    let body = "and.b32 %r2, %r0, 3;\nsetp.eq.u32 %p1, %r2, 1;\n@%p1 bra SKIP;\ncvt.u64.u32 %d2, %r2;\n{\n\
                .param .b32 x;\n.param .b64 y;\n.param .b32 z;\nst.param.b32 [x], %r0;\nst.param.b64 [y], %d2;\n\
                call (z), weigh, (x, y);\nld.param.b32 %r3, [z];\n}\nSKIP:\n@%p1 mov.u32 %r3, 9;\n\
                add.u32 %r3, %r3, %r2;\nst.global.u32 [%d1], %r3;";
    let text = kernel(body).replacen(".visible", &(function.replace("{BODY}", &steps) + ".visible"), 1);
    let expected = |thread: u32| {
        let kind = thread % 4;
        let (mut before, mut last) = (thread, kind);
        for _ in 2..298 {
            (before, last) = (last, before.wrapping_add(last));
        }
        kind + if kind == 1 { 9 } else { last.wrapping_add(thread) }
    };
    for reuse in [Reuse::Always, Reuse::Never] {
        let mut device = Device::new(&text);
        device.module = Module::load_reusing(&text, &device.memory, TARGET, reuse).unwrap();
        let out = device.upload(&[0u32; 64]);
        device.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(out)]).unwrap();
        assert_eq!(device.download::<u32>(out, 64), (0..64).map(expected).collect::<Vec<_>>(), "{reuse:?}");
    }
}
