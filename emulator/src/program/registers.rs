//! Register use: which registers an instruction names, and whether it reads or writes them. Liveness and slot sharing
//! need it.

use super::matrix::{Fragment, Matrix, Multiply, Rows, Transfer};
use super::memory::{Address, Atomic, Check, CopyAsync, CopyBulk, Index, Part};
use super::texture::{Fetch, FetchLevel, Query, SurfaceAccess, SurfaceAction, Texturing};
use super::warp::{Barrier, Elect, Match, Phase, Reduce, Shuffle, Vote};
use super::{Call, Callee, Instruction, Op};
use crate::ops::lanes::{NO_SLOT, Slots};
use crate::simt::access::Access;

/// What an instruction does to a register, in the lanes that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Read,
    Write,
    /// Read, and perhaps written afterwards.
    Update,
}

impl Instruction {
    /// Calls `visit` with the slot of each register, once for every time that the instruction names it, sources first.
    /// `visit` may change the slot.
    pub fn registers(&mut self, visit: &mut impl FnMut(&mut u32, Role)) {
        let mut visitor = Visitor { visit };
        visitor.read(&mut self.guard);
        visitor.op(&mut self.op);
    }
}

struct Visitor<'a, F> {
    visit: &'a mut F,
}

impl<F: FnMut(&mut u32, Role)> Visitor<'_, F> {
    fn one(&mut self, slot: &mut u32, role: Role) {
        if *slot != NO_SLOT {
            (self.visit)(slot, role);
        }
    }

    fn all<'s>(&mut self, slots: impl IntoIterator<Item = &'s mut u32>, role: Role) {
        slots.into_iter().for_each(|slot| self.one(slot, role));
    }

    fn read(&mut self, slot: &mut u32) {
        self.one(slot, Role::Read);
    }

    fn write(&mut self, slot: &mut u32) {
        self.one(slot, Role::Write);
    }

    fn op(&mut self, op: &mut Op) {
        match op {
            Op::Lanes { run: _, slots } | Op::Branch { run: _, slots, target: _, invert: _ } => self.lanes(slots),
            Op::Predicate { function: _, d, a, b, invert_b: _ } => {
                self.all([a, b], Role::Read);
                self.write(d);
            }
            Op::JumpTable { index, targets: _ } => self.read(index),
            Op::Sleep { nanoseconds } => self.read(nanoseconds),
            Op::Clock { d, wide: _, shift: _ } | Op::ActiveMask { d } => self.write(d),
            Op::Load(access) => self.access(access, Role::Write),
            Op::Store(access) => self.access(access, Role::Read),
            Op::Atomic(atomic) => self.atomic(atomic),
            Op::CopyAsync(copy) => self.copy(copy),
            Op::CopyBulk(copy) => self.copy_bulk(copy),
            Op::Check(check) => self.check(check),
            Op::Shuffle(shuffle) => self.shuffle(shuffle),
            Op::Vote(vote) => self.vote(vote),
            Op::Match(matching) => self.matching(matching),
            Op::Reduce(reduce) => self.reduce(reduce),
            Op::Elect(elect) => self.elect(elect),
            Op::Matrix(matrix) => self.matrix(matrix),
            Op::Texture(operation) => self.texture(operation),
            Op::WarpBarrier { mask } => self.read(mask),
            Op::Barrier(barrier) => self.barrier(barrier),
            Op::Phase(phase) => self.phase(phase),
            Op::Call(call) => self.call(call),
            Op::Jump(_)
            | Op::Exit
            | Op::Return
            | Op::Trap
            | Op::Breakpoint
            | Op::Fence
            | Op::Missing
            | Op::Cluster { waits: _ } => {}
        }
    }

    /// The operation does not say which of its slots it uses: the last may be a source, a carry or unused.
    fn lanes(&mut self, slots: &mut Slots) {
        let Slots { d, a, b, c, e } = slots;
        self.all([a, b, c], Role::Read);
        self.one(e, Role::Update);
        self.write(d);
    }

    fn address(&mut self, address: &mut Address) {
        let Address { slot, wide: _, index, offset: _, reach: _, writes: _, cache: _ } = address;
        self.read(slot);
        if let Some(Index { base, factor: _, signed: _ }) = index {
            self.read(base);
        }
    }

    fn access(&mut self, access: &mut Access, values: Role) {
        let Access { address, ordered: _, repeat: _, slots, run: _ } = access;
        self.address(address);
        self.all(slots, values);
    }

    fn atomic(&mut self, atomic: &mut Atomic) {
        let Atomic { address, function: _, ty: _, count: _, quad: _, d, b, c } = atomic;
        self.address(address);
        self.all(b, Role::Read);
        self.all(c, Role::Read);
        self.all(d, Role::Write);
    }

    fn copy(&mut self, copy: &mut CopyAsync) {
        let CopyAsync { target, source, bytes: _, part } = copy;
        self.address(target);
        self.address(source);
        self.part(part);
    }

    fn copy_bulk(&mut self, copy: &mut CopyBulk) {
        let CopyBulk { target, source, bytes } = copy;
        self.address(target);
        self.address(source);
        self.read(bytes);
    }

    fn part(&mut self, part: &mut Option<Part>) {
        match part {
            Some(Part::Length(slot) | Part::Unless(slot, _) | Part::Bulk(slot)) => self.read(slot),
            None => {}
        }
    }

    fn check(&mut self, check: &mut Check) {
        let Check { address, bytes: _, part, kinds: _, values } = check;
        self.address(address);
        self.part(part);
        if let Some((slots, _)) = values {
            self.all(slots, Role::Read);
        }
    }

    fn shuffle(&mut self, shuffle: &mut Shuffle) {
        let Shuffle { mode: _, d, valid, a, b, c, mask, all: _, sources: _ } = shuffle;
        self.all([a, b, c, mask], Role::Read);
        self.all([d, valid], Role::Write);
    }

    fn vote(&mut self, vote: &mut Vote) {
        let Vote { mode: _, d, a, invert: _, mask } = vote;
        self.all([a, mask], Role::Read);
        self.write(d);
    }

    fn matching(&mut self, matching: &mut Match) {
        let Match { all: _, d, p, a, wide: _, mask } = matching;
        self.all([a, mask], Role::Read);
        self.all([d, p], Role::Write);
    }

    fn reduce(&mut self, reduce: &mut Reduce) {
        let Reduce { function: _, ty: _, d, a, mask } = reduce;
        self.all([a, mask], Role::Read);
        self.write(d);
    }

    fn elect(&mut self, elect: &mut Elect) {
        let Elect { d, p, mask } = elect;
        self.read(mask);
        self.all([d, p], Role::Write);
    }

    fn matrix(&mut self, matrix: &mut Matrix) {
        match matrix {
            Matrix::Load(transfer) => self.transfer(transfer, Role::Write),
            Matrix::Store(transfer) => self.transfer(transfer, Role::Read),
            Matrix::Multiply(product) => {
                let Multiply { shape: _, count: _, a, b, c, d, arithmetic: _ } = &mut **product;
                [a, b, c].into_iter().for_each(|fragment| self.fragment(fragment, Role::Read));
                self.fragment(d, Role::Write);
            }
            Matrix::LoadRows(rows) => self.rows(rows, Role::Write),
            Matrix::StoreRows(rows) => self.rows(rows, Role::Read),
            Matrix::Transpose { d, a } => {
                self.read(a);
                self.write(d);
            }
        }
    }

    fn fragment(&mut self, fragment: &mut Fragment, role: Role) {
        let Fragment { slots, element: _, per: _, layout: _ } = fragment;
        self.all(slots, role);
    }

    fn transfer(&mut self, transfer: &mut Transfer, values: Role) {
        let Transfer { fragment, address, major: _, lines: _, length: _, stride } = transfer;
        self.address(address);
        self.all(stride, Role::Read);
        self.fragment(fragment, values);
    }

    fn rows(&mut self, rows: &mut Rows, values: Role) {
        let Rows { address, slots, transposed: _ } = rows;
        self.address(address);
        self.all(slots, values);
    }

    fn texture(&mut self, operation: &mut Texturing) {
        match operation {
            Texturing::Fetch(fetch) => self.fetch(fetch),
            Texturing::Surface(access) => self.surface(access),
            Texturing::Query(query) => {
                let Query { handle, is_surface: _, property: _, level, d } = &mut **query;
                self.read(handle);
                self.all(level, Role::Read);
                self.write(d);
            }
        }
    }

    fn fetch(&mut self, fetch: &mut Fetch) {
        let Fetch { texture, sampler, coordinates, layer, offsets, level, d, resident, .. } = fetch;
        self.read(texture);
        self.all(sampler, Role::Read);
        self.all(coordinates, Role::Read);
        self.all(layer, Role::Read);
        self.all(offsets, Role::Read);
        match level {
            FetchLevel::Base => {}
            FetchLevel::Level(slot) => self.read(slot),
            FetchLevel::Gradients(gradients) => self.all(gradients.iter_mut().flatten(), Role::Read),
        }
        self.all(d, Role::Write);
        self.all(resident, Role::Write);
    }

    fn surface(&mut self, access: &mut SurfaceAccess) {
        let SurfaceAccess { surface, geometry: _, coordinates, layer, outside: _, action, values } = access;
        self.read(surface);
        self.all(coordinates, Role::Read);
        self.all(layer, Role::Read);
        let loads = matches!(action, SurfaceAction::Load(_));
        self.all(values, if loads { Role::Write } else { Role::Read });
    }

    fn barrier(&mut self, barrier: &mut Barrier) {
        let Barrier { kind: _, aligned: _, all: _, id, threads, d, p, invert: _ } = barrier;
        self.all([id, threads, p], Role::Read);
        self.write(d);
    }

    fn phase(&mut self, phase: &mut Phase) {
        let Phase { address, action: _, d, a } = phase;
        self.address(address);
        self.read(a);
        self.write(d);
    }

    fn call(&mut self, call: &mut Call) {
        let Call { callee, arguments, results } = call;
        if let Callee::Register(slot) = callee {
            self.read(slot);
        }
        self.all(arguments, Role::Read);
        self.all(results, Role::Write);
    }
}
