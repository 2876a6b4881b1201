//! Findings of the fuzzer, and similar texts: each is loaded or refused, and a loaded text runs or fails.

use std::path::Path;
use std::sync::Arc;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};
use proptest::prelude::{any, prop, proptest};

#[path = "../../fuzz/exercise.rs"]
mod exercise;

#[test]
fn no_finding_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        exercise::exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0);
}

fn load(top: &str, body: &str) -> Result<Module, String> {
    let text =
        format!(".version 7.8\n.target sm_80\n.address_size 64\n{top}\n.visible .entry k()\n{{\n{body}\nret;\n}}\n");
    let memory = Arc::new(Memory::new(1 << 20).unwrap());
    Module::load(&text, &memory, ComputeCapability { major: 8, minor: 0 }).map_err(|error| error.to_string())
}

#[test]
fn what_would_take_memory_or_time_without_end_is_refused() {
    let labels = format!("L:\nT: .branchtargets {};\n{}", ["L"; 3000].join(", "), "brx.idx %r0, T;\n".repeat(500));
    for (top, body, message) in [
        ("", ".reg .b32 %r<4294967295>;", "more than 1048576 registers"),
        ("", &".reg .b32 a<2>;\n".repeat(300), "more than 256 ranges of registers"),
        ("", &at_once(9000), "the function has too many registers"),
        ("", &(0..2100).map(|i| format!(".param .b8 a{i}[4096];\n")).collect::<String>(), "too many registers"),
        ("", &format!(".reg .b32 %r0;\n{labels}"), "more than 1048576 labels"),
        ("", &"{".repeat(400), "braces nested too deeply"),
        ("", &format!("mov.b32 {}", "{".repeat(400)), "operand nested too deeply"),
        ("", ".local .align 4 .b8 big[524289];", "too much local memory"),
        (".shared .b64 big[2305843009213693953];", "", "bytes of shared memory"),
        (".global .b8 big[18446744073709551615];", "", "failed to allocate"),
        (".global .b32 big[4294967296][4294967296];", "", "array too large"),
        (".const .b8 a[9223372036854775807];\n.const .b8 b[9223372036854775807];", "", "64 KiB"),
        (".const .b8 a;\n.const .align 2147483648 .b8 b;", "", "64 KiB"),
        (".extern .shared .align 2147483648 .b8 a[];\n.shared .b8 b;", "", "bytes of shared memory"),
        ("", ".local .align 8192 .b8 a;", "too much local memory"),
        ("", &"ret;".repeat(600_000), "more than 524288 statements"),
        ("", &";".repeat(2_000_000), "more than 524288 statements"),
        (&".func f();".repeat(70_000), "", "more than 65536 functions and variables"),
        (&format!(".global .b8 x[] = {{{}0}};", "0,".repeat(5_000_000)), "", "more than 8388608 tokens"),
        (".func f(.param .b64 big[2305843009213693952]) { ret; }", "", "the parameter is too large"),
        (&format!(".global .b32 x[1] = {};", "{".repeat(400)), "", "initial value nested too deeply"),
    ] {
        let error = load(top, body).unwrap_err();
        assert!(error.contains(message), "{error}, not {message}");
    }
}

/// A kernel with all kinds of texture and surface instructions.
const TEXTURES: &str = ".version 7.8
.target sm_80
.address_size 64
.global .texref picture;
.global .samplerref smooth = { addr_mode_0 = wrap, filter_mode = linear };
.visible .entry k(.param .u64 out, .param .u64 texture, .param .u64 surface)
{
.reg .pred %p<3>; .reg .b16 %h<5>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<5>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [texture]; ld.param.u64 %d2, [surface];
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; cvt.rn.f32.u32 %f8, %r0;
tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}|%p0, [%d1, {%f8, 0f41100000}], {1, -3};
tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d1, smooth, {%f8, %f8}], %f1;
tex.grad.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f8, %f2}], {%f0, %f1}, {%f2, %f3};
tld4.b.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%d1, {%f8, %f2}];
suld.b.2d.v4.b8.zero {%h0, %h1, %h2, %h3}, [%d2, {%r1, 3}];
sust.p.2d.v4.b32.clamp [%d2, {%r0, 9}], {%r0, %r1, %r2, %r3};
txq.level.width.b32 %r5, [%d1], %r0; suq.height.b32 %r6, [%d2];
@%p0 sust.b.2d.v2.b32.trap [%d2, {0, %r0}], {%r5, %r6};
tex.1d.v4.s32.s32 {%r2, %r3, %r4, %r5}, [picture, {%r0}];
ret;
}
";

#[test]
fn the_texture_instructions_that_are_mutated_load_and_run() {
    let memory = Arc::new(Memory::new(1 << 20).unwrap());
    let module = Module::load(TEXTURES, &memory, ComputeCapability { major: 8, minor: 0 });
    assert!(module.is_ok(), "{module:?}");
    exercise::exercise(TEXTURES.as_bytes());
}

proptest! {
    #[test]
    fn mutated_texture_instructions_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..3), 0..4),
    ) {
        let mut bytes = TEXTURES.as_bytes().to_vec();
        for (to, from, kind) in edits {
            let (to, from) = (to.index(bytes.len()), from.index(bytes.len()));
            match kind {
                0 => bytes[to] = bytes[from],
                1 => drop(bytes.remove(to)),
                _ => bytes.insert(to, bytes[from]),
            }
        }
        exercise::exercise(&bytes);
    }
}

/// Returns a body with `count` 64-bit registers that are all live before one is read.
fn at_once(count: usize) -> String {
    let each = |text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
    let writes = each(&|i| format!("mov.b64 a{i}, %clock64;\n"));
    format!(".reg .b64 a<{count}>;\n{writes}{}", each(&|i| format!("st.global.b64 [a0], a{i};\n")))
}

#[test]
fn absurd_block_shapes_are_no_more_than_the_device_allows() {
    for directive in ["maxntid", "reqntid"] {
        let top = format!(".entry wide()\n.{directive} 4294967295, 4294967295, 4294967295\n{{ ret; }}");
        let entry = load(&top, "").unwrap().entry("wide").unwrap();
        assert_eq!(entry.max_threads, 1024);
    }
}
