//! The supervisor's staging memory for one executor: segments are divided into chunks, one for each job in flight.
//!
//! Chunks come in classes, powers of two from [`CHUNK_BYTES_MIN`]. Chunks of the smallest class share segments; each larger chunk is a segment
//! of its own. Freed chunks are cached for later jobs of the same class, because pinning is expensive. The chunks in use never exceed the
//! capacity: a job that would exceed it waits, first come, first served. Mapped memory never exceeds twice the capacity.
//!
//! A chunk may be lent to an operation that can hang, such as a read from a network file system. If the caller stops waiting for the
//! operation, the chunk's share of the capacity is released ([`Lending`]), so that other jobs need not wait. The memory itself becomes free
//! when the operation ends.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{message::Place, segment::Segment};

/// Size of the smallest chunk, in bytes, for the inputs and outputs of a small job. Thousands of such jobs share a few segments.
const CHUNK_BYTES_MIN: u64 = 64 << 10;
/// Number of smallest chunks in a shared segment. Pinning 4 MiB at a time keeps the number of pinned ranges low.
const CHUNKS_PER_SHARED_SEGMENT: u64 = 64;
/// Staging memory for the jobs in flight on one executor, in bytes. The inputs and outputs in messages have at most 16 MiB each, so this is
/// enough for eight of the largest jobs. The number of smaller jobs is limited earlier, by the executor's streams.
pub const CAPACITY_BYTES: u64 = 256 << 20;
/// Size of the largest chunk, in bytes: the inline inputs of a job, its staged outputs, and the ring through which larger arrays pass.
pub const CHUNK_BYTES_MAX: u64 = CAPACITY_BYTES;

/// Announces new and dropped segments to the executor.
pub trait Announce: Send + Sync {
    fn made(&self, id: u32, segment: &Segment) -> io::Result<()>;
    fn dropped(&self, id: u32);
}

/// The staging memory of an executor. Clones share it.
#[derive(Clone)]
pub struct Slab {
    shared: Arc<Shared>,
}

/// The memory of one job, or a part of it. The chunk becomes free when all its parts have been dropped.
#[derive(Debug)]
pub struct StagingMemory {
    chunk: Arc<Chunk>,
    /// The part's position in the chunk. Parts never overlap.
    start: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Chunk {
    segment: Arc<Segment>,
    id: u32,
    offset: u64,
    bytes: u64,
    shared: Arc<Shared>,
    /// The chunk's share of the capacity; `None` if it was released while the chunk was lent.
    share: Mutex<Option<OwnedSemaphorePermit>>,
}

/// The wait for an operation that uses a lent chunk. Dropping it early releases the chunk's share of the capacity.
#[derive(Debug)]
pub struct Lending(Option<Arc<Chunk>>);

/// Why a job gets no staging memory.
#[derive(Debug, thiserror::Error)]
pub enum SlabError {
    #[error("failed to stage {bytes} bytes; the maximum for a job is {CHUNK_BYTES_MAX}")]
    TooLarge { bytes: u64 },
    #[error("failed to create a segment of shared memory")]
    Segment(#[from] io::Error),
}

struct Shared {
    announce: Box<dyn Announce>,
    units: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The free chunks by class, which is their size in bytes.
    free: BTreeMap<u64, Vec<Free>>,
    mapped_bytes: u64,
    next_id: u32,
}

struct Free {
    segment: Arc<Segment>,
    id: u32,
    offset: u64,
}

impl Slab {
    pub fn new(announce: Box<dyn Announce>) -> Self {
        let units = Arc::new(Semaphore::new((CAPACITY_BYTES / CHUNK_BYTES_MIN) as usize));
        Self { shared: Arc::new(Shared { announce, units, state: Mutex::default() }) }
    }

    /// Waits for a chunk of at least `bytes`. Cancelling only leaves the queue.
    pub async fn take(&self, bytes: u64) -> Result<StagingMemory, SlabError> {
        let class = class(bytes).ok_or(SlabError::TooLarge { bytes })?;
        let share = Arc::clone(&self.shared.units).acquire_many_owned((class / CHUNK_BYTES_MIN) as u32);
        let share = Mutex::new(Some(share.await.expect("the semaphore is never closed")));
        let Free { segment, id, offset } = self.shared.free_chunk(class)?;
        let chunk = Chunk { segment, id, offset, bytes: class, shared: Arc::clone(&self.shared), share };
        Ok(StagingMemory { chunk: Arc::new(chunk), start: 0, bytes: class })
    }
}

/// Returns the class for `bytes`, or `None` if no chunk is that large.
fn class(bytes: u64) -> Option<u64> {
    (bytes <= CHUNK_BYTES_MAX).then(|| bytes.next_power_of_two().max(CHUNK_BYTES_MIN))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding the slab")
    }

    fn free_chunk(&self, class: u64) -> io::Result<Free> {
        let mut state = self.state();
        if let Some(free) = state.free.get_mut(&class).and_then(Vec::pop) {
            return Ok(free);
        }
        let bytes = if class == CHUNK_BYTES_MIN { class * CHUNKS_PER_SHARED_SEGMENT } else { class };
        self.make_room(&mut state, bytes);
        let segment = Arc::new(Segment::new(bytes)?);
        let id = state.next_id;
        // Announce it under the lock, so that no job can use the segment before the executor knows it.
        self.announce.made(id, &segment)?;
        state.next_id += 1;
        state.mapped_bytes += bytes;
        let mut chunks: Vec<Free> =
            (0..bytes / class).map(|chunk| Free { segment: Arc::clone(&segment), id, offset: chunk * class }).collect();
        let first = chunks.pop().expect("a segment has at least one chunk");
        state.free.entry(class).or_default().extend(chunks);
        Ok(first)
    }

    /// Drops free segments that are a single chunk, largest first, until `bytes` more fit into the capacity.
    fn make_room(&self, state: &mut State, bytes: u64) {
        while state.mapped_bytes + bytes > CAPACITY_BYTES {
            let largest =
                state.free.range_mut(CHUNK_BYTES_MIN + 1..).rev().find_map(|(class, free)| Some((*class, free.pop()?)));
            let Some((class, free)) = largest else { return };
            self.announce.dropped(free.id);
            state.mapped_bytes -= class;
        }
    }
}

impl StagingMemory {
    /// Returns the position of byte `at` of this memory, for the executor.
    pub fn place(&self, at: u64) -> Place {
        Place { segment: self.chunk.id, offset: self.chunk.offset + self.start + at }
    }

    /// Splits off the memory from byte `at` on.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_off(&mut self, at: u64) -> Self {
        assert!(at <= self.bytes, "{at} is beyond {} bytes", self.bytes);
        let rest = Self { chunk: Arc::clone(&self.chunk), start: self.start + at, bytes: self.bytes - at };
        self.bytes = at;
        rest
    }

    /// Starts a wait for an operation that uses this chunk.
    pub fn lending(&self) -> Lending {
        Lending(Some(Arc::clone(&self.chunk)))
    }

    pub fn len(&self) -> usize {
        self.bytes as usize
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns a range of this memory.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} is outside a chunk of {} bytes",
            self.bytes
        );
        // SAFETY: chunks do not overlap and neither do their parts, and this one is inside its segment. The executor writes to it only
        // between the request that names it and the answer. The owner reads it before the request or after the answer, and keeps the chunk
        // until the answer has arrived.
        unsafe { std::slice::from_raw_parts(self.start().add(range.start), range.len()) }
    }

    /// Returns a range of this memory for writing; panics like [`StagingMemory::bytes`].
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} is outside a chunk of {} bytes",
            self.bytes
        );
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().add(range.start), range.len()) }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: a part is inside its chunk, and a chunk is inside its segment.
        unsafe { self.chunk.segment.as_mut_ptr().add((self.chunk.offset + self.start) as usize) }
    }
}

impl Lending {
    /// Ends the wait: the operation no longer uses the chunk.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        if let Some(chunk) = &self.0 {
            chunk.share.lock().expect("no thread panics while holding it").take();
        }
    }
}

impl AsMut<[u8]> for StagingMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut(0..self.len())
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let free = Free { segment: Arc::clone(&self.segment), id: self.id, offset: self.offset };
        state.free.entry(self.bytes).or_default().push(free);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab").field("mapped_bytes", &self.state().mapped_bytes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicI64, Ordering},
    };

    use futures::poll;

    use super::*;

    #[derive(Default)]
    struct Count(Arc<AtomicI64>);

    impl Announce for Count {
        fn made(&self, _id: u32, _segment: &Segment) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn dropped(&self, _id: u32) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn small_jobs_share_a_segment_and_never_a_byte() {
        let segments = Arc::new(AtomicI64::new(0));
        let slab = Slab::new(Box::new(Count(Arc::clone(&segments))));
        let mut chunks = Vec::new();
        for number in 0..CHUNKS_PER_SHARED_SEGMENT {
            let mut chunk = slab.take(100).await.unwrap();
            chunk.bytes_mut(0..100).fill(number as u8);
            chunks.push(chunk);
        }
        assert_eq!(segments.load(Ordering::Relaxed), 1);
        for (number, chunk) in chunks.iter().enumerate() {
            assert!(chunk.bytes(0..100).iter().all(|byte| *byte == number as u8));
        }
    }

    #[tokio::test]
    async fn parts_of_a_chunk_share_no_byte_and_free_it_together() {
        let slab = Slab::new(Box::new(Count::default()));
        let mut first = slab.take(CAPACITY_BYTES).await.unwrap();
        let mut second = first.split_off(100);
        let third = second.split_off(28);
        first.as_mut().fill(1);
        second.as_mut().fill(2);
        assert_eq!((first.len(), second.len(), third.len() as u64), (100, 28, CAPACITY_BYTES - 128));
        assert_eq!((first.bytes(99..100), second.bytes(0..1)), (&[1][..], &[2][..]));
        assert_eq!(second.place(1).offset, first.place(101).offset);
        let mut next = Box::pin(slab.take(1));
        drop((first, third));
        assert!(poll!(next.as_mut()).is_pending());
        drop(second);
        next.await.unwrap();
    }

    #[tokio::test]
    async fn a_freed_chunk_is_used_again_and_room_is_made_for_other_sizes() {
        let segments = Arc::new(AtomicI64::new(0));
        let slab = Slab::new(Box::new(Count(Arc::clone(&segments))));
        drop(slab.take(CAPACITY_BYTES).await.unwrap());
        drop(slab.take(CAPACITY_BYTES).await.unwrap());
        assert_eq!(segments.load(Ordering::Relaxed), 1);
        drop(slab.take(CAPACITY_BYTES / 2).await.unwrap());
        assert_eq!(segments.load(Ordering::Relaxed), 1, "the large free segment made room");
    }

    #[tokio::test]
    async fn no_job_has_more_than_the_capacity() {
        let slab = Slab::new(Box::new(Count::default()));
        let all = slab.take(CHUNK_BYTES_MAX).await.unwrap();
        let mut small = pin!(slab.take(1));
        assert!(poll!(small.as_mut()).is_pending());
        drop(all);
        small.await.unwrap();
        let beyond = slab.take(CHUNK_BYTES_MAX + 1).await.unwrap_err();
        assert_eq!(beyond.to_string(), "failed to stage 268435457 bytes; the maximum for a job is 268435456");
    }

    #[tokio::test]
    async fn a_chunk_that_is_still_lent_blocks_no_job_and_is_used_again_when_it_returns() {
        let segments = Arc::new(AtomicI64::new(0));
        let slab = Slab::new(Box::new(Count(Arc::clone(&segments))));
        let chunk = slab.take(CAPACITY_BYTES).await.unwrap();
        chunk.lending().end();
        let mut next = Box::pin(slab.take(CAPACITY_BYTES));
        assert!(poll!(next.as_mut()).is_pending(), "it came back, and has its share");
        drop(chunk.lending());
        let next = next.await.unwrap();
        assert_ne!(next.place(0).segment, chunk.place(0).segment, "the store may still write to it");
        drop((next, chunk));
        drop(slab.take(CAPACITY_BYTES).await.unwrap());
        assert_eq!(segments.load(Ordering::Relaxed), 2, "both are kept for others");
    }

    #[tokio::test]
    async fn who_exceeds_the_capacity_waits_for_a_chunk() {
        let slab = Slab::new(Box::new(Count::default()));
        let all = slab.take(CAPACITY_BYTES).await.unwrap();
        let waiting = tokio::spawn({
            let slab = slab.clone();
            async move { slab.take(1).await.map(|chunk| chunk.len()) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(all);
        assert_eq!(waiting.await.unwrap().unwrap() as u64, CHUNK_BYTES_MIN);
    }
}
