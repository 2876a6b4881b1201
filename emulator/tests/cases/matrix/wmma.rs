//! `wmma`: loads matrices, multiplies and stores them, in every shape, type and layout.

use gpufleet_emulator::fault::FaultKind;

use super::{BF16, F16, F32, F64, Format, Numbers, S4, S8, S32, TF32, U4, U8, product, refusal, registers, run};

type Shape = (usize, usize, usize);

const SIXTEENS: [Shape; 3] = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];

/// Returns the number of registers of a fragment, from the PTX ISA.
fn count(shape: Shape, role: char, format: Format) -> usize {
    match (role, format.name, shape) {
        ('a' | 'b', "f16", _) => 8,
        ('c', "f16", _) => 4,
        ('a' | 'b', "bf16" | "tf32", (16, 16, _)) => 4,
        ('a', "bf16", (8, ..)) | ('b', "bf16", (32, ..)) => 2,
        ('a' | 'b', "bf16", _) => 8,
        ('a' | 'b', "u8" | "s8", (16, ..)) => 2,
        ('a', "u8" | "s8", (8, ..)) | ('b', "u8" | "s8", (32, ..)) => 1,
        ('a' | 'b', "u8" | "s8", _) => 4,
        ('a' | 'b', _, _) => 1,
        ('c', _, (8, 8, _)) => 2,
        _ => 8,
    }
}

/// A matrix in memory: rows or columns that are `stride` elements apart, with other data between them.
struct Stored {
    words: Vec<u32>,
    stride: usize,
}

fn index(rows_first: bool, stride: usize, row: usize, column: usize) -> usize {
    if rows_first { row * stride + column } else { column * stride + row }
}

fn stored(matrix: &[u64], (rows, columns): (usize, usize), rows_first: bool, format: Format, gap: usize) -> Stored {
    let (lines, length) = if rows_first { (rows, columns) } else { (columns, rows) };
    let stride = length + gap;
    let bits = format.bits as usize;
    let mut words = vec![u32::MAX; (lines * stride * bits).div_ceil(32)];
    for row in 0..rows {
        for column in 0..columns {
            let bit = index(rows_first, stride, row, column) * bits;
            let value = matrix[row * columns + column];
            if bits == 64 {
                words[bit / 32] = value as u32;
                words[bit / 32 + 1] = (value >> 32) as u32;
            } else {
                let mask = (((1u64 << bits) - 1) as u32) << (bit % 32);
                words[bit / 32] = words[bit / 32] & !mask | (value as u32) << (bit % 32) & mask;
            }
        }
    }
    Stored { words, stride }
}

/// The operands and layouts of one run.
struct Case {
    shape: Shape,
    /// Formats of D, A, B and C.
    formats: [Format; 4],
    /// Whether A, B, C and D are row-major.
    rows_first: [bool; 4],
    /// Bytes between the end of one line and the start of the next.
    gap: usize,
    space: &'static str,
    suffix: &'static str,
}

fn name(rows_first: bool) -> &'static str {
    if rows_first { "row" } else { "col" }
}

/// Start of each matrix in the buffer or in the tile, in words.
const STARTS: [usize; 4] = [0, 512, 1024, 1536];
const WORDS: usize = 2048;

impl Case {
    fn extents(&self) -> [(usize, usize); 4] {
        let (m, n, k) = self.shape;
        [(m, k), (k, n), (m, n), (m, n)]
    }

    fn shape_name(&self) -> String {
        let (m, n, k) = self.shape;
        format!("m{m}n{n}k{k}")
    }

    fn mma(&self) -> String {
        let [d, a, b, c] = self.formats;
        let types = match a.name {
            "f16" => format!("{}.{}", d.name, c.name),
            _ => format!("{}.{}.{}.{}", d.name, a.name, b.name, c.name),
        };
        let [x, y, ..] = self.rows_first.map(name);
        format!("wmma.mma.sync.aligned.{x}.{y}.{}.{types}{}", self.shape_name(), self.suffix)
    }

    /// Returns a body that loads, multiplies and stores; `between` works on the accumulators, `%r60` and following.
    fn body(&self, strides: [usize; 4], between: &str) -> String {
        let [d, a, b, c] = self.formats;
        let wide = d.bits == 64;
        let starts = if wide { [4, 8, 12, 16] } else { [20, 40, 60, 80] };
        let list = |number: usize, role, format| {
            let list = registers(starts[number], count(self.shape, role, format));
            if wide { list.replace("%r", "%d") } else { list }
        };
        let lists = [list(0, 'a', a), list(1, 'b', b), list(2, 'c', c), list(3, 'c', d)];
        let (base, space) = match self.space {
            "shared" => ("%r149", ".shared"),
            "global" => ("%d61", ".global"),
            "shared through a generic address" => ("%d59", ""),
            _ => ("%d61", ""),
        };
        let mut text = "mov.u32 %r149, tile;\nmov.u64 %d59, tile;\ncvta.shared.u64 %d59, %d59;\n".to_owned();
        // The whole buffer goes through the tile.
        text += "mad.wide.u32 %d62, %r150, 256, %d60;\nmad.wide.u32 %d63, %r150, 256, %d61;\n\
                 mad.lo.u32 %r148, %r150, 256, %r149;\n";
        for at in (0..256).step_by(4) {
            text += &format!("ld.global.u32 %r140, [%d62+{at}];\nst.shared.u32 [%r148+{at}], %r140;\n");
            text += &format!("st.global.u32 [%d63+{at}], %r140;\n");
        }
        text += "bar.warp.sync -1;\n";
        for (number, (role, format)) in [('a', a), ('b', b), ('c', c)].into_iter().enumerate() {
            let (layout, shape, at) = (name(self.rows_first[number]), self.shape_name(), STARTS[number] * 4);
            let (list, stride) = (&lists[number], strides[number]);
            let stride = if self.gap == 0 { String::new() } else { format!(", {stride}") };
            text += &format!(
                "wmma.load.{role}.sync.aligned.{layout}.{shape}{space}.{} {list}, [{base}+{at}]{stride};\n",
                format.name
            );
        }
        let layout = name(self.rows_first[3]);
        text += &format!("{between}\n{} {}, {}, {}, {};\n", self.mma(), lists[3], lists[0], lists[1], lists[2]);
        text += &format!(
            "mov.u32 %r139, {};\nwmma.store.d.sync.aligned.{layout}.{}{space}.{} [{base}+{}], {}, %r139;\n\
             bar.warp.sync -1;\n",
            strides[3],
            self.shape_name(),
            d.name,
            STARTS[3] * 4,
            lists[3]
        );
        if self.space.starts_with("shared") {
            for at in (0..256).step_by(4) {
                text += &format!("ld.shared.u32 %r140, [%r148+{at}];\nst.global.u32 [%d63+{at}], %r140;\n");
            }
        }
        text
    }

    /// Runs the case; returns the elements of D, row-major, after checking that nothing else was written.
    fn run(&self, matrices: [&[u64]; 3], between: &str) -> Vec<u64> {
        let [d, a, b, c] = self.formats;
        let extents = self.extents();
        let mut input = vec![0xdead_beef; WORDS];
        let mut strides = [0; 4];
        for (number, (matrix, format)) in matrices.into_iter().zip([a, b, c]).enumerate() {
            let gap = self.gap * 8 / format.bits as usize;
            let stored = stored(matrix, extents[number], self.rows_first[number], format, gap);
            input[STARTS[number]..][..stored.words.len()].copy_from_slice(&stored.words);
            strides[number] = stored.stride;
        }
        let (rows, columns) = extents[3];
        let length = if self.rows_first[3] { columns } else { rows };
        strides[3] = length + self.gap * 8 / d.bits as usize;
        let mut out = vec![0; WORDS];
        run(&self.body(strides, between), &input, &mut out).unwrap();
        let bits = d.bits as usize;
        let mut expected = input;
        let mut found = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let bit = STARTS[3] * 32 + index(self.rows_first[3], strides[3], row, column) * bits;
                let mut words = u64::from(out[bit / 32]);
                expected[bit / 32] = out[bit / 32];
                if bits == 64 {
                    words |= u64::from(out[bit / 32 + 1]) << 32;
                    expected[bit / 32 + 1] = out[bit / 32 + 1];
                }
                found.push(if bits == 16 { words >> (bit % 32) & 0xffff } else { words });
            }
        }
        assert_eq!(out, expected, "{} wrote beside its matrix", self.mma());
        found
    }

    fn check(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        let [d, a, b, c] = self.formats;
        let extents = self.extents();
        let [x, y, z] = [(a, 0), (b, 1), (c, 2)].map(|(format, number)| -> Vec<u64> {
            let (rows, columns) = extents[number];
            let one = |_| {
                let value = numbers.whole(7);
                (format.encode)(if format.name.starts_with('u') { value.abs() } else { value })
            };
            (0..rows * columns).map(one).collect()
        });
        let decoded = |bits: &[u64], format: Format| -> Vec<f64> { bits.iter().map(|b| (format.decode)(*b)).collect() };
        let want = product(self.shape, &decoded(&x, a), &decoded(&y, b), &decoded(&z, c));
        for (index, (got, (want, _))) in self.run([&x, &y, &z], "").into_iter().zip(want).enumerate() {
            let got = (d.decode)(got);
            assert_eq!(got, want, "{} in {} memory, element {index}", self.mma(), self.space);
        }
    }
}

/// Checks all layouts, with the state spaces in turn.
fn check(shape: Shape, formats: [Format; 4], suffix: &'static str) {
    let spaces = ["global", "shared", "global through a generic address", "shared through a generic address"];
    let sub_byte = formats[1].bits < 8;
    for layouts in 0..16usize {
        let rows_first = [0, 1, 2, 3].map(|bit| layouts >> bit & 1 != 0);
        if sub_byte && rows_first[..2] != [true, false] {
            continue;
        }
        // A gap of 32 bytes keeps every line aligned.
        let gap = if layouts % 3 == 0 { 0 } else { 32 };
        Case { shape, formats, rows_first, gap, space: spaces[layouts % 4], suffix }.check(layouts as u64);
    }
}

#[test]
fn halves_in_all_layouts() {
    for shape in SIXTEENS {
        for (d, c) in [(F32, F32), (F16, F16), (F32, F16), (F16, F32)] {
            check(shape, [d, F16, F16, c], "");
        }
    }
}

#[test]
fn brain_floats_in_all_layouts() {
    for shape in SIXTEENS {
        check(shape, [F32, BF16, BF16, F32], "");
    }
}

#[test]
fn bytes_in_all_layouts() {
    for shape in SIXTEENS {
        check(shape, [S32, U8, U8, S32], "");
        check(shape, [S32, S8, S8, S32], ".satfinite");
    }
}

#[test]
fn wide_floats_in_all_layouts() {
    check((16, 16, 8), [F32, TF32, TF32, F32], "");
    check((8, 8, 4), [F64; 4], "");
}

#[test]
fn nibbles_along_the_sum() {
    check((8, 8, 32), [S32, U4, U4, S32], "");
    check((8, 8, 32), [S32, S4, S4, S32], ".satfinite");
}

#[test]
fn bits_along_the_sum() {
    const B1: Format = Format { name: "b1", bits: 1, encode: |value| value as u64 & 1, decode: |bits| bits as f64 };
    let mut numbers = Numbers(23);
    let shape = (8, 8, 128);
    let mut bits = |count: usize| -> Vec<u64> { (0..count).map(|_| u64::from(numbers.next() >> 7 & 1)).collect() };
    let (a, b, c) = (bits(1024), bits(1024), bits(64));
    for (op, both) in [("xor", false), ("and", true)] {
        let case = Case {
            shape,
            formats: [S32, B1, B1, S32],
            rows_first: [true, false, true, false],
            gap: 16,
            space: "shared",
            suffix: if both { ".and.popc" } else { ".xor.popc" },
        };
        for (index, got) in case.run([&a, &b, &c], "").into_iter().enumerate() {
            let pairs = (0..128).map(|i| (a[index / 8 * 128 + i], b[i * 8 + index % 8]));
            let count = pairs.filter(|(x, y)| if both { x & y == 1 } else { x != y }).count();
            assert_eq!(got, count as u64 + c[index], "{op} element {index}");
        }
    }
}

#[test]
fn the_elements_of_an_accumulator_can_be_scaled_alike() {
    let shape = (16, 16, 16);
    let case =
        Case { shape, formats: [F32, F16, F16, F32], rows_first: [true; 4], gap: 0, space: "global", suffix: "" };
    let mut numbers = Numbers(29);
    let mut matrix = |format: Format| -> Vec<u64> { (0..256).map(|_| (format.encode)(numbers.whole(9))).collect() };
    let (a, b, c) = (matrix(F16), matrix(F16), matrix(F32));
    let scale: String = (60..68).map(|n| format!("mul.f32 %r{n}, %r{n}, 0f40400000;\n")).collect();
    // Also doubles the factor A, in all its registers.
    let double: String = (20..28).map(|n| format!("add.rn.f16x2 %r{n}, %r{n}, %r{n};\n")).collect();
    let decoded = |bits: &[u64], format: Format, by: f64| -> Vec<f64> {
        bits.iter().map(|bits| (format.decode)(*bits) * by).collect()
    };
    let want = product(shape, &decoded(&a, F16, 2.0), &decoded(&b, F16, 1.0), &decoded(&c, F32, 3.0));
    let got = case.run([&a, &b, &c], &(scale + &double));
    assert!(got.iter().zip(want).all(|(got, (want, _))| (F32.decode)(*got) == want));
}

const LOAD: &str = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}";
const STORE: &str = "wmma.store.d.sync.aligned.row.m16n16k16.global.f32";
const STORED: &str = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}";

#[test]
fn matrices_that_reach_too_far_or_are_not_aligned_end_in_a_report() {
    // 256 halves are 512 bytes.
    let input = vec![0; 128];
    let faulty = |body: &str, kind: FaultKind, part: &str| {
        let fault = run(body, &input, &mut vec![0; 128]).unwrap_err();
        assert_eq!(fault.kind, kind, "{}", fault.report);
        assert!(fault.report.contains(part), "{part} is missing in: {}", fault.report);
    };
    let (illegal, misaligned) = (FaultKind::IllegalAddress, FaultKind::MisalignedAddress);
    faulty(&format!("{LOAD}, [%d60+32];"), illegal, "illegal access of 32 bytes");
    faulty(&format!("{LOAD}, [%d60], 80;"), illegal, "512-byte allocation");
    faulty(&format!("{LOAD}, [%d60], 0x7ffffff8;"), illegal, "illegal access of 32 bytes");
    faulty(&format!("{LOAD}, [%d60+16];"), misaligned, "misaligned access of 32 bytes");
    faulty(&format!("{LOAD}, [%d60], 4;"), misaligned, "a stride of 4 elements");
    faulty(&format!("mov.u64 %d1, 0;\n{LOAD}, [%d1];"), illegal, "illegal access");
    faulty(&format!("{STORE} [%d61], {STORED};"), illegal, "illegal access of 64 bytes");
    faulty(&format!("{STORE} [%d61], {STORED}, 8;"), FaultKind::IllegalInstruction, "overlap");
    let spread = "mad.wide.u32 %d1, %r150, 32, %d60;\n";
    faulty(&format!("{spread}{LOAD}, [%d1];"), FaultKind::IllegalInstruction, "different addresses");
    faulty(&format!("{LOAD}, [%d60], %r150;"), FaultKind::IllegalInstruction, "different strides");
    // The address of the thread's own local memory, which differs between lanes.
    let local = ".local .align 32 .b8 own[1024];\ncvta.local.u64 %d1, 0;\n";
    let generic = LOAD.replace(".global", "");
    faulty(&format!("{local}{generic}, [%d1];"), illegal, "in local memory");
}

#[test]
fn shapes_types_and_layouts_that_ptx_does_not_have_are_refused() {
    for body in [
        "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r0}, [%d60];",
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%d60];",
        "wmma.load.b.sync.aligned.row.m8n8k128.global.b1 {%r0}, [%d60];",
        "wmma.load.c.sync.aligned.row.m16n16k16.global.bf16 {%r0}, [%d60];",
        "wmma.load.d.sync.aligned.row.m16n16k16.global.f32 {%r0}, [%d60];",
        "wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {%r0}, [%d60];",
        "wmma.load.a.sync.row.m16n16k16.f16 {%r0}, [%d60];",
        "wmma.store.a.sync.aligned.row.m16n16k16.global.f16 [%d60], {%r0};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 {%r0}, {%r1}, {%r2}, {%r3};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite {%r0}, {%r1}, {%r2}, {%r3};",
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0}, {%r1}, {%r2}, {%r3};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f16.bf16.bf16.f16 {%r0}, {%r1}, {%r2}, {%r3};",
        "wmma.mma.sync.aligned.row.col.m16n8k16.f32.f32 {%r0}, {%r1}, {%r2}, {%r3};",
    ] {
        let opcode = body.split(' ').next().unwrap();
        let message = refusal(body);
        assert!(message.contains(&format!("unsupported opcode `{opcode}`")), "{body}: {message}");
    }
    let message = refusal("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0, %r1}, [%d60];");
    assert!(message.contains("expected 8 registers, found 2"), "{message}");
}
