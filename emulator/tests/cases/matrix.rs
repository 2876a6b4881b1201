//! Matrix instructions of a warp.

mod fragments;
mod mma;
mod rows;
mod special;
mod together;
mod wmma;

use gpufleet_emulator::fault::Fault;
use gpufleet_emulator::module::{ComputeCapability, LoadError, Module};
use half::{bf16, f16};

use super::harness::{Arg, Device, kernel};

/// Makes a device of the newest supported architecture, with one module.
pub fn hopper(ptx: &str) -> Device {
    let mut device = Device::new(&kernel(""));
    device.module = load(ptx, &device).unwrap();
    device
}

fn load(ptx: &str, device: &Device) -> Result<Module, LoadError> {
    Module::load(ptx, &device.memory, ComputeCapability { major: 9, minor: 0 })
}

/// Returns a kernel with two address parameters: its input and its output.
pub fn text(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n\
         .visible .entry kernel(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<160>;\n.reg .b64 %d<64>;\n.shared .align 128 .b8 tile[8192];\n\
         ld.param.u64 %d60, [in];\nld.param.u64 %d61, [out];\nmov.u32 %r150, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// Runs such a kernel in one warp, in both builds, whose results have to be equal.
pub fn run(body: &str, input: &[u32], out: &mut [u32]) -> Result<(), Fault> {
    let mut device = hopper(&text(body));
    let from = device.upload(input);
    let answers = [false, true].map(|vector| {
        device.vector = vector;
        let to = device.upload(out);
        device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(from), Arg::U64(to)])?;
        Ok(device.download::<u32>(to, out.len()))
    });
    let [portable, vector] = answers;
    let (portable, vector) = (portable?, vector?);
    assert_eq!(portable, vector, "the builds disagree");
    out.copy_from_slice(&vector);
    Ok(())
}

/// Returns the reason why a module with such a kernel is refused.
pub fn refusal(body: &str) -> String {
    let device = Device::new(&kernel(""));
    load(&text(body), &device).map(|_| ()).unwrap_err().to_string()
}

/// Formats registers in braces, such as `{%r4, %r5}`.
pub fn registers(first: usize, count: usize) -> String {
    let names: Vec<_> = (first..first + count).map(|number| format!("%r{number}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Pseudorandom numbers, equal in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Returns an integer from -`most` to `most`.
    pub fn whole(&mut self, most: u32) -> f64 {
        f64::from(self.next() % (2 * most + 1)) - f64::from(most)
    }

    /// Returns a number between -1 and 1.
    pub fn fraction(&mut self) -> f64 {
        f64::from(self.next()) / f64::from(1u32 << 30) - 1.0
    }
}

/// An element format: how bits become numbers.
#[derive(Clone, Copy)]
pub struct Format {
    pub name: &'static str,
    pub bits: u32,
    pub encode: fn(f64) -> u64,
    pub decode: fn(u64) -> f64,
}

pub const F16: Format = Format {
    name: "f16",
    bits: 16,
    encode: |value| f16::from_f64(value).to_bits().into(),
    decode: |bits| f16::from_bits(bits as u16).to_f64(),
};
pub const BF16: Format = Format {
    name: "bf16",
    bits: 16,
    encode: |value| bf16::from_f64(value).to_bits().into(),
    decode: |bits| bf16::from_bits(bits as u16).to_f64(),
};
/// tf32: ten bits of fraction; lower bits do not count.
pub const TF32: Format = Format {
    name: "tf32",
    bits: 32,
    encode: |value| u64::from((value as f32).to_bits()) | 0x1fff,
    decode: |bits| f64::from(f32::from_bits(bits as u32 >> 13 << 13)),
};
pub const F32: Format = Format {
    name: "f32",
    bits: 32,
    encode: |value| u64::from((value as f32).to_bits()),
    decode: |bits| f64::from(f32::from_bits(bits as u32)),
};
pub const F64: Format = Format { name: "f64", bits: 64, encode: f64::to_bits, decode: f64::from_bits };
pub const S32: Format =
    Format { name: "s32", bits: 32, encode: |value| value as i64 as u32 as u64, decode: |bits| f64::from(bits as i32) };
pub const U8: Format =
    Format { name: "u8", bits: 8, encode: |v| v as i64 as u64 & 255, decode: |b| f64::from(b as u8) };
pub const S8: Format =
    Format { name: "s8", bits: 8, encode: |v| v as i64 as u64 & 255, decode: |b| f64::from(b as i8) };
pub const U4: Format = Format { name: "u4", bits: 4, encode: |v| v as i64 as u64 & 15, decode: |b| (b & 15) as f64 };
pub const S4: Format = Format {
    name: "s4",
    bits: 4,
    encode: |v| v as i64 as u64 & 15,
    decode: |b| if b & 8 != 0 { (b & 7) as f64 - 8.0 } else { (b & 7) as f64 },
};

/// Returns `a * b + c`, row-major, with the sum of the magnitudes of all terms.
pub fn product((m, n, k): (usize, usize, usize), a: &[f64], b: &[f64], c: &[f64]) -> Vec<(f64, f64)> {
    let sum = |row: usize, column: usize| {
        let terms = (0..k).map(|i| a[row * k + i] * b[i * n + column]).chain([c[row * n + column]]);
        // Adds the smallest term first: the emulator adds in another order.
        let mut terms: Vec<f64> = terms.collect();
        terms.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
        (terms.iter().sum(), terms.iter().map(|term| term.abs()).sum())
    };
    (0..m * n).map(|index| sum(index / n, index % n)).collect()
}
