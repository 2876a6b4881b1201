//! Bulk copies between global and shared memory (`cp.async.bulk`). A copy is made immediately, so the barrier counts
//! its bytes immediately, and waiting for bulk groups has nothing to do.

use super::emitter::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::program::Op;
use crate::program::memory::{BULK_ALIGN, Check, CopyBulk, Part, Reach};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

const TO_BARRIER: &str = "mbarrier::complete_tx::bytes";

impl<'a> Emitter<'a, '_> {
    /// Lowers `cp.async.bulk`, from behind its name.
    pub fn copy_bulk(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if m.take("commit_group") {
            m.finish()?;
            return self.arity(operands, 0..=0);
        }
        if m.take("wait_group") {
            m.take("read");
            m.finish()?;
            return match operands {
                [Operand::Integer(_)] => Ok(()),
                _ => Err(self.syntax("expected a number of groups")),
            };
        }
        let has_policy = m.take("L2::cache_hint");
        let operands = self.without_policy(operands, has_policy)?;
        if m.take("prefetch") {
            return self.prefetch_bulk(m, operands);
        }
        let (target, source) = self.spaces(m).ok_or_else(|| self.unsupported())?;
        let completes = m.one_of(&[TO_BARRIER, "bulk_group"]).ok_or_else(|| self.unsupported())? == TO_BARRIER;
        m.finish()?;
        let is_from_shared = source == Reach::Shared;
        // PTX has bulk groups only for copies to global memory, and cache hints only for copies from or to it.
        if completes == (target == Reach::Global) || has_policy && completes && is_from_shared {
            return Err(self.unsupported());
        }
        match operands {
            [to, from, size, barrier] if completes => {
                self.bulk([to, from], [target, source], size)?;
                self.complete_bytes(barrier, size)
            }
            [to, from, size] if !completes => self.bulk([to, from], [target, source], size),
            _ => Err(self.syntax("wrong number of operands")),
        }
    }

    /// Parses the target and source spaces, which the instruction names in this order.
    fn spaces(&self, m: &mut Modifiers<'a>) -> Option<(Reach, Reach)> {
        let known = [
            ("shared::cluster", "global", Reach::Shared, Reach::Global),
            ("shared::cta", "global", Reach::Shared, Reach::Global),
            ("shared::cluster", "shared::cta", Reach::Shared, Reach::Shared),
            ("global", "shared::cta", Reach::Global, Reach::Shared),
        ];
        let is_it = |to: &str, from: &str| self.text.starts_with(&format!("cp.async.bulk.{to}.{from}."));
        let (to, from, target, source) = known.into_iter().find(|(to, from, ..)| is_it(to, from))?;
        (m.take(to) && m.take(from)).then_some((target, source))
    }

    fn bulk(&mut self, [to, from]: [&Operand<'a>; 2], [target, source]: [Reach; 2], size: &Operand<'a>) -> Lowered<()> {
        let bytes = self.bulk_size(size)?;
        let target = self.target_address(to, target)?;
        let source = self.address(from, source)?;
        let part = Some(Part::Bulk(bytes));
        self.check(Check { part, ..Check::load(source, BULK_ALIGN, false) });
        self.check(Check { part, ..Check::store(target, BULK_ALIGN, false, &[], false) });
        self.push(Op::CopyBulk(Box::new(CopyBulk { target, source, bytes })));
        Ok(())
    }

    fn bulk_size(&mut self, size: &Operand<'a>) -> Lowered<u32> {
        match size {
            Operand::Integer(bytes) if !bytes.is_multiple_of(BULK_ALIGN.into()) => {
                Err(self.syntax("the size of a bulk copy is a multiple of 16"))
            }
            size => self.source(size, Type::U32),
        }
    }

    /// Checks a prefetch, which has no effect because there is no cache.
    fn prefetch_bulk(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let known = m.take("L2") && m.take("global");
        m.finish()?;
        match operands {
            _ if !known => Err(self.unsupported()),
            [address, size] => {
                self.bulk_size(size)?;
                self.address(address, Reach::Global).map(drop)
            }
            _ => Err(self.syntax("wrong number of operands")),
        }
    }
}
