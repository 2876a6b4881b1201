//! Which group of a warp runs next.
//!
//! Turns of two kinds alternate. In the one, the deepest and lowest group runs, so that the others wait where paths
//! join. In the other, one lane runs, wherever it stands, with the lanes beside it. A turn ends after so many turns of
//! loops, when its lanes go to sleep, and a lane's turn also when that lane waits or exits. In each round, every lane
//! that can go on runs once. So each of them goes on, whatever the others spin on.

use super::{Group, Wait};

/// Turns of loops after which another group of the same warp gets its turn.
pub const TURNS_OF_GROUP: u32 = 256;

/// Whose turn it is, and whose it was.
#[derive(Debug)]
pub struct Schedule {
    /// The lane whose turn it is; none in a turn of the lowest group.
    lane: Option<u32>,
    /// Lanes that had a turn of their own in this round, as bits.
    served: u32,
    /// Turns of loops that are left.
    pub left: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { lane: None, served: 0, left: TURNS_OF_GROUP }
    }
}

impl Schedule {
    /// All lanes stand together: no single one has a turn.
    pub fn together(&mut self) {
        self.lane = None;
    }

    /// The group to run, if one can go on.
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

    /// The turn of the lanes in `ran` is over.
    pub fn pass(&mut self, ran: u32, groups: &[Group]) {
        self.left = TURNS_OF_GROUP;
        self.lane = match self.lane {
            Some(_) => None,
            None => self.serve(ran, groups),
        };
    }

    /// The lane whose turn comes after that of the lowest group, which ran just now.
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
