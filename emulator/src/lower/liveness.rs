//! Liveness of registers: where in the code each register may have a value that is still read later.
//!
//! The lanes of a warp may be at different places, but every instruction writes only the lanes that run it (a matrix
//! instruction runs in all of them, at one place). So a register is live at a place if a lane there may still read it
//! on its own path; other lanes do not affect that lane's part of the register.
//!
//! An instruction under a guard writes only some of the lanes that reach it; in the others the old value stays live. A
//! register that is read before any write has an arbitrary value, as in PTX.

use super::flow::Flow;

/// The effect of an instruction on a register, in the lanes that reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Read,
    /// Writes it in all lanes.
    Write,
    /// Writes it in some lanes.
    WriteSome,
}

/// A use of a register by an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Mention {
    pub register: u32,
    pub at: u32,
    pub effect: Effect,
}

/// The range of instructions, both ends included, over which a register has to keep its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: u32,
    pub last: u32,
}

impl Span {
    /// The span of a register that no instruction names.
    pub const NOWHERE: Span = Span { first: u32::MAX, last: 0 };

    fn include(&mut self, at: u32) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }
}

/// Maximum steps of the search from block to block, per instruction of the function. Registers that are left then count
/// as live everywhere, which keeps loading fast for any function.
const STEPS_PER_INSTRUCTION: u64 = 64;

/// Returns the span of every register. `mentions` are in the order of the code, reads before writes within an
/// instruction.
pub fn spans(flow: &Flow, mentions: &[Mention], registers: usize) -> Vec<Span> {
    let length = flow.range(flow.blocks() as u32 - 1).end;
    let (mut spans, touches) = touches(flow, mentions, registers);
    let mut search = Search::new(flow, STEPS_PER_INSTRUCTION * u64::from(length));
    for touches in touches.chunk_by(|one, other| one.register == other.register) {
        // A register that every block writes before reading is not live between blocks.
        if touches.iter().any(|touch| touch.needs) {
            let span = &mut spans[touches[0].register as usize];
            *span = search.span(touches, *span).unwrap_or(Span { first: 0, last: length - 1 });
        }
    }
    spans
}

/// The effect of a block on a register.
#[derive(Clone, Copy, Debug)]
struct Touch {
    register: u32,
    block: u32,
    /// The block reads the value from before the block.
    needs: bool,
    /// The block writes it in some lanes at least.
    writes: bool,
    /// The block writes it in all lanes that pass through.
    replaces: bool,
}

/// Returns the range of instructions that name each register, and the effects on it by block, sorted by register.
fn touches(flow: &Flow, mentions: &[Mention], registers: usize) -> (Vec<Span>, Vec<Touch>) {
    let mut spans = vec![Span::NOWHERE; registers];
    let mut touches: Vec<Touch> = Vec::new();
    let mut last = vec![usize::MAX; registers];
    let mut block = 0;
    for mention in mentions {
        while flow.range(block).end <= mention.at {
            block += 1;
        }
        let register = mention.register as usize;
        spans[register].include(mention.at);
        if touches.get(last[register]).is_none_or(|touch| touch.block != block) {
            last[register] = touches.len();
            let register = mention.register;
            touches.push(Touch { register, block, needs: false, writes: false, replaces: false });
        }
        let touch = &mut touches[last[register]];
        match mention.effect {
            Effect::Read => touch.needs |= !touch.replaces,
            Effect::Write => (touch.writes, touch.replaces) = (true, true),
            Effect::WriteSome => touch.writes = true,
        }
    }
    // Registers are numbered about in the order of the code, so most are sorted already.
    touches.sort_by_key(|touch| touch.register);
    (spans, touches)
}

/// A search that handles one register after the other. Blocks are marked with the number of the register plus one, so
/// that marks need not be cleared.
struct Search<'a> {
    flow: &'a Flow,
    steps_left: u64,
    /// Mark: the register is live at the start of the block.
    live: Vec<u32>,
    /// Mark: the block writes the register in all lanes.
    replaced: Vec<u32>,
    /// Mark: the register may have been written at the end of the block.
    written: Vec<u32>,
    next: Vec<u32>,
}

impl<'a> Search<'a> {
    fn new(flow: &'a Flow, steps_left: u64) -> Search<'a> {
        let marks = || vec![0; flow.blocks()];
        Search { flow, steps_left, live: marks(), replaced: marks(), written: marks(), next: Vec::new() }
    }

    /// Returns the span of a register that instructions name in `named`; `None` if the search takes too long.
    fn span(&mut self, touches: &[Touch], named: Span) -> Option<Span> {
        let mark = touches[0].register + 1;
        let live = self.back(touches, mark, named)?;
        // If it is live at the function's start, some path reads it before a write. It has no value before the first
        // write, so only places after a write count.
        if self.live[0] == mark { self.ahead(touches, mark, named) } else { Some(live) }
    }

    /// Searches backwards, from reads to writes.
    fn back(&mut self, touches: &[Touch], mark: u32, mut span: Span) -> Option<Span> {
        self.next.clear();
        for touch in touches {
            if touch.replaces {
                self.replaced[touch.block as usize] = mark;
            }
            if touch.needs {
                self.live[touch.block as usize] = mark;
                self.next.push(touch.block);
            }
        }
        while let Some(block) = self.next.pop() {
            span.include(self.flow.range(block).start);
            for before in self.flow.before(block) {
                self.steps_left = self.steps_left.checked_sub(1)?;
                span.include(self.flow.range(*before).end - 1);
                let before_index = *before as usize;
                if self.replaced[before_index] != mark && self.live[before_index] != mark {
                    self.live[before_index] = mark;
                    self.next.push(*before);
                }
            }
        }
        Some(span)
    }

    /// Searches forwards, from writes to where the register is live.
    fn ahead(&mut self, touches: &[Touch], mark: u32, mut span: Span) -> Option<Span> {
        self.next.clear();
        for touch in touches.iter().filter(|touch| touch.writes) {
            self.written[touch.block as usize] = mark;
            self.next.push(touch.block);
        }
        while let Some(block) = self.next.pop() {
            for after in self.flow.after(block) {
                self.steps_left = self.steps_left.checked_sub(1)?;
                if self.live[*after as usize] != mark {
                    continue;
                }
                span.include(self.flow.range(block).end - 1);
                span.include(self.flow.range(*after).start);
                if self.written[*after as usize] != mark {
                    self.written[*after as usize] = mark;
                    self.next.push(*after);
                }
            }
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests;
