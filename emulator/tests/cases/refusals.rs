//! Arithmetic instructions in forms that PTX does not have: modifiers or types of other instructions, registers and
//! literals of another type, and forms of a later architecture.

use std::sync::Arc;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, LoadError, Module};

/// The refused instructions, one per line.
const REFUSED: &str = include_str!("../../cases/refused.txt");

fn load(instruction: &str, target: &str) -> Result<Module, LoadError> {
    let text = format!(
        ".version 8.8\n.target {target}\n.address_size 64\n.visible .entry kernel(.param .u64 out) {{\n\
         .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>;\n\
         .reg .u16 %uh<9>; .reg .u32 %u<9>; .reg .s32 %s<9>; .reg .u64 %ud<9>;\n\
         .reg .f16 %fh<9>; .reg .f16x2 %fx<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;\n\
         {instruction}\nret;\n}}\n"
    );
    let memory = Arc::new(Memory::new(1 << 24).expect("16 MiB are there"));
    Module::load(&text, &memory, ComputeCapability { major: 9, minor: 0 })
}

fn loads(instruction: &str) -> bool {
    load(instruction, "sm_90").is_ok()
}

#[test]
fn forms_that_ptx_does_not_have_are_refused_with_their_line() {
    let mut count = 0;
    for instruction in REFUSED.lines().filter(|line| !line.starts_with('#')) {
        let error = load(instruction, "sm_90").expect_err(instruction);
        assert_eq!(error.line, 8, "{instruction}: {error}");
        count += 1;
    }
    assert!(count > 500, "{count}");
}

#[test]
fn a_modifier_given_twice_or_against_another_is_refused() {
    for instruction in [
        "add.ftz.ftz.f32 %r1, %r2, %r3;",
        "add.rn.rz.f32 %r1, %r2, %r3;",
        "mul.lo.hi.s32 %r1, %r2, %r3;",
        "mul.lo.lo.s32 %r1, %r2, %r3;",
        "div.approx.full.f32 %r1, %r2, %r3;",
        "div.rn.approx.f32 %r1, %r2, %r3;",
        "fma.rn.sat.relu.f16 %h1, %h2, %h3, %h4;",
        "min.xorsign.f32 %r1, %r2, %r3;",
        "min.abs.f32 %r1, %r2, %r3;",
        "setp.lt.gt.f32 %p1, %r1, %r2;",
        "setp.lt.and.or.f32 %p1, %r1, %r2, %p2;",
        "cvt.rni.rzi.s32.f32 %r1, %r2;",
        "cvt.rn.rna.tf32.f32 %r1, %r2;",
        "prmt.b32.f4e.ecl %r1, %r2, %r3, %r4;",
        "shf.l.r.wrap.b32 %r1, %r2, %r3, %r4;",
    ] {
        assert!(!loads(instruction), "{instruction}");
    }
}

#[test]
fn forms_of_devices_to_come_are_refused() {
    for instruction in [
        "add.rn.f32x2 %d1, %d2, %d3;",
        "fma.rn.f32x2 %d1, %d2, %d3, %d4;",
        "add.f32.f16 %r1, %h2, %r3;",
        "min.f32 %r1, %r2, %r3, %r4;",
        "cvt.rs.f16x2.f32 %r1, %r2, %r3, %r4;",
        "cvt.rn.satfinite.e2m1x2.f32 %h1, %r2, %r3;",
        "cvt.rn.satfinite.tf32.f32 %r1, %r2;",
        "cvt.rz.ue8m0x2.f32 %h1, %r2, %r3;",
    ] {
        assert!(!loads(instruction), "{instruction}");
    }
}

#[test]
fn registers_go_with_instructions_of_their_type() {
    for instruction in [
        "add.u32 %s1, %u1, %r1;",
        "add.f32 %r1, %f1, %f2;",
        "add.f16 %h1, %fh1, %h1;",
        "add.f16x2 %fx1, %fx1, %r1;",
        "and.b32 %f1, %fx1, %u1;",
        "mov.b32 %f1, %u1;",
        "selp.b32 %f1, %u1, %s1, %p1;",
        "cvt.rn.f32.s32 %f1, %u1;",
        "cvt.u32.u16 %ud1, %u1;",
        "cvt.f32.f16 %d1, %r1;",
        "cvt.rn.f16x2.f32 %fx1, %f1, %f2;",
        "mul.wide.u16 %s1, %uh1, %h1;",
        "mov.b64 {%r1, %r2}, %fd1;",
        "popc.b32 %s1, %f1;",
    ] {
        assert!(loads(instruction), "{instruction}: {}", load(instruction, "sm_90").unwrap_err());
    }
    for instruction in [
        "add.u32 %f1, %u1, %r1;",
        "add.s32 %r1, %h1, %r2;",
        "add.s16 %h1, %r1, %h2;",
        "add.f32 %u1, %f1, %f2;",
        "add.f16 %uh1, %uh1, %uh1;",
        "add.f16x2 %f1, %f1, %f1;",
        "mov.u32 %f1, %u1;",
        "mov.f32 %f1, %u1;",
        "mov.b16 %h1, %r1;",
        "mov.b32 %r1, {%r2, %r3};",
        "mov.u32 %r1, {%h2, %h3};",
        "selp.f32 %f1, %u1, %f1, %p1;",
        "setp.eq.u32 %p1, %f1, %u1;",
        "cvt.rn.f32.s32 %f1, %f2;",
        "cvt.u32.u64 %r1, %r2;",
        "cvt.u32.u32 %h1, %r2;",
        "cvt.f32.f16 %f1, %uh1;",
        "cvt.rn.bf16.f32 %uh1, %f1;",
        "shl.b64 %d1, %d2, %d3;",
        "shl.b32 %r1, %r2, %h3;",
        "lop3.b32 %r1, %r2, %r3, %r4, %r5;",
        "lop3.and.b32 %r1, %r2, %r3, %r4, 1, %p1;",
        "setp.eq.f16 %p1|%p2, %h1, %h2;",
        "setp.eq.f16x2 %p1, %r1, %r2;",
    ] {
        assert!(!loads(instruction), "{instruction}");
    }
}

#[test]
fn literals_go_with_instructions_of_their_type() {
    for instruction in [
        "mov.b32 %r1, 0f3f800000;",
        "mov.b64 %d1, 0d3ff0000000000000;",
        "mov.f32 %r1, 1.5;",
        "mov.f32 %r1, 0d3ff0000000000000;",
        "fma.rn.f64 %d1, %d2, %d3, 0f3f800000;",
        "add.u64 %d1, %d2, -1;",
        "setp.eq.b32 %p1, %r1, 0f3f800000;",
    ] {
        assert!(loads(instruction), "{instruction}: {}", load(instruction, "sm_90").unwrap_err());
    }
    for instruction in [
        "mov.f32 %r1, 1;",
        "mov.u32 %r1, 0f3f800000;",
        "mov.b32 %r1, 1.0;",
        "mov.b32 %r1, 0d3ff0000000000000;",
        "mov.b64 %d1, 0f3f800000;",
        "add.f32 %r1, %r2, 1;",
        "add.s32 %r1, %r2, 1.0;",
        "add.f16 %h1, %h2, 1.0;",
        "add.f16x2 %r1, %r2, 0x3c003c00;",
        "setp.eq.f32 %p1, %r1, 0;",
        "selp.f32 %r1, %r2, 1, %p1;",
        "cvt.rn.f16.f32 %h1, 1;",
    ] {
        assert!(!loads(instruction), "{instruction}");
    }
}

#[test]
fn a_form_that_came_after_the_text_s_target_is_refused_by_name() {
    for (instruction, least, before) in [
        ("add.bf16 %h1, %h2, %h3;", "sm_90", "sm_89"),
        ("max.relu.s32 %r1, %r2, %r3;", "sm_90", "sm_80"),
        ("add.u16x2 %r1, %r2, %r3;", "sm_90", "sm_80"),
        ("cvt.rn.satfinite.e4m3x2.f32 %h1, %r2, %r3;", "sm_89", "sm_86"),
        ("min.xorsign.abs.f32 %r1, %r2, %r3;", "sm_86", "sm_80"),
        ("fma.rn.bf16 %h1, %h2, %h3, %h4;", "sm_80", "sm_75"),
        ("cvt.rn.bf16x2.f32 %r1, %r2, %r3;", "sm_80", "sm_75"),
        ("tanh.approx.f16 %h1, %h2;", "sm_75", "sm_72"),
    ] {
        assert!(load(instruction, least).is_ok(), "{instruction} for {least}");
        let error = load(instruction, before).unwrap_err();
        assert!(error.message.contains(least), "{error}");
    }
}
