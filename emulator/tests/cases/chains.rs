//! Fused address chains. Random programs run in three forms: as they are, so that accesses take the index directly, and
//! in two forms that prevent fusion, with a label before each access, and with a guard on what computes the addresses.
//! Memory, registers and fault reports have to be equal. Some programs are straight-line code; in others lanes diverge
//! and run a loop a different number of times.

use std::fmt::Write as _;
use std::ops::Range;

use gpufleet_emulator::module::{ComputeCapability, Module};

use super::harness::{Arg, Device};

const LANES: usize = 32;
const PROGRAMS: u64 = 1000;
/// Bytes of the buffer on either side of the first address.
const HALF: usize = 4096;
/// Number of random steps of a straight program.
const STEPS: u64 = 14;
/// Number of random steps in each part of the other programs.
const STEPS_OF_PART: u64 = 6;
/// Threads of the other programs: the lanes of several warps.
const THREADS: usize = 80;

/// The form of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// With a label before each access.
    Labels,
    /// With a guard, which always holds, on what computes addresses.
    Guards,
}

/// A linear congruential generator (Knuth); its seed determines the program.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns the lanes' indices: mostly with a pattern, seldom far away.
    fn indices(&mut self) -> Vec<u32> {
        let first = self.of(&[0, 7, 40, 100, -3, -30, -100, i64::from(i32::MAX) - 20, i64::from(u32::MAX) - 7]);
        let first = if self.below(3) > 0 { first.rem_euclid(128) } else { first };
        let step = self.of(&[0, 1, 1, 1, 2, 3, -1, 17]);
        let halves = self.below(4) == 0;
        let mut indices: Vec<u32> =
            (0..LANES as i64).map(|lane| (first + step * if halves { lane % 16 } else { lane }) as u32).collect();
        if self.below(4) == 0 {
            let lane = self.below(LANES as u64) as usize;
            indices[lane] = self.below(100) as u32;
        }
        indices
    }
}

/// An address that a program has computed: its register, the factor that determines its alignment, and whether it is in
/// shared memory.
type Made = (u64, u64, bool);

/// Returns a program of straight-line code.
fn straight(seed: u64, form: Form) -> String {
    let mut body = String::new();
    steps(&mut Random(seed), &mut body, 0..STEPS, form, &mut Vec::new());
    kernel("", &body)
}

/// Returns a program of two rounds, each with a barrier and a loop around a branch. There are steps before the barrier,
/// before the branch, on both paths and behind it. Later parts may use an address of an earlier part, because all
/// registers contain an address from the start.
fn winding(seed: u64, form: Form) -> String {
    let mut random = Random(seed);
    let random = &mut random;
    let (mut start, mut body, mut made) = (String::new(), String::new(), Vec::new());
    let carries = random.below(2) == 0;
    if carries {
        for step in 0..5 * STEPS_OF_PART {
            writeln!(start, "mov.u64 %d{}, %d3;", register(step)).unwrap();
        }
    }
    let mut part = |body: &mut String, number: u64, made: &mut Vec<Made>| {
        steps(random, body, number * STEPS_OF_PART..(number + 1) * STEPS_OF_PART, form, made);
    };
    body.push_str("ROUND:\n");
    part(&mut body, 0, &mut made);
    body.push_str("bar.sync 0;\nmov.u32 %r10, 0;\nLOOP:\n");
    part(&mut body, 1, &mut made);
    body.push_str("and.b32 %r12, %r0, 5;\nsetp.gt.u32 %p2, %r12, 1;\n@%p2 bra OTHER;\n");
    let mut one = made.clone();
    part(&mut body, 2, &mut one);
    body.push_str("bra BOTH;\nOTHER:\n");
    let mut other = made.clone();
    part(&mut body, 3, &mut other);
    body.push_str("BOTH:\n");
    if carries {
        made.extend(one.iter().chain(&other));
    }
    part(&mut body, 4, &mut made);
    body.push_str(
        "add.u32 %r10, %r10, 1;\nadd.u32 %r12, %r0, %r11;\nand.b32 %r12, %r12, 3;\nsetp.lt.u32 %p2, %r10, %r12;\n\
         @%p2 bra LOOP;\nadd.u32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 2;\n@%p2 bra ROUND;\n",
    );
    kernel(&format!("mov.u32 %r11, 0;\n{start}"), &body)
}

/// Returns the register for the address of a step; the next two registers are for intermediate values.
fn register(step: u64) -> u64 {
    20 + 3 * step
}

/// Emits random instructions that compute addresses, access them, and change the index.
fn steps(random: &mut Random, body: &mut String, steps: Range<u64>, form: Form, made: &mut Vec<Made>) {
    for step in steps {
        match random.below(8) {
            0..3 => {
                let shared = random.below(3) == 0;
                let factor = random.of(&[1, 2, 4, 4, 4, 8, 16, 12]);
                chain(random, body, form, register(step), factor, shared);
                made.push((register(step), factor, shared));
            }
            3 => {
                let guard = random.of(&["", "@%p1 ", "@!%p1 "]);
                let change = random.of(&["add.u32 %r1, %r1, 1", "xor.b32 %r1, %r1, 2", "mov.u32 %r1, %r0"]);
                writeln!(body, "{guard}{change};").unwrap();
            }
            4 if !made.is_empty() => {
                let (register, ..) = random.of(made);
                writeln!(body, "xor.b64 %d9, %d9, %d{register};").unwrap();
            }
            _ if !made.is_empty() => {
                let label = if form == Form::Labels { format!("L{step}: ") } else { String::new() };
                let newest = made[made.len() - 1];
                let (register, factor, shared) = if random.below(3) == 0 { random.of(made) } else { newest };
                access(random, body, &label, register, factor, shared);
            }
            _ => {}
        }
    }
}

fn kernel(start: &str, body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry kernel(.param .u64 middle, .param .u64 indices, .param .u64 out, .param .u32 lanes)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<128>;\n.shared .align 16 .b8 tile[1024];\n\
         ld.param.u64 %d0, [middle];\nld.param.u64 %d1, [indices];\nld.param.u64 %d2, [out];\nld.param.u32 %r9, [lanes];\n\
         cvta.to.global.u64 %d3, %d0;\nmov.u64 %d4, tile;\nmov.u32 %r0, %tid.x;\n\
         mad.wide.u32 %d5, %r0, 4, %d1;\nld.global.u32 %r1, [%d5];\nmad.wide.u32 %d6, %r0, 64, %d2;\n\
         setp.lt.u32 %p1, %r0, %r9;\nsetp.eq.u32 %p0, %r9, %r9;\nmov.u64 %d9, 0;\nmov.u32 %r4, 1;\nmov.u32 %r5, 2;\nmov.u32 %r6, 3;\nmov.u64 %d7, 4;\n\
         {start}{body}\
         st.global.u64 [%d6], %d9;\nst.global.u32 [%d6+8], %r4;\nst.global.u32 [%d6+12], %r5;\nst.global.u32 [%d6+16], %r6;\n\
         st.global.u32 [%d6+20], %r1;\nst.global.u64 [%d6+24], %d7;\nret;\n}}\n"
    )
}

/// Emits instructions that compute the address of an element.
fn chain(random: &mut Random, body: &mut String, form: Form, register: u64, factor: u64, shared: bool) {
    let guard = if form == Form::Guards { "@%p0 " } else { "" };
    let (scaled, sum) = (register + 1, register + 2);
    let base = if shared { "%d4" } else { "%d3" };
    let bits = factor.trailing_zeros();
    match random.below(5) {
        0 if factor == 1 << bits => {
            let extend = random.of(&["cvt.u64.u32", "cvt.s64.s32"]);
            writeln!(body, "{guard}{extend} %d{sum}, %r1;\n{guard}shl.b64 %d{scaled}, %d{sum}, {bits};").unwrap();
        }
        0 | 1 => writeln!(body, "{guard}mul.wide.u32 %d{scaled}, %r1, {factor};").unwrap(),
        _ => writeln!(body, "{guard}mul.wide.s32 %d{scaled}, %r1, {factor};").unwrap(),
    }
    match random.below(4) {
        0 => writeln!(body, "{guard}add.s64 %d{register}, %d{scaled}, {base};").unwrap(),
        1 => {
            let offset = random.of(&[16, 64, -32i64]);
            writeln!(
                body,
                "{guard}add.s64 %d{sum}, %d{scaled}, {offset};\n{guard}add.s64 %d{register}, {base}, %d{sum};"
            )
            .unwrap();
        }
        _ => writeln!(body, "{guard}add.s64 %d{register}, {base}, %d{scaled};").unwrap(),
    }
}

/// Emits an access to such an address.
fn access(random: &mut Random, body: &mut String, label: &str, register: u64, factor: u64, shared: bool) {
    let space = if shared { "shared" } else { "global" };
    let guard = random.of(&["", "", "@%p1 ", "@!%p1 "]);
    let aligned = 1 << factor.trailing_zeros().min(4);
    let widest = if random.below(16) == 0 { 16 } else { aligned };
    let form = random.of(&[("u8", 1), ("s8", 1), ("u16", 2), ("u32", 4), ("u32", 4), ("u64", 8), ("v4.u32", 16)]);
    let (form, bytes) = if form.1 <= widest { form } else { ("u8", 1) };
    let address = format!("[%d{register}+{}]", bytes * random.of(&[0, 0, 1, 2, -1, -4]));
    let value = match form {
        "u64" => "%d7",
        "v4.u32" => "{%r4, %r5, %r6, %r1}",
        _ => "%r4",
    };
    let text = match (random.below(5), form) {
        (0, "u32") => format!("atom.{space}.add.u32 %r5, {address}, %r6"),
        (1, "u32") => format!("red.{space}.add.u32 {address}, %r6"),
        (0..3, _) => format!("st.{space}.{form} {address}, {value}"),
        _ => format!("ld.{space}.{form} {value}, {address}"),
    };
    writeln!(body, "{label}{guard}{text};").unwrap();
}

/// The observable result of a launch.
#[derive(Debug, PartialEq)]
struct Outcome {
    fault: Option<String>,
    bytes: Vec<u8>,
    out: Vec<u64>,
}

#[test]
fn an_access_that_takes_an_index_does_what_its_instructions_say() {
    let faults = assert_alike(straight, LANES, |random| random.of(&[32, 32, 32, 20, 7]));
    assert!((PROGRAMS / 20..PROGRAMS * 3 / 4).contains(&faults), "{faults} of {PROGRAMS} programs end in a fault");
}

#[test]
fn an_index_is_taken_right_where_lanes_part_and_go_around_loops() {
    let faults = assert_alike(winding, THREADS, |random| random.of(&[80, 80, 64, 40, 9]));
    assert!((PROGRAMS / 20..PROGRAMS * 3 / 4).contains(&faults), "{faults} of {PROGRAMS} programs end in a fault");
}

/// Runs programs of up to `threads` threads in all forms; returns how many of them end in a fault.
fn assert_alike(program: fn(u64, Form) -> String, threads: usize, count: fn(&mut Random) -> u32) -> u64 {
    let mut device = Device::new(&program(0, Form::Plain));
    let before: Vec<u8> = (0..2 * HALF).map(|at| (at * 31 / 8) as u8).collect();
    let (data, indices) = (device.upload(&before), device.upload(&vec![0u32; threads]));
    let out = device.upload(&vec![0u64; 8 * threads]);
    let mut faults = 0;
    for seed in 0..PROGRAMS {
        let mut random = Random(!seed);
        let mut values: Vec<u32> = (0..threads.div_ceil(LANES)).flat_map(|_| random.indices()).collect();
        values.truncate(threads);
        let count = count(&mut random);
        let args =
            [Arg::U64(data + HALF as u64), Arg::U64(indices), Arg::U64(out), Arg::U32(random.of(&[0, 5, 16, 31, 40]))];
        let mut run = |form: Form, vector: bool| {
            let target = ComputeCapability { major: 9, minor: 0 };
            device.module = Module::load(&program(seed, form), &device.memory, target).unwrap();
            device.vector = vector;
            // SAFETY: the sources are slices of these lengths.
            unsafe {
                device.memory.copy_in(data, before.as_ptr(), before.len() as u64).unwrap();
                device.memory.copy_in(indices, values.as_ptr().cast(), 4 * threads as u64).unwrap();
                device.memory.copy_in(out, vec![0u64; 8 * threads].as_ptr().cast(), 64 * threads as u64).unwrap();
            }
            let fault = device.launch("kernel", [1; 3], [count, 1, 1], &args).err().map(|fault| fault.report);
            Outcome { fault, bytes: device.download(data, 2 * HALF), out: device.download(out, 8 * threads) }
        };
        let expected = run(Form::Guards, false);
        faults += u64::from(expected.fault.is_some());
        for (form, vector) in [Form::Plain, Form::Labels].into_iter().flat_map(|form| [(form, false), (form, true)]) {
            let found = run(form, vector);
            let text = program(seed, form);
            assert!(
                found == expected,
                "seed {seed}, {form:?}, vector {vector}, {:?} {:?}\n{text}",
                found.fault,
                expected.fault
            );
        }
    }
    faults
}
