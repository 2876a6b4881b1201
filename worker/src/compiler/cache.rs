//! Results by what they were made from, the least recently used ones dropped first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::OnceCell;

use super::{CompileError, CompileRequest, Compiled};

/// Distinct sources that a worker keeps compiled. A PTX is some tens of kilobytes.
const ENTRIES_MAX: usize = 512;
/// All kept PTX together, for those that are not so small.
const BYTES_MAX: usize = 256 << 20;

pub(super) type Outcome = Result<Arc<Compiled>, CompileError>;

/// Filled once by the first who asks; the others wait for it, and share also a failure.
pub(super) type Cell = Arc<OnceCell<Outcome>>;

#[derive(Debug, Default)]
pub(super) struct Cache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<blake3::Hash, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    cell: Cell,
    used: u64,
}

impl Cache {
    pub(super) fn cell(&self, request: &CompileRequest) -> Cell {
        let key = key(request);
        let mut state = self.state();
        state.clock += 1;
        let used = state.clock;
        if let Some(entry) = state.entries.get_mut(&key) {
            entry.used = used;
            return Arc::clone(&entry.cell);
        }
        while state.is_full() && state.drop_oldest() {}
        let cell = Cell::default();
        state.entries.insert(key, Entry { cell: Arc::clone(&cell), used });
        cell
    }

    /// Drops an outcome that another try may change. Another try for the same may be under way; it keeps its cell.
    pub(super) fn forget(&self, request: &CompileRequest, cell: &Cell) {
        let key = key(request);
        let mut state = self.state();
        if state.entries.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.cell, cell)) {
            state.entries.remove(&key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the cache")
    }
}

impl State {
    fn is_full(&self) -> bool {
        let bytes = |entry: &Entry| entry.cell.get().map_or(0, size);
        self.entries.len() >= ENTRIES_MAX || self.entries.values().map(bytes).sum::<usize>() >= BYTES_MAX
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.entries.remove(&key).is_some())
    }
}

fn size(outcome: &Outcome) -> usize {
    match outcome {
        Ok(compiled) => compiled.ptx.len() + compiled.log.len(),
        Err(CompileError::Source { message, log, .. }) => message.len() + log.len(),
        // A sentence at most.
        Err(_) => 0,
    }
}

/// Every part with its length, so that no two requests share a key.
fn key(request: &CompileRequest) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(request.code.as_bytes());
    part(&request.arch.0.to_le_bytes());
    part(&request.arch.1.to_le_bytes());
    part(request.nvrtc.as_ref().map_or(b"", |path| path.as_os_str().as_encoded_bytes()));
    request.options.iter().for_each(|option| part(option.as_bytes()));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(code: &str) -> CompileRequest {
        CompileRequest { code: code.to_owned(), options: vec![], arch: (8, 0), nvrtc: None }
    }

    #[tokio::test]
    async fn equal_requests_share_a_cell_and_others_do_not() {
        let cache = Cache::default();
        let first = cache.cell(&request("a"));
        assert!(Arc::ptr_eq(&first, &cache.cell(&request("a"))));
        assert!(!Arc::ptr_eq(&first, &cache.cell(&request("b"))));
        assert!(!Arc::ptr_eq(&first, &cache.cell(&CompileRequest { options: vec!["-G".into()], ..request("a") })));
        assert!(!Arc::ptr_eq(&first, &cache.cell(&CompileRequest { arch: (9, 0), ..request("a") })));
    }

    #[tokio::test]
    async fn only_the_cell_that_is_meant_is_forgotten() {
        let cache = Cache::default();
        let first = cache.cell(&request("a"));
        cache.forget(&request("a"), &first);
        let second = cache.cell(&request("a"));
        assert!(!Arc::ptr_eq(&first, &second));
        cache.forget(&request("a"), &first);
        assert!(Arc::ptr_eq(&second, &cache.cell(&request("a"))));
    }

    #[tokio::test]
    async fn the_cache_stays_bounded() {
        let cache = Cache::default();
        for number in 0..ENTRIES_MAX * 2 {
            cache.cell(&request(&number.to_string()));
        }
        assert_eq!(cache.state().entries.len(), ENTRIES_MAX);
    }
}
