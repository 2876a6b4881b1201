//! The architecture that each form of an instruction needs (PTX ISA, "Target ISA Notes"). A text for an older target
//! that uses such a form would not assemble, so it is refused.

use super::super::emitter::{Emitter, Lowered};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::Instruction;

impl Emitter<'_, '_> {
    /// Checks that the text's `.target` has the instruction.
    pub fn check_target(&self, instruction: &Instruction) -> Lowered<()> {
        self.check_least(least_target(instruction), instruction.text)
    }

    /// Checks that the text's `.target` has the special register.
    pub fn check_special(&self, name: &str) -> Lowered<()> {
        let least = match name {
            "%clusterid"
            | "%nclusterid"
            | "%cluster_ctaid"
            | "%cluster_nctaid"
            | "%cluster_ctarank"
            | "%cluster_nctarank"
            | "%is_explicit_cluster"
            | "%aggr_smem_size" => 90,
            name if name.starts_with("%reserved_smem_offset_") => 80,
            _ => 0,
        };
        self.check_least(least, name)
    }

    fn check_least(&self, least: u32, text: &str) -> Lowered<()> {
        if least <= self.symbols.target {
            return Ok(());
        }
        let message = format!("`{text}` needs sm_{least}, but the text targets sm_{}", self.symbols.target);
        Err(LoadError::new(self.line, LoadErrorKind::UnsupportedOpcode, message))
    }
}

/// Returns the oldest architecture that has the form, as the number in `sm_80`; 0 if all supported ones have it.
fn least_target(instruction: &Instruction) -> u32 {
    let modifiers = instruction.modifiers.as_slice();
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    let brain = has(&["bf16", "bf16x2"]);
    let half = has(&["f16", "f16x2"]);
    let least = match instruction.mnemonic {
        "add" | "sub" | "mul" | "tanh" | "ex2" | "set" | "setp" if brain => 90,
        "add" | "min" | "max" if has(&["u16x2", "s16x2"]) => 90,
        "tanh" | "ex2" if half => 75,
        "tanh" => 75,
        "min" | "max" if has(&["relu"]) => 90,
        "min" | "max" if has(&["xorsign"]) => 86,
        "min" | "max" if brain || half || has(&["NaN"]) => 80,
        "fma" if brain || has(&["relu"]) => 80,
        "neg" | "abs" if brain => 80,
        "cvt" => least_conversion(modifiers, has(&["f32"])),
        "elect" | "mapa" | "getctarank" | "griddepcontrol" | "stmatrix" => 90,
        "mbarrier" => least_barrier(modifiers, instruction.operands.len()),
        "barrier" if has(&["cluster"]) => 90,
        "fence" if has(&["mbarrier_init", "async", "acquire", "release"]) => 90,
        "cp" if has(&["bulk"]) => 90,
        "st" | "red" if has(&["async"]) => 90,
        "cp" | "redux" | "createpolicy" | "discard" | "applypriority" => 80,
        "prefetch" if has(&["L2::evict_last", "L2::evict_normal"]) => 80,
        "atom" | "red" => least_atomic(modifiers),
        "ldmatrix" | "movmatrix" => 75,
        "mma" => least_multiplication(modifiers),
        "wmma" => least_tile(modifiers),
        _ => 0,
    };
    least.max(least_of_any(modifiers))
}

/// Returns the architecture that modifiers need on any instruction: those for clusters and L2 cache hints.
fn least_of_any(modifiers: &[&str]) -> u32 {
    let of = |modifier: &&str| match *modifier {
        "cluster" | "shared::cluster" | "sync_restrict::shared::cta" | "sync_restrict::shared::cluster" => 90,
        "L2::cache_hint" | "L2::256B" => 80,
        "L2::64B" | "L2::128B" => 75,
        _ => 0,
    };
    modifiers.iter().map(of).max().unwrap_or(0)
}

fn least_conversion(modifiers: &[&str], single: bool) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    if has(&["pack"]) {
        if has(&["u2", "u4", "s2", "s4"]) { 75 } else { 72 }
    } else if has(&["e4m3x2", "e5m2x2"]) {
        89
    } else if has(&["bf16"]) && !single || has(&["tf32"]) && has(&["rn", "rz"]) {
        90
    } else if has(&["bf16", "tf32", "bf16x2", "f16x2", "relu", "satfinite"]) {
        80
    } else {
        0
    }
}

/// Returns the architecture that an `mbarrier` operation needs: sm_80, or a later one for transactions and arrivals
/// with a count.
fn least_barrier(modifiers: &[&str], operands: usize) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    let counts = has(&["arrive", "arrive_drop"]) && !has(&["noComplete"]) && operands > 2;
    if counts || has(&["try_wait", "expect_tx", "complete_tx", "relaxed"]) { 90 } else { 80 }
}

fn least_atomic(modifiers: &[&str]) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    match () {
        () if has(&["b128", "bf16", "bf16x2", "v2", "v4", "v8"]) => 90,
        () if has(&["b16", "f16"]) => 70,
        () => 0,
    }
}

fn least_multiplication(modifiers: &[&str]) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    match () {
        () if has(&["f64"]) && !has(&["m8n8k4"]) => 90,
        () if has(&["e4m3", "e5m2"]) => 89,
        () if has(&["sp", "bf16", "tf32", "f64", "and"]) => 80,
        () if has(&["m8n8k4"]) => 70,
        () if has(&["m8n8k16", "m8n8k32", "m8n8k128"]) || has(&["m16n8k8"]) && has(&["f16"]) => 75,
        () => 80,
    }
}

fn least_tile(modifiers: &[&str]) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    match () {
        () if has(&["bf16", "tf32", "f64", "and"]) => 80,
        () if has(&["b1", "s4", "u4"]) => 75,
        () if has(&["s8", "u8"]) => 72,
        () => 70,
    }
}
