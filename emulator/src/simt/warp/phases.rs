//! Waiting on barrier objects in shared memory (`mbarrier`) and at the cluster's barrier.

use super::turns::Turns;
use super::{Group, Step, Wait, Warp};
use crate::fault::{Fault, FaultKind};
use crate::program::warp::Phase;
use crate::simt::context::Context;
use crate::simt::phases::{self, Failed};

/// State of the cluster's barrier, as masks of lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cluster {
    /// Lanes that have arrived while others have not.
    come: u32,
    /// Lanes that may pass because all have arrived, and that have not waited yet.
    over: u32,
}

impl Warp {
    /// Runs an operation on a barrier object. If lanes ask for a phase that is not complete, other lanes get their
    /// turn.
    pub(super) fn phase(
        &mut self,
        operation: &Phase,
        group: &Group,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        let local = self.local();
        let registers = self.frame(group.frame).registers.start();
        // SAFETY: the slots are in the frame; the view and the local memory are those of this block and warp.
        match unsafe { phases::run(operation, registers, mask, &mut cx.view, local) } {
            Ok(0) => Ok(None),
            Ok(_) => {
                self.count(1, group, cx)?;
                turns.end();
                Ok(Some(Step::Tired(Group { pc: group.pc + 1, ..*group })))
            }
            Err(failed) => Err(self.failure(failed, group, cx)),
        }
    }

    #[cold]
    pub(super) fn failure(&mut self, failed: Failed, group: &Group, cx: &Context) -> Fault {
        match failed {
            Failed::Access(refused) => self.refusal(&refused, group, cx),
            Failed::Misuse(lane, what) => self.fault_in(FaultKind::LaunchFailed, what, group, lane as u32, cx),
        }
    }

    /// `barrier.cluster`: arriving and waiting are two instructions.
    pub(super) fn cluster(
        &mut self,
        waits: bool,
        group: &Group,
        mask: u32,
        turns: &mut Turns,
        cx: &mut Context,
    ) -> Result<Option<Step>, Fault> {
        if !waits {
            let twice = mask & (self.cluster.come | self.cluster.over);
            if twice != 0 {
                let what = "a thread arrives at the cluster barrier twice without waiting";
                return Err(self.fault_in(FaultKind::LaunchFailed, what, group, twice.trailing_zeros(), cx));
            }
            self.cluster.come |= mask;
            cx.at_cluster = true;
            turns.end();
            return Ok(Some(Step::Kept(Group { pc: group.pc + 1, ..*group })));
        }
        let early = mask & !self.cluster.over;
        let strangers = early & !self.cluster.come;
        if strangers != 0 {
            let what = "a thread waits at the cluster barrier without having arrived";
            return Err(self.fault_in(FaultKind::LaunchFailed, what, group, strangers.trailing_zeros(), cx));
        }
        self.cluster.over &= !mask;
        if early == 0 {
            return Ok(None);
        }
        let waiting = self.detached(group, early);
        Ok(Some(Step::Kept(Group { wait: Wait::Cluster, ..waiting })))
    }

    /// Returns whether a lane has arrived at the cluster's barrier, and whether all lanes have.
    pub fn at_cluster(&self) -> (bool, bool) {
        let come = self.cluster.come & self.live;
        (come != 0, come == self.live)
    }

    /// All threads have arrived at the cluster's barrier: releases the lanes of this warp.
    pub fn release_cluster(&mut self) {
        self.cluster.over |= self.cluster.come & self.live;
        self.cluster.come = 0;
        for group in self.groups.iter_mut().filter(|group| group.wait == Wait::Cluster) {
            group.wait = Wait::None;
            group.pc += 1;
            self.cluster.over &= !group.mask;
        }
        for group in std::mem::take(&mut self.groups) {
            self.add(group);
        }
    }
}
