//! Caches the device memory of programs and whether they can print, by their code, because scanning a long text for every tiny job
//! would cost more than the job.

use std::collections::HashMap;

use crate::{
    executor::{Code, ProgramKey},
    shared_state::{Locked, SharedState},
};

/// Many times the programs of an executor; each entry takes some tens of bytes.
const ENTRIES_MAX: usize = 1024;

/// Properties of a program, read from its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    /// The device memory of its module.
    pub(super) bytes: u64,
    /// Its kernels can print.
    pub(super) prints: bool,
}

#[derive(Debug, Default)]
pub(super) struct Footprints {
    state: SharedState<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<ProgramKey, Known>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    footprint: Footprint,
    used: u64,
}

impl Footprints {
    /// The footprint of `code`, whose key is `key`.
    pub(super) fn of(&self, key: ProgramKey, code: Code<'_>) -> Footprint {
        if let Some(footprint) = self.state().find(key) {
            return footprint;
        }
        let footprint = Footprint { bytes: code.device_bytes(), prints: code.prints() };
        self.state().remember(key, footprint);
        footprint
    }

    fn state(&self) -> Locked<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn find(&mut self, key: ProgramKey) -> Option<Footprint> {
        self.clock += 1;
        let known = self.known.get_mut(&key)?;
        known.used = self.clock;
        Some(known.footprint)
    }

    fn remember(&mut self, key: ProgramKey, footprint: Footprint) {
        if self.known.len() >= ENTRIES_MAX {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(key, Known { footprint, used: self.clock });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footprint_is_the_code_and_its_variables_and_the_table_stays_bounded() {
        let footprints = Footprints::default();
        let of = |text: &str| footprints.of(Code::Ptx(text).key(), Code::Ptx(text));
        let text = ".global .align 4 .b8 table[65536];";
        for _ in 0..2 {
            assert_eq!(of(text), Footprint { bytes: 65536 + text.len() as u64, prints: false });
        }
        for number in 0..2 * ENTRIES_MAX {
            of(&number.to_string());
            of(text);
        }
        let mut state = footprints.state();
        assert_eq!(state.known.len(), ENTRIES_MAX);
        assert!(state.find(Code::Ptx(text).key()).is_some(), "it was used all the time");
    }
}
