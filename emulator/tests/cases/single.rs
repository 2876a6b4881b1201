//! Runs one instruction over edge values in both builds of the interpreter, with all lanes on and with some; all
//! results have to agree.

use super::harness::{Arg, Device};

/// Register type of an operand: 16, 32 or 64 bits, or a predicate.
#[derive(Clone, Copy, PartialEq)]
pub enum Reg {
    H,
    R,
    D,
    P,
}

pub use Reg::{D, H, P, R};

fn name(reg: Reg, letter: &str) -> String {
    match reg {
        H => format!("%h{letter}"),
        R => format!("%r{letter}"),
        D => format!("%d{letter}"),
        P => format!("%p{letter}"),
    }
}

/// Returns a kernel: thread i reads row i of three 64-bit words, applies the instruction, and writes the result as 64
/// bits.
fn text(op: &str, result: Reg, operands: &[Reg]) -> String {
    let mut body = String::new();
    for (index, reg) in operands.iter().enumerate() {
        let letter = ["a", "b", "c"][index];
        body += &format!("ld.global.u64 %d{letter}, [%rd2+{}];\n", index * 8);
        body += &match reg {
            H => format!("cvt.u16.u64 %h{letter}, %d{letter};\n"),
            R => format!("cvt.u32.u64 %r{letter}, %d{letter};\n"),
            P => format!("setp.ne.u64 %p{letter}, %d{letter}, 0;\n"),
            D => String::new(),
        };
    }
    let names: Vec<_> = operands.iter().enumerate().map(|(i, reg)| name(*reg, ["a", "b", "c"][i])).collect();
    body += &format!("{op} {}, {};\n", name(result, "z"), names.join(", "));
    body += match result {
        H => "cvt.u64.u16 %dz, %hz;\n",
        R => "cvt.u64.u32 %dz, %rz;\n",
        P => "selp.u64 %dz, 1, 0, %pz;\n",
        D => "",
    };
    format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n\
         .visible .entry kernel(.param .u64 in, .param .u64 out, .param .u32 rows) {{\n\
         .reg .pred %p<2>, %pa, %pb, %pc, %pz;\n.reg .b16 %ha, %hb, %hc, %hz;\n\
         .reg .b32 %r<4>, %ra, %rb, %rc, %rz;\n.reg .b64 %rd<5>, %da, %db, %dc, %dz;\n\
         mov.u32 %r0, %tid.x;\nld.param.u32 %r1, [rows];\nsetp.ge.u32 %p0, %r0, %r1;\n@%p0 ret;\n\
         ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n\
         mad.wide.u32 %rd2, %r0, 24, %rd0;\nmad.wide.u32 %rd3, %r0, 8, %rd1;\n\
         {body}st.global.u64 [%rd3], %dz;\nret;\n}}\n"
    )
}

pub fn run(op: &str, result: Reg, operands: &[Reg], rows: &[[u64; 3]]) -> Vec<u64> {
    let mut device = Device::new(&text(op, result, operands));
    let threads = (rows.len() as u32).next_multiple_of(32);
    let mut padded = rows.to_vec();
    padded.resize(threads as usize, [1; 3]);
    let input = device.upload(&padded);
    let mut answers = Vec::new();
    for vector in [true, false] {
        for on in [threads, rows.len() as u32] {
            device.vector = vector;
            let out = device.upload(&vec![0u64; threads as usize]);
            let args = [Arg::U64(input), Arg::U64(out), Arg::U32(on)];
            device.launch("kernel", [1; 3], [threads, 1, 1], &args).unwrap();
            answers.push(device.download::<u64>(out, rows.len()));
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{op}: the builds disagree: {answers:x?}");
    answers.swap_remove(0)
}

/// Applies an instruction to all combinations of values and compares the results with `expect`.
pub fn check(op: &str, result: Reg, operands: &[Reg], values: &[u64], expect: impl Fn(&[u64]) -> u64) {
    let n = values.len();
    let rows: Vec<[u64; 3]> =
        (0..n.pow(operands.len() as u32)).map(|i| [values[i % n], values[i / n % n], values[i / n / n % n]]).collect();
    for chunk in rows.chunks(1000) {
        for (row, got) in chunk.iter().zip(run(op, result, operands, chunk)) {
            let want = expect(row);
            assert_eq!(got, want, "{op} of {row:x?}: {got:#x}, not {want:#x}");
        }
    }
}

pub const WORDS: [u64; 9] = [0, 1, 2, 31, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
pub const DOUBLES: [u64; 7] = [0, 1, 63, 70, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, u64::MAX];
pub const HALVES: [u64; 6] = [0, 1, 17, 0x7fff, 0x8000, 0xffff];

/// f32 values as bits: zeros, subnormals, the ends, infinities, NaNs.
pub const SINGLES: [u64; 15] = [
    0,
    0x8000_0000,
    1,
    0x807f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3eaa_aaab,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xc049_0fdb,
    0x4b80_0001,
];

pub const DOUBLE_FLOATS: [u64; 10] = [
    0,
    0x8000_0000_0000_0000,
    1,
    0x3ff0_0000_0000_0000,
    0xbfd5_5555_5555_5555,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    0x4170_0000_1000_0001,
];

pub fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

pub fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

pub fn single(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

pub fn double(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

pub fn word(value: i32) -> u64 {
    (value as u32).into()
}
