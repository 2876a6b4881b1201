//! Register slots: lets registers of a function share a slot if they are never live at the same time.
//!
//! Lowering gives every named register its own slot; the code is rewritten here. Registers keep their own slots if
//! something other than the code writes them: constants, special registers, and the parameters and results of calls.

use super::flow::Flow;
use super::layout::{Numbers, PLANE_BYTES};
use super::liveness::{Effect, Mention, Span, spans};
use super::slots::{Overfull, SlotAssignment, assign};
use crate::program::registers::Role;
use crate::program::{Constant, Function};

/// When registers share slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// In functions whose registers would take much memory otherwise.
    #[default]
    Large,
    Always,
    Never,
}

/// Bytes of registers from which on they share slots. In smaller functions sharing makes a kernel a few percent faster
/// at most, which about equals the additional time to load it.
const LARGE_BYTES: u32 = 128 << 10;

impl Reuse {
    /// Reports whether registers share slots in a frame of this size.
    pub fn applies(self, frame_bytes: u32) -> bool {
        match self {
            Reuse::Large => frame_bytes > LARGE_BYTES,
            Reuse::Always => true,
            Reuse::Never => false,
        }
    }
}

/// Moves the registers of `function` into a frame of at most `bytes_max` bytes. Instructions whose guard is `always`,
/// not inverted, run in all lanes that reach them.
pub fn share_slots(function: &mut Function, numbers: &Numbers, always: u32, bytes_max: u32) -> Result<(), Overfull> {
    let mut kept = vec![false; numbers.widths.len()];
    kept_slots(function, |slot| kept[numbers.of(*slot) as usize] = true);
    let mentions = mentions(function, numbers, &kept, always);
    let flow = Flow::of(&function.code, always);
    let mut spans = spans(&flow, &mentions, numbers.widths.len());
    let whole = Span { first: 0, last: function.code.len() as u32 - 1 };
    spans.iter_mut().zip(&kept).filter(|(_, kept)| **kept).for_each(|(span, _)| *span = whole);
    let SlotAssignment { of, planes } = assign(&spans, &numbers.widths, bytes_max / PLANE_BYTES)?;
    let place = |slot: &mut u32| *slot = of[numbers.of(*slot) as usize];
    kept_slots(function, place);
    for instruction in &mut function.code {
        instruction.registers(&mut |slot, _| place(slot));
    }
    function.frame_bytes = planes.len() as u32 * PLANE_BYTES;
    function.planes = planes;
    Ok(())
}

/// Visits the slots that something other than the code reads or writes.
fn kept_slots(function: &mut Function, mut visit: impl FnMut(&mut u32)) {
    for constant in &mut function.constants {
        match constant {
            Constant::Word(slot, _) | Constant::Double(slot, _) | Constant::Mask(slot, _) => visit(slot),
        }
    }
    function.uniforms.iter_mut().chain(&mut function.specials).for_each(|(slot, _)| visit(slot));
    function.locals.iter_mut().for_each(|(slot, _)| visit(slot));
    function.params.iter_mut().chain(&mut function.results).for_each(visit);
}

/// Returns the uses of the registers that may move.
fn mentions(function: &mut Function, numbers: &Numbers, kept: &[bool], always: u32) -> Vec<Mention> {
    let mut mentions = Vec::new();
    for (at, instruction) in function.code.iter_mut().enumerate() {
        let runs_always = (instruction.guard, instruction.invert) == (always, 0);
        instruction.registers(&mut |slot, role| {
            let register = numbers.of(*slot);
            if kept[register as usize] {
                return;
            }
            let effects: &[Effect] = match role {
                Role::Read => &[Effect::Read],
                Role::Write if runs_always => &[Effect::Write],
                Role::Write => &[Effect::WriteSome],
                Role::Update => &[Effect::Read, Effect::WriteSome],
            };
            mentions.extend(effects.iter().map(|effect| Mention { register, at: at as u32, effect: *effect }));
        });
    }
    mentions
}
