//! Where in the code each register may hold a value that is still to be read.
//!
//! Lanes of a warp stand at different places at one time, but every instruction writes only the lanes that run it (one on
//! matrices runs in all of them, at one place). So a register counts as live where a lane may still read it on its own way
//! on; what other lanes do meanwhile does not touch that lane's part of it.
//!
//! An instruction under a guard writes some of the lanes that come to it: for the others, the value before lives on. A
//! register that is read where no write can have come before holds anything, as in PTX.

use super::flow::Flow;

/// What an instruction does to a register in the lanes that come to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Read,
    /// Writes it in all of them.
    Write,
    /// Writes it in some of them.
    WriteSome,
}

/// An instruction names a register.
#[derive(Clone, Copy, Debug)]
pub struct Mention {
    pub register: u32,
    pub at: u32,
    pub effect: Effect,
}

/// Instructions from the first to the last that a register has to keep its value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: u32,
    pub last: u32,
}

impl Span {
    /// Of a register that no instruction names.
    pub const NOWHERE: Span = Span { first: u32::MAX, last: 0 };

    fn include(&mut self, at: u32) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }
}

/// Steps from block to block that the search takes for each instruction of the function. What is left then keeps its
/// value everywhere, so that loading stays fast whatever the function looks like.
const STEPS_PER_INSTRUCTION: u64 = 64;

/// The span of every register, where `mentions` are in the order of the code and in an instruction have reads first.
pub fn spans(flow: &Flow, mentions: &[Mention], registers: usize) -> Vec<Span> {
    let length = flow.range(flow.blocks() as u32 - 1).end;
    let (mut spans, touches) = touches(flow, mentions, registers);
    let mut search = Search::new(flow, STEPS_PER_INSTRUCTION * u64::from(length));
    for touches in touches.chunk_by(|one, other| one.register == other.register) {
        // What every block writes before it reads it is live in none but those.
        if touches.iter().any(|touch| touch.needs) {
            let span = &mut spans[touches[0].register as usize];
            *span = search.span(touches, *span).unwrap_or(Span { first: 0, last: length - 1 });
        }
    }
    spans
}

/// What one block does to one register.
#[derive(Clone, Copy, Debug)]
struct Touch {
    register: u32,
    block: u32,
    /// It reads what the register held before the block.
    needs: bool,
    /// It writes it, in some lanes at least.
    writes: bool,
    /// It writes it in all lanes that come through.
    replaces: bool,
}

/// The instructions that name each register, and by register and block what is done to it.
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
    // Registers were numbered about as they come: the sort finds most of them in order.
    touches.sort_by_key(|touch| touch.register);
    (spans, touches)
}

/// A search for one register after another. Marks of blocks are numbers of registers, plus one, so that nothing has to be
/// cleared.
struct Search<'a> {
    flow: &'a Flow,
    steps_left: u64,
    /// The register is live where the block begins.
    live: Vec<u32>,
    /// The block writes the register in all lanes.
    replaced: Vec<u32>,
    /// The register may have been written where the block ends.
    written: Vec<u32>,
    next: Vec<u32>,
}

impl<'a> Search<'a> {
    fn new(flow: &'a Flow, steps_left: u64) -> Search<'a> {
        let marks = || vec![0; flow.blocks()];
        Search { flow, steps_left, live: marks(), replaced: marks(), written: marks(), next: Vec::new() }
    }

    /// The span of a register that instructions name in `named`; `None` where finding it would take too long.
    fn span(&mut self, touches: &[Touch], named: Span) -> Option<Span> {
        let mark = touches[0].register + 1;
        let live = self.back(touches, mark, named)?;
        // Live where the function begins, it is read on some way that does not write it, and holds nothing before the
        // first write.
        if self.live[0] == mark { self.ahead(touches, mark, named) } else { Some(live) }
    }

    /// From the reads back to the writes.
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

    /// From the writes on, where the register is live.
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
