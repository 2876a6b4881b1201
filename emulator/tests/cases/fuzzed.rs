//! Texts that the fuzzer found, or that someone thought of in its place: each is loaded or refused, and what was loaded
//! runs or fails.

use std::path::Path;
use std::sync::Arc;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};

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
        ("", &format!(".reg .b64 {};", names(9000)), "the function has too many registers"),
        ("", &format!(".reg .b32 %r0;\n{labels}"), "more than 1048576 labels"),
        ("", &"{".repeat(400), "braces nested too deeply"),
        ("", &format!("mov.b32 {}", "{".repeat(400)), "operand nested too deeply"),
        ("", ".local .align 4 .b8 big[524289];", "too much local memory"),
        (".shared .b64 big[2305843009213693953];", "", "bytes of shared memory"),
        (".global .b8 big[18446744073709551615];", "", "failed to allocate"),
        (".global .b32 big[4294967296][4294967296];", "", "array too large"),
        (".const .b8 a[9223372036854775807];\n.const .b8 b[9223372036854775807];", "", "failed to allocate"),
        (".const .b8 a;\n.const .align 2147483648 .b8 b;", "", "failed to allocate"),
        (".func f(.param .b64 big[2305843009213693952]) { ret; }", "", "the parameter is too large"),
        (&format!(".global .b32 x[1] = {};", "{".repeat(400)), "", "initial value nested too deeply"),
    ] {
        let error = load(top, body).unwrap_err();
        assert!(error.contains(message), "{error}, not {message}");
    }
}

fn names(count: usize) -> String {
    (0..count).map(|i| format!("a{i}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn absurd_block_shapes_are_no_more_than_the_device_allows() {
    for directive in ["maxntid", "reqntid"] {
        let top = format!(".entry wide()\n.{directive} 4294967295, 4294967295, 4294967295\n{{ ret; }}");
        let entry = load(&top, "").unwrap().entry("wide").unwrap();
        assert_eq!(entry.max_threads, 1024);
    }
}
