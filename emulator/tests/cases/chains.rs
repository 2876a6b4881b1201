//! Addresses that instructions make of an index. Random programs run twice: as they are, so that accesses take the index
//! themselves, and with a label before each access, which keeps every instruction as it is written. Memory, registers and
//! reports of faults have to come out alike.

use std::fmt::Write as _;

use gpufleet_emulator::module::{ComputeCapability, Module};

use super::harness::{Arg, Device};

const LANES: usize = 32;
const PROGRAMS: u64 = 1000;
/// Bytes on either side of where addresses start.
const HALF: usize = 4096;
/// What the programs make addresses and values of.
const STEPS: u64 = 14;

/// A linear congruential generator, after Knuth: a seed tells the program.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// The lanes' indices: mostly with a pattern, and seldom far away.
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

/// A program, with or without labels before its accesses.
fn program(seed: u64, labels: bool) -> String {
    let mut random = Random(seed);
    let random = &mut random;
    let mut body = String::new();
    // The addresses made so far, by register, with the factor that tells how they are aligned.
    let mut made: Vec<(u64, u64, bool)> = Vec::new();
    for step in 0..STEPS {
        let register = 20 + 3 * step;
        match random.below(8) {
            0..3 => {
                let shared = random.below(3) == 0;
                let factor = random.of(&[1, 2, 4, 4, 4, 8, 16, 12]);
                chain(random, &mut body, register, factor, shared);
                made.push((register, factor, shared));
            }
            3 => {
                let guard = random.of(&["", "@%p1 ", "@!%p1 "]);
                let change = random.of(&["add.u32 %r1, %r1, 1", "xor.b32 %r1, %r1, 2", "mov.u32 %r1, %r0"]);
                writeln!(body, "{guard}{change};").unwrap();
            }
            4 if !made.is_empty() => {
                let (register, ..) = random.of(&made);
                writeln!(body, "xor.b64 %d9, %d9, %d{register};").unwrap();
            }
            _ if !made.is_empty() => {
                let label = if labels { format!("L{step}: ") } else { String::new() };
                let newest = made[made.len() - 1];
                let (register, factor, shared) = if random.below(3) == 0 { random.of(&made) } else { newest };
                access(random, &mut body, &label, register, factor, shared);
            }
            _ => {}
        }
    }
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry kernel(.param .u64 middle, .param .u64 indices, .param .u64 out, .param .u32 lanes)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<128>;\n.shared .align 16 .b8 tile[1024];\n\
         ld.param.u64 %d0, [middle];\nld.param.u64 %d1, [indices];\nld.param.u64 %d2, [out];\nld.param.u32 %r9, [lanes];\n\
         cvta.to.global.u64 %d3, %d0;\nmov.u64 %d4, tile;\nmov.u32 %r0, %tid.x;\n\
         mad.wide.u32 %d5, %r0, 4, %d1;\nld.global.u32 %r1, [%d5];\nmad.wide.u32 %d6, %r0, 64, %d2;\n\
         setp.lt.u32 %p1, %r0, %r9;\nmov.u64 %d9, 0;\nmov.u32 %r4, 1;\nmov.u32 %r5, 2;\nmov.u32 %r6, 3;\nmov.u64 %d7, 4;\n\
         {body}\
         st.global.u64 [%d6], %d9;\nst.global.u32 [%d6+8], %r4;\nst.global.u32 [%d6+12], %r5;\nst.global.u32 [%d6+16], %r6;\n\
         st.global.u32 [%d6+20], %r1;\nst.global.u64 [%d6+24], %d7;\nret;\n}}\n"
    )
}

/// Instructions that put the address of an element in a register.
fn chain(random: &mut Random, body: &mut String, register: u64, factor: u64, shared: bool) {
    let (scaled, sum) = (register + 1, register + 2);
    let base = if shared { "%d4" } else { "%d3" };
    let bits = factor.trailing_zeros();
    match random.below(5) {
        0 if factor == 1 << bits => {
            let extend = random.of(&["cvt.u64.u32", "cvt.s64.s32"]);
            writeln!(body, "{extend} %d{sum}, %r1;\nshl.b64 %d{scaled}, %d{sum}, {bits};").unwrap();
        }
        0 | 1 => writeln!(body, "mul.wide.u32 %d{scaled}, %r1, {factor};").unwrap(),
        _ => writeln!(body, "mul.wide.s32 %d{scaled}, %r1, {factor};").unwrap(),
    }
    match random.below(4) {
        0 => writeln!(body, "add.s64 %d{register}, %d{scaled}, {base};").unwrap(),
        1 => {
            let offset = random.of(&[16, 64, -32i64]);
            writeln!(body, "add.s64 %d{sum}, %d{scaled}, {offset};\nadd.s64 %d{register}, {base}, %d{sum};").unwrap();
        }
        _ => writeln!(body, "add.s64 %d{register}, {base}, %d{scaled};").unwrap(),
    }
}

/// An access by such an address.
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

/// What a launch leaves behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    fault: Option<String>,
    bytes: Vec<u8>,
    out: Vec<u64>,
}

#[test]
fn an_access_that_takes_an_index_does_what_its_instructions_say() {
    let mut device = Device::new(&program(0, false));
    let before: Vec<u8> = (0..2 * HALF).map(|at| (at * 31 / 8) as u8).collect();
    let (data, indices) = (device.upload(&before), device.upload(&[0u32; LANES]));
    let out = device.upload(&[0u64; 8 * LANES]);
    let mut faults = 0;
    for seed in 0..PROGRAMS {
        let mut random = Random(!seed);
        let values = random.indices();
        let lanes = random.of(&[32, 32, 32, 20, 7]);
        let args =
            [Arg::U64(data + HALF as u64), Arg::U64(indices), Arg::U64(out), Arg::U32(random.of(&[0, 5, 16, 31, 40]))];
        let mut run = |labels: bool, vector: bool| {
            let target = ComputeCapability { major: 9, minor: 0 };
            device.module = Module::load(&program(seed, labels), &device.memory, target).unwrap();
            device.vector = vector;
            // SAFETY: the sources are slices of these lengths.
            unsafe {
                device.memory.copy_in(data, before.as_ptr(), before.len() as u64).unwrap();
                device.memory.copy_in(indices, values.as_ptr().cast(), 4 * LANES as u64).unwrap();
                device.memory.copy_in(out, [0u64; 8 * LANES].as_ptr().cast(), 64 * LANES as u64).unwrap();
            }
            let fault = device.launch("kernel", [1; 3], [lanes, 1, 1], &args).err().map(|fault| fault.report);
            Outcome { fault, bytes: device.download(data, 2 * HALF), out: device.download(out, 8 * LANES) }
        };
        let expected = run(true, false);
        faults += usize::from(expected.fault.is_some());
        for (labels, vector) in [(true, true), (false, false), (false, true)] {
            let found = run(labels, vector);
            let text = program(seed, labels);
            assert!(found == expected, "seed {seed}, vector {vector}, {:?} {:?}\n{text}", found.fault, expected.fault);
        }
    }
    let programs = PROGRAMS as usize;
    assert!((programs / 20..programs * 3 / 4).contains(&faults), "{faults} of {programs} programs end in a fault");
}
