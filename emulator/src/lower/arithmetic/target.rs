//! Which forms of the computing instructions came with which architecture. A text for an older one that has them would
//! not assemble; on an older device it could not have been loaded.

use super::super::emitter::{Emitter, Lowered};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::Instruction;

impl Emitter<'_, '_> {
    /// Checks that the text's own `.target` has the instruction.
    pub fn check_target(&self, instruction: &Instruction) -> Lowered<()> {
        let least = least_target(instruction.mnemonic, &instruction.modifiers);
        if least <= self.symbols.target {
            return Ok(());
        }
        let message =
            format!("`{}` needs sm_{least}, but the text targets sm_{}", instruction.text, self.symbols.target);
        Err(LoadError::new(instruction.line, LoadErrorKind::UnsupportedOpcode, message))
    }
}

/// The least architecture that has the form, as the number in `sm_80`; 0 where all have it that still assemble.
fn least_target(name: &str, modifiers: &[&str]) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    let brain = has(&["bf16", "bf16x2"]);
    let half = has(&["f16", "f16x2"]);
    match name {
        "add" | "sub" | "mul" | "tanh" | "ex2" | "set" | "setp" if brain => 90,
        "add" | "min" | "max" if has(&["u16x2", "s16x2"]) => 90,
        "tanh" | "ex2" if half => 75,
        "min" | "max" if has(&["relu"]) => 90,
        "min" | "max" if has(&["xorsign"]) => 86,
        "min" | "max" if brain || half || has(&["NaN"]) => 80,
        "fma" if brain || has(&["relu"]) => 80,
        "neg" | "abs" if brain => 80,
        "cvt" => least_conversion(modifiers, has(&["f32"])),
        _ => 0,
    }
}

fn least_conversion(modifiers: &[&str], single: bool) -> u32 {
    let has = |wanted: &[&str]| modifiers.iter().any(|modifier| wanted.contains(modifier));
    if has(&["e4m3x2", "e5m2x2"]) {
        89
    } else if has(&["bf16"]) && !single || has(&["tf32"]) && has(&["rn", "rz"]) {
        90
    } else if has(&["bf16", "tf32", "bf16x2", "f16x2", "relu", "satfinite"]) {
        80
    } else {
        0
    }
}
