//! Turns: how many loop iterations a warp and its groups may run before others.

/// Loop iterations after which another group of the warp gets its turn.
pub const TURNS_OF_GROUP: u32 = 256;

/// Loop iterations between two checks of whether the launch has to end.
pub const FREE_TURNS_MAX: u32 = 32;

/// Loop iterations left for the warp and for the running group.
pub struct Turns {
    warp: u32,
    group: u32,
}

impl Turns {
    pub fn new(of_warp: u32, of_group: u32) -> Turns {
        Turns { warp: of_warp, group: of_group }
    }

    /// Returns the iterations left for the group.
    pub fn of_group(&self) -> u32 {
        self.group
    }

    /// Starts the turn of another group.
    pub fn renew(&mut self) {
        self.group = TURNS_OF_GROUP;
    }

    pub fn are_over(&self) -> bool {
        self.warp == 0
    }

    /// Returns the number of iterations that a group may run without a check; never its last one.
    pub fn free(&self) -> u32 {
        self.warp.min(self.group).saturating_sub(1).min(FREE_TURNS_MAX)
    }

    pub fn take(&mut self, turns: u32) {
        self.warp -= turns;
        self.group -= turns;
    }

    /// Counts an iteration; returns whether it was the group's last.
    pub fn are_over_for_group(&mut self) -> bool {
        self.warp = self.warp.saturating_sub(1);
        self.group -= 1;
        let over = self.group == 0;
        if over {
            self.group = TURNS_OF_GROUP;
        }
        over
    }

    /// Ends the warp's turn.
    pub fn end(&mut self) {
        self.warp = 0;
    }
}
