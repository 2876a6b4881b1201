//! The control flow of a function: basic blocks, and the edges between them.

use std::ops::Range;

use crate::program::{Instruction, Op};

/// An instruction that may continue elsewhere than at the next one.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    pub at: u32,
    pub targets: &'a [u32],
    /// True if lanes may also continue at the next instruction.
    pub passes: bool,
}

/// The basic blocks of a function, numbered in the order of the code.
#[derive(Debug)]
pub struct Flow {
    /// The first instruction of each block, and at the end the number of instructions.
    starts: Vec<u32>,
    before: Edges,
    after: Edges,
}

impl Flow {
    /// Returns the flow of lowered code, whose jumps contain places. Instructions whose guard is `always`, not
    /// inverted, run in all lanes that reach them.
    pub fn of(code: &[Instruction], always: u32) -> Flow {
        let turns = code.iter().enumerate().filter_map(|(at, instruction)| {
            let (targets, ends) = match &instruction.op {
                Op::Jump(target) => (std::slice::from_ref(target), true),
                Op::Branch { target, .. } => (std::slice::from_ref(target), false),
                Op::JumpTable { targets, .. } => (&targets[..], true),
                Op::Exit | Op::Return | Op::Trap | Op::Breakpoint => (&[][..], true),
                _ => return None,
            };
            let passes = !ends || (instruction.guard, instruction.invert) != (always, 0);
            Some(Turn { at: at as u32, targets, passes })
        });
        Flow::new(code.len() as u32, &turns.collect::<Vec<_>>())
    }

    /// Returns the flow of `length` instructions, with `turns` in their order.
    pub fn new(length: u32, turns: &[Turn]) -> Flow {
        let mut leads = vec![false; length as usize];
        let leaders = turns.iter().flat_map(|turn| turn.targets.iter().copied().chain([turn.at + 1]));
        for place in leaders.chain([0]).filter(|place| *place < length) {
            leads[place as usize] = true;
        }
        let mut starts: Vec<u32> = (0..length).filter(|place| leads[*place as usize]).collect();
        starts.push(length);
        let edges = edges(&starts, turns);
        let blocks = starts.len() - 1;
        let after = Edges::new(blocks, edges.iter().copied());
        let before = Edges::new(blocks, edges.iter().map(|(from, to)| (*to, *from)));
        Flow { starts, before, after }
    }

    pub fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the instructions of a block; there is at least one.
    pub fn range(&self, block: u32) -> Range<u32> {
        self.starts[block as usize]..self.starts[block as usize + 1]
    }

    /// Returns the predecessors of a block.
    pub fn before(&self, block: u32) -> &[u32] {
        self.before.of(block)
    }

    /// Returns the successors of a block.
    pub fn after(&self, block: u32) -> &[u32] {
        self.after.of(block)
    }
}

/// Returns the edges between blocks, each once.
fn edges(starts: &[u32], turns: &[Turn]) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    let mut turns = turns.iter().peekable();
    for (block, bounds) in starts.windows(2).enumerate() {
        let turn = turns.next_if(|turn| turn.at < bounds[1]);
        let targets = turn.map_or(&[][..], |turn| turn.targets);
        let block_of = |target: &u32| starts.partition_point(|start| start <= target) as u32 - 1;
        let mut next: Vec<u32> = targets.iter().map(block_of).collect();
        let is_last = block + 2 == starts.len();
        if !is_last && turn.is_none_or(|turn| turn.passes) {
            next.push(block as u32 + 1);
        }
        // A target list may name one label thousands of times.
        next.sort_unstable();
        next.dedup();
        edges.extend(next.into_iter().map(|next| (block as u32, next)));
    }
    edges
}

/// Edges, grouped by the block at one of their ends.
#[derive(Debug)]
struct Edges {
    starts: Vec<u32>,
    ends: Vec<u32>,
}

impl Edges {
    fn new(blocks: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Edges {
        let mut starts = vec![0; blocks + 1];
        edges.clone().for_each(|(from, _)| starts[from as usize + 1] += 1);
        for block in 0..blocks {
            starts[block + 1] += starts[block];
        }
        let mut next = starts.clone();
        let mut ends = vec![0; starts[blocks] as usize];
        for (from, to) in edges {
            ends[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Edges { starts, ends }
    }

    fn of(&self, block: u32) -> &[u32] {
        &self.ends[self.starts[block as usize] as usize..self.starts[block as usize + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Turn};

    fn after(length: u32, turns: &[Turn]) -> Vec<(std::ops::Range<u32>, Vec<u32>)> {
        let flow = Flow::new(length, turns);
        (0..flow.blocks() as u32).map(|block| (flow.range(block), flow.after(block).to_vec())).collect()
    }

    #[test]
    fn a_branch_has_two_ways_that_join() {
        let turns = [
            Turn { at: 1, targets: &[4], passes: true },
            Turn { at: 3, targets: &[5], passes: false },
            Turn { at: 6, targets: &[], passes: false },
        ];
        assert_eq!(after(7, &turns), [(0..2, vec![1, 2]), (2..4, vec![3]), (4..5, vec![3]), (5..7, vec![])]);
        let flow = Flow::new(7, &turns);
        assert_eq!(flow.before(3), [1, 2]);
    }

    #[test]
    fn a_loop_leads_back() {
        let turns = [Turn { at: 2, targets: &[1], passes: true }, Turn { at: 3, targets: &[], passes: false }];
        assert_eq!(after(4, &turns), [(0..1, vec![1]), (1..3, vec![1, 2]), (3..4, vec![])]);
    }

    #[test]
    fn a_table_names_each_block_once() {
        let turns = [Turn { at: 0, targets: &[2, 1, 2, 2], passes: true }];
        assert_eq!(after(3, &turns), [(0..1, vec![1, 2]), (1..2, vec![2]), (2..3, vec![])]);
    }
}
