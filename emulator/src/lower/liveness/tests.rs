//! Tests on small functions, which are lists of what their instructions do.

use super::{Effect, Mention, Span, spans};
use crate::lower::flow::{Flow, Turn};

/// Returns the spans of the registers. An instruction is a text such as `"r0 r1 w2"`: it reads, writes, or with `s`
/// writes in some lanes.
fn live(code: &[&str], turns: &[Turn], registers: usize) -> Vec<(u32, u32)> {
    let mut mentions = Vec::new();
    for (at, words) in code.iter().enumerate() {
        for word in words.split_whitespace() {
            let effect = match &word[..1] {
                "r" => Effect::Read,
                "w" => Effect::Write,
                _ => Effect::WriteSome,
            };
            mentions.push(Mention { register: word[1..].parse().unwrap(), at: at as u32, effect });
        }
    }
    let flow = Flow::new(code.len() as u32, turns);
    let pair = |span: Span| (span.first, span.last);
    spans(&flow, &mentions, registers).into_iter().map(pair).collect()
}

const NOWHERE: (u32, u32) = (u32::MAX, 0);

fn jump(at: u32, targets: &[u32]) -> Turn<'_> {
    Turn { at, targets, passes: false }
}

fn branch(at: u32, targets: &[u32]) -> Turn<'_> {
    Turn { at, targets, passes: true }
}

#[test]
fn a_register_is_live_from_its_first_instruction_to_its_last() {
    assert_eq!(live(&["w0", "r0 w1", "r0", "r1 w0", "r0"], &[], 3), [(0, 4), (1, 3), NOWHERE]);
}

#[test]
fn a_result_that_nothing_reads_still_takes_its_own_instruction() {
    assert_eq!(live(&["w0", "w1", "r0"], &[], 2), [(0, 2), (1, 1)]);
}

#[test]
fn what_a_loop_reads_again_is_live_to_its_end() {
    // 1 is set before the loop and read at its start, 2 is new in each iteration, 3 carries a value between iterations.
    let code = ["w1 w3", "r1 w2", "r2", "r3 w3", "", "r3"];
    assert_eq!(live(&code, &[branch(4, &[1])], 4), [NOWHERE, (0, 4), (1, 2), (0, 5)]);
}

#[test]
fn a_value_of_the_turn_before_is_live_around_the_loop() {
    // In an iteration, 0 is read before it is written: the write at 3 is for the next iteration.
    let code = ["w0", "", "r0", "w0", "", ""];
    assert_eq!(live(&code, &[branch(4, &[1])], 1), [(0, 4)]);
}

#[test]
fn what_one_way_reads_is_live_up_to_the_branch_and_where_lanes_of_the_other_way_pass() {
    // 0 is read only behind the jump, 1 only by lanes that do not jump.
    let code = ["w0 w1", "", "r1", "", "r0", ""];
    assert_eq!(live(&code, &[branch(1, &[4]), jump(3, &[5])], 2), [(0, 4), (0, 2)]);
}

#[test]
fn both_ways_of_a_branch_may_write_what_is_read_behind() {
    let code = ["w1", "r1", "w0", "", "w0", "r0"];
    assert_eq!(live(&code, &[branch(1, &[4]), jump(3, &[5])], 2), [(2, 5), (0, 1)]);
}

#[test]
fn a_write_under_a_guard_keeps_the_value_before() {
    // For the lanes that do not write at 2, the value of 0 is that of the previous iteration.
    let code = ["w0", "", "s0", "r0", "", ""];
    assert_eq!(live(&code, &[branch(4, &[1])], 1), [(0, 4)]);
    let code = ["w0", "", "w0", "r0", "", ""];
    assert_eq!(live(&code, &[branch(4, &[1])], 1), [(0, 3)]);
}

#[test]
fn what_no_write_comes_before_holds_nothing() {
    // At the start of the function 0 has no value that a lane would read at 3.
    assert_eq!(live(&["w1", "r1", "s0", "r0", "r1"], &[], 2), [(2, 3), (0, 4)]);
    // In a loop it has one from the write on, and back to it.
    let code = ["", "", "s0", "r0", "", "", ""];
    assert_eq!(live(&code, &[branch(5, &[1])], 1), [(1, 5)]);
}

#[test]
fn a_write_on_one_way_alone_does_not_end_the_other_ways() {
    let code = ["w0", "", "w0", "r0"];
    assert_eq!(live(&code, &[branch(1, &[3])], 1), [(0, 3)]);
}

#[test]
fn a_function_of_many_branches_keeps_what_it_can_not_look_at() {
    // Every register is live in every block, which takes more steps than are allowed.
    let (blocks, registers) = (400, 400);
    let all = |letter: &str| (0..registers).map(|one| format!("{letter}{one} ")).collect::<String>();
    let mut code = vec![String::new(); blocks];
    (code[0], code[blocks - 1]) = (all("w"), all("r"));
    let code: Vec<&str> = code.iter().map(String::as_str).collect();
    let targets = [blocks as u32 - 1];
    let turns: Vec<Turn> = (0..blocks as u32 - 1).map(|at| branch(at, &targets)).collect();
    assert_eq!(live(&code, &turns, registers), vec![(0, blocks as u32 - 1); registers]);
}
