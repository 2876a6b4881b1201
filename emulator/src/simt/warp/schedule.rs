//! The schedule of a warp: chooses the group that runs next.
//!
//! Two kinds of turns alternate. In the first, the deepest group with the lowest position runs, so that the others wait
//! where paths join. In the second, one lane runs, wherever it is, together with the lanes of its group. A turn ends
//! after a number of loop iterations or when its lanes go to sleep; a lane's turn also ends when that lane waits or
//! exits. In each round, every lane that can continue runs once. So all of them progress, whatever the others spin on.

use super::group::{Group, Wait};
use super::turns::TURNS_OF_GROUP;

/// The current turn, and the turns of this round.
#[derive(Debug)]
pub struct Schedule {
    /// The lane whose turn it is; `None` in a turn of the lowest group.
    lane: Option<u32>,
    /// Mask of the lanes that had a turn of their own in this round.
    served: u32,
    /// Loop iterations left in the turn.
    pub left: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { lane: None, served: 0, left: TURNS_OF_GROUP }
    }
}

impl Schedule {
    /// Ends a lane's turn, because all lanes are in one group.
    pub fn together(&mut self) {
        self.lane = None;
    }

    /// Returns the group to run, if one can continue.
    pub fn choose(&mut self, groups: &[Group]) -> Option<usize> {
        if let [group] = groups {
            return (group.wait == Wait::None).then_some(0);
        }
        let ready = || groups.iter().enumerate().filter(|(_, group)| group.wait == Wait::None);
        if let Some(lane) = self.lane {
            if let Some((index, _)) = ready().find(|(_, group)| group.mask >> lane & 1 != 0) {
                return Some(index);
            }
            self.lane = None;
        }
        ready().min_by_key(|(_, group)| (u32::MAX - group.depth, group.pc)).map(|(index, _)| index)
    }

    /// Ends the turn of the lanes in `ran`.
    pub fn pass(&mut self, ran: u32, groups: &[Group]) {
        self.left = TURNS_OF_GROUP;
        self.lane = match self.lane {
            Some(_) => None,
            None => self.serve(ran, groups),
        };
    }

    /// Chooses the lane whose turn follows that of the lowest group, which has just run.
    fn serve(&mut self, ran: u32, groups: &[Group]) -> Option<u32> {
        let ready = || groups.iter().filter(|group| group.wait == Wait::None).map(|group| group.mask & !ran);
        let lanes = ready().fold(0, |all, lanes| all | lanes);
        if lanes & !self.served == 0 {
            self.served = 0;
        }
        let lane = (lanes != 0).then(|| (lanes & !self.served).trailing_zeros())?;
        self.served |= ready().find(|lanes| lanes >> lane & 1 != 0).unwrap_or(0);
        Some(lane)
    }
}

#[cfg(test)]
mod tests;
