//! Qualifiers of memory accesses: order, scope, caches and hints.
//!
//! All accesses are coherent and as ordered as those of the host, so scopes and hints have no effect; combinations that
//! PTX does not have are still refused.

use super::modifiers::Modifiers;

const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];
const EVICTIONS: [&str; 5] =
    ["L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"];
const PREFETCHES: [&str; 3] = ["L2::64B", "L2::128B", "L2::256B"];

/// Memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrder {
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    Both,
}

/// The qualifiers of a load or a store.
#[derive(Clone, Copy, Debug)]
pub struct Qualifiers {
    pub order: MemoryOrder,
    /// True if a cache policy is among the operands.
    pub has_policy: bool,
}

impl Modifiers<'_> {
    pub fn order(&mut self) -> Option<MemoryOrder> {
        Some(match self.one_of(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel"])? {
            "weak" => MemoryOrder::Weak,
            "volatile" => MemoryOrder::Volatile,
            "relaxed" => MemoryOrder::Relaxed,
            "acquire" => MemoryOrder::Acquire,
            "release" => MemoryOrder::Release,
            _ => MemoryOrder::Both,
        })
    }

    pub fn scope(&mut self) -> bool {
        self.one_of(&SCOPES).is_some()
    }

    /// Parses the qualifiers of `ld` or `st` with its cache operators; `None` for a combination that PTX does not have.
    pub fn access(&mut self, operators: &[&'static str], ordered: MemoryOrder) -> Option<Qualifiers> {
        let is_mapped = self.take("mmio");
        let order = self.order().unwrap_or(MemoryOrder::Weak);
        let of_system = self.take("sys");
        let has_scope = of_system || self.scope();
        let operator = self.one_of(operators).is_some();
        let eviction = self.one_of(&EVICTIONS).is_some();
        let has_policy = self.take("L2::cache_hint");
        let fits = match order {
            MemoryOrder::Weak => !(has_scope || operator && eviction),
            MemoryOrder::Volatile => !has_scope && !operator && !eviction,
            _ => (order == MemoryOrder::Relaxed || order == ordered) && has_scope && !operator,
        };
        let mapped_fits = !is_mapped || order == MemoryOrder::Relaxed && of_system;
        (fits && mapped_fits).then_some(Qualifiers { order, has_policy })
    }

    /// Takes a prefetch size (`L2::64B` and so on).
    pub fn prefetch_size(&mut self) -> bool {
        self.one_of(&PREFETCHES).is_some()
    }
}
