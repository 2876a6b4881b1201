//! An in-memory cache of compile results. It evicts the least recently used first.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use lru::LruCache;

use super::{CompileError, Compiled, ProgramOrigin, cell};

/// Maximum number of programs in the cache. A PTX has some tens of kilobytes.
const ENTRIES_MAX: usize = 512;
/// Maximum size of all programs together, in bytes, because some are larger.
const BYTES_MAX: usize = 256 << 20;
/// Interval at which a program in this cache is marked as used on disk, so that the disk cache does not evict it.
pub(super) const MARKED_EVERY: Duration = Duration::from_secs(600);

pub(super) type CompileOutcome = Result<(Arc<Compiled>, ProgramOrigin), CompileError>;

/// One result, shared by all requests that wait for it, even if it is an error.
pub(super) type Cell = Arc<cell::Cell<CompileOutcome>>;

#[derive(Debug)]
pub(super) struct Cache {
    entries: Mutex<LruCache<blake3::Hash, Entry>>,
}

#[derive(Debug)]
struct Entry {
    cell: Cell,
    marked: Instant,
}

impl Cache {
    pub(super) fn cell(&self, key: blake3::Hash) -> Cell {
        let mut entries = self.entries();
        if let Some(entry) = entries.get(&key) {
            return Arc::clone(&entry.cell);
        }
        while is_full(&entries) && entries.pop_lru().is_some() {}
        let cell = Cell::default();
        entries.put(key, Entry { cell: Arc::clone(&cell), marked: Instant::now() });
        cell
    }

    /// Removes an outcome that another attempt may change. A newer attempt for the same key keeps its own cell.
    pub(super) fn forget(&self, key: blake3::Hash, cell: &Cell) {
        let mut entries = self.entries();
        if entries.peek(&key).is_some_and(|entry| Arc::ptr_eq(&entry.cell, cell)) {
            entries.pop(&key);
        }
    }

    /// Returns whether a program has to be marked as used on disk now, and counts it as marked.
    pub(super) fn is_to_be_marked(&self, key: blake3::Hash, every: Duration) -> bool {
        let mut entries = self.entries();
        let due = entries.peek_mut(&key).filter(|entry| entry.marked.elapsed() >= every);
        due.map(|entry| entry.marked = Instant::now()).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, LruCache<blake3::Hash, Entry>> {
        self.entries.lock().expect("no thread panics while holding the cache")
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { entries: Mutex::new(LruCache::unbounded()) }
    }
}

fn is_full(entries: &LruCache<blake3::Hash, Entry>) -> bool {
    let bytes = |(_, entry): (_, &Entry)| entry.cell.look(size).unwrap_or(0);
    entries.len() >= ENTRIES_MAX || entries.iter().map(bytes).sum::<usize>() >= BYTES_MAX
}

fn size(outcome: &CompileOutcome) -> usize {
    match outcome {
        Ok((compiled, _)) => compiled.bytes(),
        Err(CompileError::Source { message, log, .. }) => message.len() + log.len(),
        // An error consists of at most one sentence.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> blake3::Hash {
        blake3::hash(text.as_bytes())
    }

    #[tokio::test]
    async fn only_the_cell_that_is_meant_is_forgotten() {
        let cache = Cache::default();
        let first = cache.cell(key("a"));
        assert!(Arc::ptr_eq(&first, &cache.cell(key("a"))));
        cache.forget(key("a"), &first);
        let second = cache.cell(key("a"));
        assert!(!Arc::ptr_eq(&first, &second));
        cache.forget(key("a"), &first);
        assert!(Arc::ptr_eq(&second, &cache.cell(key("a"))));
    }

    #[test]
    fn a_program_is_marked_on_disk_now_and_then() {
        let cache = Cache::default();
        cache.cell(key("a"));
        assert!(!cache.is_to_be_marked(key("a"), MARKED_EVERY), "it was just read or written");
        assert!(cache.is_to_be_marked(key("a"), Duration::ZERO));
        assert!(!cache.is_to_be_marked(key("b"), Duration::ZERO), "it is not known at all");
    }

    #[tokio::test]
    async fn the_cache_stays_bounded_and_drops_what_was_not_used_for_longest() {
        let cache = Cache::default();
        let first = cache.cell(key("0"));
        for number in 0..ENTRIES_MAX * 2 {
            cache.cell(key(&number.to_string()));
            cache.cell(key("0"));
        }
        assert_eq!(cache.entries().len(), ENTRIES_MAX);
        assert!(Arc::ptr_eq(&first, &cache.cell(key("0"))));
    }
}
