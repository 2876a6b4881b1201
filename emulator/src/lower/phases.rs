//! Barrier objects in shared memory (`mbarrier`), and cluster instructions, for clusters of one block.

use super::emitter::{Emitter, Lowered};
use super::layout::{Width, width};
use super::modifiers::Modifiers;
use super::qualifiers::MemoryOrder;
use crate::ops::lanes::{NO_SLOT, Slots, binary, unary};
use crate::program::Op;
use crate::program::memory::{Check, Reach};
use crate::program::warp::{PENDING_BIT, PENDING_MAX, Phase, PhaseAction};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

/// The address that `mapa` returns for a rank that does not exist; no memory is there.
const NOWHERE: u64 = 0xf000_0000_ffff_fff0;

/// Reports whether an operation allows a memory order and scope, which have to appear together.
fn order_fits(name: &str, completes: bool, order: Option<MemoryOrder>, scope: Option<&str>) -> bool {
    let orders: &[MemoryOrder] = match name {
        "arrive" | "arrive_drop" if completes => &[MemoryOrder::Release, MemoryOrder::Relaxed],
        "arrive" | "arrive_drop" => &[MemoryOrder::Release],
        "test_wait" | "try_wait" => &[MemoryOrder::Acquire, MemoryOrder::Relaxed],
        "expect_tx" | "complete_tx" => &[MemoryOrder::Relaxed],
        _ => &[],
    };
    match (order, scope) {
        (None, None) => true,
        (Some(order), Some(scope)) => orders.contains(&order) && (completes || scope == "cta"),
        _ => false,
    }
}

/// Reports whether an operation allows the state space. Arrivals at another block's object (`shared::cluster`) return
/// no state.
fn space_fits(name: &str, completes: bool, space: Option<&str>, operands: &[Operand]) -> bool {
    let is_remote = space == Some("shared::cluster");
    match name {
        "arrive" | "arrive_drop" => !is_remote || completes && matches!(operands, [Operand::Sink, ..]),
        "expect_tx" | "complete_tx" => true,
        "pending_count" => space.is_none(),
        _ => !is_remote,
    }
}

impl<'a> Emitter<'a, '_> {
    pub fn phase_barrier(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let names = [
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "expect_tx",
            "complete_tx",
            "test_wait",
            "try_wait",
            "pending_count",
        ];
        let name = m.one_of(&names).ok_or_else(|| self.unsupported())?;
        let arrives = matches!(name, "arrive" | "arrive_drop");
        let expects = arrives && m.take("expect_tx");
        let completes = !(arrives && m.take("noComplete"));
        let waits = matches!(name, "test_wait" | "try_wait");
        let parity = waits && m.take("parity");
        let (order, scope) = (m.order(), m.one_of(&["cta", "cluster"]));
        let space = m.one_of(&["shared", "shared::cta", "shared::cluster"]);
        let ty = m.ty()?;
        m.finish()?;
        let fits = order_fits(name, completes, order, scope) && space_fits(name, completes, space, operands);
        if ty != Type::B64 || !fits || expects && !completes {
            return Err(self.unsupported());
        }
        let reach = if space.is_some() { Reach::Shared } else { Reach::Generic };
        match (name, operands) {
            ("pending_count", [d, state]) => self.pending_count(d, state),
            ("init", [address, count]) => self.phase(PhaseAction::Init, reach, None, address, Some(count)),
            ("inval", [address]) => self.phase(PhaseAction::Invalidate, reach, None, address, None),
            ("expect_tx", [address, count]) => self.phase(PhaseAction::Expect, reach, None, address, Some(count)),
            ("complete_tx", [address, count]) => self.phase(PhaseAction::Complete, reach, None, address, Some(count)),
            ("arrive" | "arrive_drop", [state, address, rest @ ..]) if rest.len() <= 1 => {
                if rest.is_empty() && (expects || !completes) {
                    return Err(self.syntax("wrong number of operands"));
                }
                let action = PhaseAction::Arrive { drops: name == "arrive_drop", expects, completes };
                self.phase(action, reach, Some(state), address, rest.first())
            }
            ("test_wait" | "try_wait", [done @ Operand::Name(_), address, phase, rest @ ..]) => {
                match rest {
                    [] => {}
                    [hint] if name == "try_wait" => drop(self.source(hint, Type::U32)?),
                    _ => return Err(self.syntax("wrong number of operands")),
                }
                self.phase(PhaseAction::Test { parity }, reach, Some(done), address, Some(phase))
            }
            _ => Err(self.syntax("unexpected operands")),
        }
    }

    fn phase(
        &mut self,
        action: PhaseAction,
        reach: Reach,
        d: Option<&Operand<'a>>,
        address: &Operand<'a>,
        a: Option<&Operand<'a>>,
    ) -> Lowered<()> {
        let (d_type, a_type) = match action {
            PhaseAction::Test { parity: false } => (Type::Pred, Type::B64),
            PhaseAction::Test { parity: true } => (Type::Pred, Type::U32),
            _ => (Type::B64, Type::U32),
        };
        let a = match a {
            Some(a) => self.source(a, a_type)?,
            None => self.layout.constant(1),
        };
        let address = self.address(address, reach)?;
        let d = match d {
            None | Some(Operand::Sink) => NO_SLOT,
            Some(d) => self.target(d, d_type)?,
        };
        self.check(match action {
            PhaseAction::Init | PhaseAction::Invalidate => Check::store(address, 8, true, &[], true),
            PhaseAction::Test { .. } | PhaseAction::Look => Check::load(address, 8, true),
            _ => Check::atomic(address, 8),
        });
        self.push(Op::Phase(Box::new(Phase { address, action, d, a })));
        Ok(())
    }

    /// Counts bytes as arrived at a barrier (`complete_tx`).
    pub(super) fn complete_bytes(&mut self, barrier: &Operand<'a>, bytes: &Operand<'a>) -> Lowered<()> {
        self.phase(PhaseAction::Complete, Reach::Shared, None, barrier, Some(bytes))
    }

    /// Lowers `mbarrier.pending_count`: extracts the pending count from an arrival's state.
    fn pending_count(&mut self, d: &Operand<'a>, state: &Operand<'a>) -> Lowered<()> {
        let a = self.source(state, Type::B64)?;
        let d = self.target(d, Type::U32)?;
        let count = unary(|state: u64| (state >> PENDING_BIT) as u32 & PENDING_MAX);
        self.push_lanes(count, Slots { d, a, ..Slots::default() });
        Ok(())
    }

    /// Lowers `cp.async.mbarrier.arrive`. Earlier copies are already complete, so it arrives immediately. Without
    /// `.noinc` it would first increment the pending count, so the net effect is none.
    pub fn arrive_after_copies(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let (arrives, counted) = (m.take("arrive"), m.take("noinc"));
        let is_shared = m.one_of(&["shared", "shared::cta"]).is_some();
        let ty = m.ty()?;
        m.finish()?;
        if !arrives || ty != Type::B64 {
            return Err(self.unsupported());
        }
        let reach = if is_shared { Reach::Shared } else { Reach::Generic };
        self.arity(operands, 1..=1)?;
        let action = if counted {
            PhaseAction::Arrive { drops: false, expects: false, completes: true }
        } else {
            PhaseAction::Look
        };
        self.phase(action, reach, None, &operands[0], None)
    }

    /// Lowers `barrier.cluster`, from behind its name.
    pub fn cluster_barrier(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let waits = m.one_of(&["arrive", "wait"]).ok_or_else(|| self.unsupported())? == "wait";
        m.one_of(if waits { &["acquire"] } else { &["release", "relaxed"] });
        m.take("aligned");
        m.finish()?;
        self.arity(operands, 0..=0)?;
        self.push(Op::Cluster { waits });
        Ok(())
    }

    /// Lowers `mapa`: the address of a shared variable in another block of the cluster. There is only one block.
    pub fn map_address(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        m.take("shared::cluster");
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 3..=3)?;
        if !matches!(ty, Type::U32 | Type::U64) {
            return Err(self.unsupported());
        }
        let (a, b) = (self.source(&operands[1], ty)?, self.source(&operands[2], Type::U32)?);
        let d = self.target(&operands[0], ty)?;
        let lanes = match width(ty) {
            Width::Double => {
                let wide = self.scratch(Width::Double);
                self.push_lanes(unary(|b: u32| u64::from(b)), Slots { d: wide, a: b, ..Slots::default() });
                let lanes = binary(|a: u64, rank: u64| if rank == 0 { a } else { NOWHERE });
                self.push_lanes(lanes, Slots { d, a, b: wide, ..Slots::default() });
                return Ok(());
            }
            _ => binary(|a: u32, rank: u32| if rank == 0 { a } else { NOWHERE as u32 }),
        };
        self.push_lanes(lanes, Slots { d, a, b, ..Slots::default() });
        Ok(())
    }

    /// Lowers `getctarank`, which is always 0.
    pub fn rank_of_address(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        m.take("shared::cluster");
        let ty = m.ty()?;
        m.finish()?;
        self.arity(operands, 2..=2)?;
        if !matches!(ty, Type::U32 | Type::U64) {
            return Err(self.unsupported());
        }
        self.source(&operands[1], ty)?;
        let (d, a) = (self.target(&operands[0], Type::U32)?, self.layout.constant(0));
        self.push_lanes(unary(|a: u32| a), Slots { d, a, ..Slots::default() });
        Ok(())
    }

    /// Lowers `griddepcontrol`. A launch begins after earlier ones have ended, so there is nothing to wait for.
    pub fn grid_dependency(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let known = m.one_of(&["launch_dependents", "wait"]).is_some();
        m.finish()?;
        self.arity(operands, 0..=0)?;
        if known { Ok(()) } else { Err(self.unsupported()) }
    }
}
