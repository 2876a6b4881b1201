//! A model of the schedule: for any behaviour of the lanes, a lane that can continue runs within a bounded number of
//! turns.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::Schedule;
use crate::simt::warp::group::{Group, Wait};

/// A lane between two turns: its place, and whether it waits.
type Lane = (u32, bool);

/// Returns the groups of lanes at one place.
fn groups(lanes: &[Lane]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (lane, (pc, waits)) in lanes.iter().enumerate() {
        let wait = if *waits { Wait::Barrier(0) } else { Wait::None };
        match groups.iter_mut().find(|group| group.pc == *pc && group.wait == wait) {
            Some(group) => group.mask |= 1 << lane,
            None => groups.push(Group { frame: 0, depth: 0, pc: *pc, mask: 1 << lane, wait }),
        }
    }
    groups
}

/// Returns the number of turns within which a ready lane has to run: two rounds, in which turns of lanes and of the
/// lowest group alternate.
fn turns_max(lanes: usize) -> u32 {
    2 * (2 * lanes as u32 - 1) + 2
}

/// Runs one turn; returns the lanes that ran.
fn turn(schedule: &mut Schedule, lanes: &[Lane]) -> u32 {
    let groups = groups(lanes);
    let chosen = schedule.choose(&groups);
    assert_eq!(chosen.is_none(), lanes.iter().all(|(_, waits)| *waits), "a lane that doesn't wait runs");
    chosen.map_or(0, |index| groups[index].mask)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_lane_that_can_go_on_runs_whatever_the_others_do(
        turns in prop::collection::vec((prop::collection::vec((0u32..6, prop::bool::weighted(0.2)), 32), any::<u32>(), any::<bool>()), 1..400),
        hermit in 0usize..32,
    ) {
        let mut schedule = Schedule::default();
        let mut lanes: Vec<Lane> = vec![(0, false); 32];
        let mut passed = 0;
        for (next, awake, ends) in turns {
            // One lane is at a place where it loses against all others, and can always continue.
            lanes[hermit] = (9, false);
            let ran = turn(&mut schedule, &lanes);
            if ran >> hermit & 1 != 0 {
                passed = 0;
            }
            for (lane, next) in next.into_iter().enumerate() {
                if ran >> lane & 1 != 0 {
                    lanes[lane] = next;
                } else if awake >> lane & 1 != 0 {
                    lanes[lane].1 = false;
                }
            }
            if ends {
                schedule.pass(ran, &groups(&lanes));
                passed += u32::from(ran >> hermit & 1 == 0);
            }
            prop_assert!(passed <= turns_max(32), "{passed} turns without lane {hermit}");
        }
    }
}

/// A state of the search: the lanes, the schedule, and for each ready lane the number of turns since it ran.
type State = (Vec<Lane>, (Option<u32>, u32), Vec<u32>);

const LANES: usize = 3;
const PLACES: u32 = 2;

/// Searches every behaviour of three lanes in two places.
#[test]
fn no_behaviour_of_three_lanes_starves_one() {
    let start: State = (vec![(0, false); LANES], (None, 0), vec![0; LANES]);
    let (mut seen, mut left) = (HashSet::from([start.clone()]), vec![start]);
    let mut most = 0;
    while let Some((lanes, (lane, served), passed)) = left.pop() {
        let mut schedule = Schedule { lane, served, left: 1 };
        let ran = turn(&mut schedule, &lanes);
        for (after, ends) in behaviours(&lanes, ran) {
            let mut schedule = Schedule { lane: schedule.lane, served: schedule.served, left: 1 };
            let mut passed = passed.clone();
            for (at, count) in passed.iter_mut().enumerate() {
                let rests = ran >> at & 1 != 0 || lanes[at].1;
                *count = if rests { 0 } else { *count + u32::from(ends) };
            }
            most = most.max(passed.iter().copied().max().unwrap_or(0));
            assert!(most <= turns_max(LANES), "{most} turns without a lane");
            if ends {
                schedule.pass(ran, &groups(&after));
            }
            let next = (after, (schedule.lane, schedule.served), passed);
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    let by_turn = seen.iter().fold(HashMap::new(), |mut count, (_, (lane, _), _)| {
        *count.entry(*lane).or_insert(0u32) += 1;
        count
    });
    assert!(by_turn.len() == LANES + 1, "each lane has turns: {by_turn:?}");
    assert!(most > 0, "a lane has to wait for its turn");
}

/// Returns what lanes can do in a turn: those that ran go anywhere and may wait, and waiting ones may be released. The
/// turn may end or continue.
fn behaviours(lanes: &[Lane], ran: u32) -> Vec<(Vec<Lane>, bool)> {
    let mut all = vec![Vec::new()];
    for (at, lane) in lanes.iter().enumerate() {
        let choices: Vec<Lane> = match (ran >> at & 1 != 0, lane.1) {
            (true, _) => (0..PLACES).flat_map(|pc| [(pc, false), (pc, true)]).collect(),
            (false, true) => vec![*lane, (lane.0, false)],
            (false, false) => vec![*lane],
        };
        let longer = |known: &Vec<Lane>| choices.iter().map(|choice| [known.as_slice(), &[*choice]].concat()).collect();
        all = all.iter().flat_map(|known| -> Vec<Vec<Lane>> { longer(known) }).collect();
    }
    all.into_iter().flat_map(|lanes| [(lanes.clone(), true), (lanes, false)]).collect()
}
