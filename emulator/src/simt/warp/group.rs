//! Groups: the lanes of a warp that are at one instruction.

/// A group of lanes.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub frame: usize,
    pub depth: u32,
    pub pc: u32,
    pub mask: u32,
    pub wait: Wait,
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    None,
    /// For the lanes of a mask to reach this instruction.
    Lanes(u32),
    /// For the lanes of a mask to reach any `bar.warp.sync`.
    WarpBarrier(u32),
    /// At the block's barrier with this number.
    Barrier(u32),
    /// At the cluster's barrier.
    Cluster,
}

/// What became of the group that ran.
pub enum Step {
    /// It goes back to the other groups.
    Kept(Group),
    /// Its lanes are in other groups now, or have ended.
    Gone,
    /// Its turn is over.
    Tired(Group),
}
