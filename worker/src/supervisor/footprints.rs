//! What programs take of a device's memory, remembered by their code: reading a long text for every tiny job would cost more than the job.

use std::collections::HashMap;

use crate::{
    executor::{Code, Key},
    shared_state::{Locked, SharedState},
};

/// Many times what an executor has loaded; each is some tens of bytes.
const ENTRIES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Footprints {
    state: SharedState<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Key, Known>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    bytes: u64,
    used: u64,
}

impl Footprints {
    /// The device memory that the program's module takes. The key is the code's.
    pub(super) fn of(&self, key: Key, code: Code<'_>) -> u64 {
        if let Some(bytes) = self.state().find(key) {
            return bytes;
        }
        let bytes = code.device_bytes();
        self.state().remember(key, bytes);
        bytes
    }

    fn state(&self) -> Locked<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn find(&mut self, key: Key) -> Option<u64> {
        self.clock += 1;
        let known = self.known.get_mut(&key)?;
        known.used = self.clock;
        Some(known.bytes)
    }

    fn remember(&mut self, key: Key, bytes: u64) {
        if self.known.len() >= ENTRIES_MAX {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(key, Known { bytes, used: self.clock });
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
            assert_eq!(of(text), 65536 + text.len() as u64);
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
