//! Loads and stores with address patterns, for which there is special code: rows, one element for all lanes, halves of
//! a warp, near-rows, and lanes that are off with invalid addresses. Each is compared with a loop over the lanes.

use gpufleet_emulator::fault::FaultKind;

use super::harness::{Arg, Device};

const LANES: usize = 32;
/// Bytes of the buffer: more than the widest row, so that rows fit at both ends and in between.
const BYTES: usize = 1024;
/// Register value of lanes that are off.
const UNTOUCHED: u64 = 0x5aa5_5aa5_dead_beef;

/// State space and address width of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Global,
    Generic,
    /// With a 32-bit address, and with a 64-bit one.
    Shared,
    SharedWide,
    GenericShared,
}

const SPACES: [Space; 5] = [Space::Global, Space::Generic, Space::Shared, Space::SharedWide, Space::GenericShared];

/// Elements of `bytes` bytes, and their number.
#[derive(Clone, Copy, Debug)]
struct Form {
    bytes: usize,
    count: usize,
}

const FORMS: [Form; 9] = [
    Form { bytes: 1, count: 1 },
    Form { bytes: 2, count: 1 },
    Form { bytes: 4, count: 1 },
    Form { bytes: 8, count: 1 },
    Form { bytes: 1, count: 4 },
    Form { bytes: 2, count: 2 },
    Form { bytes: 4, count: 2 },
    Form { bytes: 4, count: 4 },
    Form { bytes: 8, count: 2 },
];

impl Form {
    fn stride(self) -> usize {
        self.bytes * self.count
    }

    fn text(self) -> String {
        let vector = if self.count > 1 { format!(".v{}", self.count) } else { String::new() };
        format!("{vector}.b{}", 8 * self.bytes)
    }

    /// Formats the registers `name0`, `name1` and so on as an operand of a load or a store.
    fn registers(self, name: &str) -> String {
        let names: Vec<String> = (0..self.count).map(|index| format!("%{name}{index}")).collect();
        if self.count > 1 { format!("{{{}}}", names.join(", ")) } else { names[0].clone() }
    }
}

/// Returns a kernel of one warp. Each lane reads an offset from `offsets`. Lanes with a flag move what is at that
/// offset of `data`, or of shared memory that is filled from it, to their place of `values`, or the other way round.
fn program(space: Space, form: Form, is_store: bool) -> String {
    let shared = matches!(space, Space::Shared | Space::SharedWide | Space::GenericShared);
    let bits = 8 * form.bytes.max(2);
    let address = match space {
        Space::Global | Space::Generic => "ld.param.u64 %d9, [data];\nadd.s64 %d9, %d9, %d8;",
        Space::Shared => "mov.u32 %r9, buffer;\ncvt.u32.u64 %r8, %d8;\nadd.u32 %r9, %r9, %r8;",
        Space::SharedWide => "mov.u64 %d9, buffer;\nadd.s64 %d9, %d9, %d8;",
        Space::GenericShared => "mov.u64 %d9, buffer;\ncvta.shared.u64 %d9, %d9;\nadd.s64 %d9, %d9, %d8;",
    };
    // The instruction's own offset is subtracted first.
    let operand = if space == Space::Shared { "[%r9+16]" } else { "[%d9+16]" };
    let named = match space {
        Space::Global => ".global",
        Space::Shared | Space::SharedWide => ".shared",
        Space::Generic | Space::GenericShared => "",
    };
    let copy = |to: &str, from: &str| -> String {
        let words = (0..BYTES / 128).map(|index| {
            let at = 128 * index;
            format!("ld.{from}.u32 %r7, [%{}+{at}];\nst.{to}.u32 [%{}+{at}], %r7;\n", reg(from), reg(to))
        });
        words.collect()
    };
    fn reg(space: &str) -> &'static str {
        if space == "shared" { "d11" } else { "d10" }
    }
    let places = "mul.wide.u32 %d10, %r0, 4;\nmov.u64 %d11, buffer;\nadd.s64 %d11, %d11, %d10;\n\
                  ld.param.u64 %d12, [data];\nadd.s64 %d10, %d12, %d10;\n";
    let fill = if shared { copy("shared", "global") } else { String::new() };
    let empty = if shared && is_store { copy("global", "shared") } else { String::new() };
    let own: Vec<String> = (0..form.count)
        .map(|index| {
            let (at, n) = (8 * index, index);
            if is_store { format!("ld.global.b{bits} %v{n}, [%d6+{at}];\n") } else { String::new() }
        })
        .collect();
    let kept: Vec<String> = (0..form.count)
        .map(|n| {
            // Narrow elements are extended in a register of their own width.
            let mask = if form.bytes == 1 { format!("and.b16 %v{n}, %v{n}, 255;\n") } else { String::new() };
            format!("{mask}st.global.b{bits} [%d6+{}], %v{n};\n", 8 * n)
        })
        .collect();
    let begin: Vec<String> = (0..form.count).map(|n| format!("ld.global.b{bits} %v{n}, [%d6+{}];\n", 8 * n)).collect();
    let (text, list) = (form.text(), form.registers("v"));
    let action = if is_store {
        format!("{}@%p1 st{named}{text} {operand}, {list};\n{empty}", own.concat())
    } else {
        format!("{}@%p1 ld{named}{text} {list}, {operand};\n{}", begin.concat(), kept.concat())
    };
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry kernel(.param .u64 data, .param .u64 offsets, .param .u64 flags, .param .u64 values)\n{{\n\
         .reg .pred %p<2>;\n.reg .b{bits} %v<4>;\n.reg .b32 %r<10>;\n.reg .b64 %d<16>;\n\
         .shared .align 16 .b8 buffer[{BYTES}];\n\
         mov.u32 %r0, %tid.x;\n{places}{fill}\
         ld.param.u64 %d1, [flags];\nmul.wide.u32 %d2, %r0, 4;\nadd.s64 %d1, %d1, %d2;\nld.global.u32 %r1, [%d1];\n\
         setp.ne.u32 %p1, %r1, 0;\n\
         ld.param.u64 %d3, [offsets];\nmul.wide.u32 %d4, %r0, 8;\nadd.s64 %d3, %d3, %d4;\nld.global.s64 %d8, [%d3];\n\
         sub.s64 %d8, %d8, 16;\n{address}\n\
         ld.param.u64 %d5, [values];\nmul.wide.u32 %d6, %r0, 32;\nadd.s64 %d6, %d5, %d6;\n{action}ret;\n}}\n"
    )
}

/// Returns the byte offsets of all lanes, by name, for accesses of `stride` bytes.
fn patterns(stride: usize) -> Vec<(String, [i64; LANES])> {
    let (stride, end) = (stride as i64, BYTES as i64);
    let row = |lane: usize| stride * lane as i64;
    let mut found: Vec<(String, [i64; LANES])> = vec![
        ("a row at the start".into(), std::array::from_fn(row)),
        ("a row at the end".into(), std::array::from_fn(|lane| end - stride * (LANES - lane) as i64)),
        ("one place".into(), [3 * stride; LANES]),
        ("the last place".into(), [end - stride; LANES]),
        ("two rows".into(), std::array::from_fn(|lane| row(lane % 16) + if lane < 16 { end / 2 } else { 0 })),
        ("one row twice".into(), std::array::from_fn(|lane| row(lane % 16))),
        ("a row and a place".into(), std::array::from_fn(|lane| if lane < 16 { row(lane) } else { 5 * stride })),
        ("backwards".into(), std::array::from_fn(|lane| row(31 - lane))),
        ("every second".into(), std::array::from_fn(|lane| 2 * row(lane))),
        (
            "halves with steps of their own".into(),
            std::array::from_fn(|lane| row(lane % 16) * if lane < 16 { 3 } else { 1 }),
        ),
        ("pairs".into(), std::array::from_fn(|lane| row(lane / 2))),
        ("scattered".into(), std::array::from_fn(|lane| row(lane * 13 % 32))),
        ("overlapping".into(), std::array::from_fn(|lane| row(lane * 7 % 5))),
    ];
    for wrong in [0, 1, 2, 7, 8, 15, 16, 17, 30, 31] {
        let nearly = |lane: usize| if lane == wrong { row(9) } else { row(lane) };
        found.push((format!("a row but for lane {wrong}"), std::array::from_fn(nearly)));
        let elsewhere = |lane: usize| if lane == wrong { row(9) } else { 0 };
        found.push((format!("one place but for lane {wrong}"), std::array::from_fn(elsewhere)));
    }
    found
}

const MASKS: [u32; 12] = [
    u32::MAX,
    0x1f,
    0xffff,
    0xffff_0000,
    0x0007_ffff,
    0x0003_0007,
    1,
    1 << 31,
    1 << 13,
    0x0ff0_0180,
    0x5555_5555,
    0xffff_fffe,
];

/// A device for one program, with buffers that are filled again for every launch.
struct Bench {
    device: Device,
    data: u64,
    offsets: u64,
    flags: u64,
    values: u64,
}

impl Bench {
    fn new(program: &str) -> Bench {
        let device = Device::new(program);
        let (offsets, flags) = (device.upload(&[0i64; LANES]), device.upload(&[0u32; LANES]));
        let (values, data) = (device.upload(&[0u64; 4 * LANES]), device.upload(&[0u8; BYTES]));
        Bench { device, data, offsets, flags, values }
    }

    fn put<T: Copy>(&self, address: u64, values: &[T]) {
        let bytes = size_of_val(values) as u64;
        // SAFETY: the slice is readable for its size.
        unsafe { self.device.memory.copy_in(address, values.as_ptr().cast(), bytes).unwrap() };
    }

    fn run(
        &mut self,
        vector: bool,
        data: &[u8],
        offsets: &[i64; LANES],
        mask: u32,
        values: &[u64],
    ) -> Result<(), String> {
        self.put(self.data, data);
        self.put(self.offsets, offsets);
        self.put(self.flags, &std::array::from_fn::<u32, LANES, _>(|lane| mask >> lane & 1));
        self.put(self.values, values);
        self.device.vector = vector;
        let args = [self.data, self.offsets, self.flags, self.values].map(Arg::U64);
        let result = self.device.launch("kernel", [1; 3], [LANES as u32, 1, 1], &args);
        result.map_err(|fault| format!("{:?}: {}", fault.kind, fault.report))
    }
}

fn bytes() -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Gives every lane that is off an invalid address.
fn with_strays(offsets: &[i64; LANES], mask: u32) -> [i64; LANES] {
    let strays = [i64::MIN, -3, 1 << 40, 7, i64::MAX];
    std::array::from_fn(|lane| if mask >> lane & 1 != 0 { offsets[lane] } else { strays[lane % strays.len()] })
}

fn cases(form: Form) -> impl Iterator<Item = (String, [i64; LANES], u32)> {
    patterns(form.stride()).into_iter().flat_map(|(name, offsets)| {
        MASKS.into_iter().map(move |mask| (format!("{name}, lanes {mask:#x}"), with_strays(&offsets, mask), mask))
    })
}

#[test]
fn loads_in_every_pattern_give_what_each_lane_would_find() {
    for (space, form) in SPACES.into_iter().flat_map(|space| FORMS.map(|form| (space, form))) {
        let mut bench = Bench::new(&program(space, form, false));
        let data = bytes();
        for (name, offsets, mask) in cases(form) {
            let mut expected = vec![UNTOUCHED; 4 * LANES];
            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                for index in 0..form.count {
                    let mut value = UNTOUCHED.to_le_bytes();
                    let at = offsets[lane] as usize + index * form.bytes;
                    value[..form.bytes].copy_from_slice(&data[at..at + form.bytes]);
                    if form.bytes == 1 {
                        value[1] = 0;
                    }
                    expected[4 * lane + index] = u64::from_le_bytes(value);
                }
            }
            if form.bytes == 1 {
                // Lanes that are off are truncated to eight bits too.
                for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 0) {
                    expected[4 * lane..4 * lane + form.count].fill(UNTOUCHED & !0xff00);
                }
            }
            for vector in [false, true] {
                let told = format!("{space:?} {form:?}, {name}, vector {vector}");
                bench.run(vector, &data, &offsets, mask, &[UNTOUCHED; 4 * LANES]).expect(&told);
                assert_eq!(bench.device.download::<u64>(bench.values, 4 * LANES), expected, "{told}");
            }
        }
    }
}

#[test]
fn stores_in_every_pattern_leave_what_the_lanes_in_turn_would() {
    for (space, form) in SPACES.into_iter().flat_map(|space| FORMS.map(|form| (space, form))) {
        let mut bench = Bench::new(&program(space, form, true));
        let values: Vec<u64> = (0..4 * LANES as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for (name, offsets, mask) in cases(form) {
            let mut expected = bytes();
            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                for index in 0..form.count {
                    let at = offsets[lane] as usize + index * form.bytes;
                    let value = values[4 * lane + index].to_le_bytes();
                    expected[at..at + form.bytes].copy_from_slice(&value[..form.bytes]);
                }
            }
            for vector in [false, true] {
                let told = format!("{space:?} {form:?}, {name}, vector {vector}");
                bench.run(vector, &bytes(), &offsets, mask, &values).expect(&told);
                assert_eq!(bench.device.download::<u8>(bench.data, BYTES), expected, "{told}");
            }
        }
    }
}

/// Checks that a row from `first` on, with `steps` elements from lane to lane, is refused, and which lane the report
/// names.
fn refused(space: Space, form: Form, [first, steps]: [i64; 2], lane: usize, kind: FaultKind) {
    for is_store in [false, true] {
        let mut bench = Bench::new(&program(space, form, is_store));
        // A valid access first, so that its range is cached.
        let fine: [i64; LANES] = std::array::from_fn(|lane| (lane * form.stride()) as i64);
        let offsets = fine.map(|offset| first.wrapping_add(offset * steps));
        for vector in [false, true] {
            bench.run(vector, &bytes(), &fine, u32::MAX, &[0; 4 * LANES]).unwrap();
            let told =
                format!("{space:?} {form:?}, store {is_store}, a row at {first:#x} of steps {steps}, vector {vector}");
            let report = bench.run(vector, &bytes(), &offsets, u32::MAX, &[0; 4 * LANES]).expect_err(&told);
            let thread = format!("thread ({lane}, 0, 0)");
            assert!(report.starts_with(&format!("{kind:?}")) && report.contains(&thread), "{told}: {report}");
        }
    }
}

#[test]
fn rows_that_leave_their_memory_are_refused_at_the_first_lane_outside() {
    for (space, form) in SPACES.into_iter().flat_map(|space| FORMS.map(|form| (space, form))) {
        let stride = form.stride() as i64;
        let end = BYTES as i64;
        refused(space, form, [end - 31 * stride, 1], 31, FaultKind::IllegalAddress);
        refused(space, form, [end - 5 * stride, 1], 5, FaultKind::IllegalAddress);
        refused(space, form, [end, 1], 0, FaultKind::IllegalAddress);
        refused(space, form, [-stride, 1], 0, FaultKind::IllegalAddress);
        refused(space, form, [end - 62 * stride, 2], 31, FaultKind::IllegalAddress);
        // Descending, ending before the start.
        refused(space, form, [4 * stride, -1], 5, FaultKind::IllegalAddress);
        // Addresses wrap around to valid ones, but not all of the row is valid.
        refused(space, form, [-3 * stride, 1], 0, FaultKind::IllegalAddress);
        if form.stride() > 1 {
            refused(space, form, [stride / 2, 1], 0, FaultKind::MisalignedAddress);
        }
    }
}
