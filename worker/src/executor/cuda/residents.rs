//! The resident inputs, which stay in device memory after their jobs, in the order of their last use. This module is plain data; the arena
//! allocates and frees their memory.

use std::collections::HashMap;

use cudarc::driver::sys::CUdeviceptr;
use gpufleet_schema::BlobDigest;
use lru::LruCache;

use super::buffer::DeviceBuffer;

/// The resident inputs of one executor, with the memory that they take.
#[derive(Debug)]
pub(super) struct Residents {
    inputs: LruCache<BlobDigest, Resident>,
    /// Evicted inputs that jobs still use, by address.
    leaving: HashMap<CUdeviceptr, Resident>,
    bytes: u64,
    /// The inputs that were evicted since the last report to the supervisor.
    evicted: Vec<BlobDigest>,
    /// Whether the device stops kernels that write to an input.
    is_protected: bool,
}

#[derive(Debug, Clone, Copy)]
struct Resident {
    block: DeviceBuffer,
    /// The length of the input in bytes; its block may be longer.
    bytes: u64,
    /// The checksum of its contents: see [`Guard`](super::guard::Guard).
    checksum: u64,
    /// Number of jobs that use it now.
    jobs: u32,
    /// Number of those jobs whose kernels read the input itself.
    sharing: u32,
    /// Number of those jobs that copy it without checking the copy.
    copying: u32,
}

/// An input that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewInput {
    pub block: DeviceBuffer,
    pub bytes: u64,
    pub checksum: u64,
    /// Whether the kernels of the job that fetched it only read it.
    pub share: bool,
}

/// How a job uses a resident input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its kernels read the input itself, so the input must be checked after them.
    Shared,
    /// It copies the input while no kernel can write to it.
    Copied,
    /// It copies the input while kernels of other jobs read it and might write to it, so the copy must be checked.
    CopiedAndChecked,
}

/// A resident input that is lent to a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lent {
    pub block: DeviceBuffer,
    pub checksum: u64,
    pub access: Access,
}

impl Resident {
    /// Lends the input to another job. No kernel may write to it while some job copies it without a check.
    fn lend(&mut self, share: bool, is_protected: bool) -> Lent {
        let access = match (share, self.copying, self.sharing) {
            (true, 0, _) => Access::Shared,
            (true, _, _) if is_protected => Access::Shared,
            (_, _, 0) => Access::Copied,
            (_, _, _) => Access::CopiedAndChecked,
        };
        self.jobs += 1;
        self.sharing += u32::from(access == Access::Shared);
        self.copying += u32::from(access == Access::Copied);
        Lent { block: self.block, checksum: self.checksum, access }
    }

    fn take_back(&mut self, access: Access) {
        self.jobs -= 1;
        self.sharing -= u32::from(access == Access::Shared);
        self.copying -= u32::from(access == Access::Copied);
    }
}

impl Default for Residents {
    fn default() -> Self {
        Self {
            inputs: LruCache::unbounded(),
            leaving: HashMap::new(),
            bytes: 0,
            evicted: Vec::new(),
            is_protected: false,
        }
    }
}

impl Residents {
    /// Records that the device stops kernels that write to an input.
    pub(super) fn protect(&mut self) {
        self.is_protected = true;
    }

    /// Returns the memory of all resident inputs, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks the input as most recently used, so that it is evicted after the others.
    pub(super) fn touch(&mut self, input: BlobDigest) {
        self.inputs.promote(&input);
    }

    /// Lends the input to a job, which must call [`Residents::release`] at its end. `share` if its kernels only read the input.
    pub(super) fn lease(&mut self, input: BlobDigest, bytes: u64, share: bool) -> Option<Lent> {
        let resident = self.inputs.get_mut(&input).filter(|resident| resident.bytes == bytes)?;
        Some(resident.lend(share, self.is_protected))
    }

    /// Adds an input and lends it to the job that fetched it. Returns `None` if another job has added the same input in the meantime.
    pub(super) fn insert(&mut self, input: BlobDigest, new: NewInput) -> Option<Lent> {
        if self.inputs.contains(&input) {
            return None;
        }
        let NewInput { block, bytes, checksum, share } = new;
        self.bytes += block.bytes;
        let mut resident = Resident { block, bytes, checksum, jobs: 0, sharing: 0, copying: 0 };
        let lent = resident.lend(share, self.is_protected);
        self.inputs.put(input, resident);
        Some(lent)
    }

    /// Ends a job's use of an input. Returns the input's memory if it was evicted in the meantime and no other job uses it.
    pub(super) fn release(&mut self, input: BlobDigest, lent: Lent) -> Option<DeviceBuffer> {
        let address = lent.block.address;
        if let Some(resident) = self.inputs.peek_mut(&input).filter(|resident| resident.block.address == address) {
            resident.take_back(lent.access);
            return None;
        }
        let resident = self.leaving.get_mut(&address)?;
        resident.take_back(lent.access);
        if resident.jobs > 0 {
            return None;
        }
        self.leaving.remove(&address);
        self.bytes -= lent.block.bytes;
        Some(lent.block)
    }

    /// Evicts the least recently used input that no job uses, and returns its memory.
    pub(super) fn evict_oldest(&mut self) -> Option<DeviceBuffer> {
        let (oldest, _) = self.inputs.iter().rev().find(|(_, resident)| resident.jobs == 0)?;
        let oldest = *oldest;
        let block = self.inputs.pop(&oldest)?.block;
        self.bytes -= block.bytes;
        self.evicted.push(oldest);
        Some(block)
    }

    /// Evicts all inputs, so that none is lent any more. Returns the memory of those that no job uses; [`Residents::release`] returns that
    /// of the others later.
    pub(super) fn evict_all(&mut self) -> Vec<DeviceBuffer> {
        let idle = std::iter::from_fn(|| self.evict_oldest()).collect();
        while let Some((input, resident)) = self.inputs.pop_lru() {
            self.evicted.push(input);
            self.leaving.insert(resident.block.address, resident);
        }
        idle
    }

    /// Returns the inputs evicted since the last call.
    pub(super) fn take_evicted(&mut self) -> Vec<BlobDigest> {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> BlobDigest {
        BlobDigest::of(&[number])
    }

    fn block(address: u64) -> DeviceBuffer {
        DeviceBuffer { address, bytes: 16 }
    }

    fn new(address: u64) -> NewInput {
        NewInput { block: block(address), bytes: 10, checksum: address, share: false }
    }

    /// Creates three inputs that no job uses, inserted in the order of their numbers.
    fn three() -> Residents {
        let mut residents = Residents::default();
        for number in 1..=3 {
            let lent = residents.insert(digest(number), new(number.into())).unwrap();
            assert!(residents.release(digest(number), lent).is_none());
        }
        residents
    }

    #[test]
    fn the_least_recently_used_input_is_evicted_first() {
        let mut residents = three();
        let lent = residents.lease(digest(1), 10, false).unwrap();
        residents.release(digest(1), lent);
        let addresses: Vec<_> = std::iter::from_fn(|| residents.evict_oldest()).map(|block| block.address).collect();
        assert_eq!(addresses, [2, 3, 1]);
        assert_eq!(residents.take_evicted(), [digest(2), digest(3), digest(1)]);
        assert_eq!((residents.bytes(), residents.take_evicted().len()), (0, 0));
    }

    #[test]
    fn an_input_in_use_keeps_its_memory_until_its_last_job_ends() {
        let mut residents = three();
        let [first, second] = [true, false].map(|share| residents.lease(digest(1), 10, share).unwrap());
        assert!(residents.evict_oldest().is_some_and(|block| block.address == 2));
        assert_eq!(residents.evict_all().len(), 1);
        assert_eq!(residents.bytes(), 16);
        assert!(residents.lease(digest(1), 10, false).is_none(), "it is evicted");
        assert!(residents.release(digest(1), first).is_none());
        assert_eq!(residents.release(digest(1), second).unwrap().address, 1);
        assert_eq!(residents.bytes(), 0);
    }

    #[test]
    fn an_input_that_comes_again_while_its_first_copy_is_leaving_is_a_copy_of_its_own() {
        let mut residents = three();
        let old = residents.lease(digest(1), 10, false).unwrap();
        residents.evict_all();
        let lent = residents.insert(digest(1), new(9)).unwrap();
        assert_eq!(residents.release(digest(1), old).unwrap().address, 1);
        assert!(residents.release(digest(1), lent).is_none());
        assert_eq!(residents.lease(digest(1), 10, false).unwrap().block.address, 9);
    }

    #[test]
    fn of_two_jobs_that_bring_the_same_input_only_the_first_makes_it_resident() {
        let mut residents = three();
        assert!(residents.insert(digest(1), new(9)).is_none());
        assert_eq!((residents.lease(digest(1), 10, false).unwrap().block.address, residents.bytes()), (1, 48));
    }

    #[test]
    fn an_input_of_another_length_is_not_lent() {
        let mut residents = three();
        assert!(residents.lease(digest(1), 11, false).is_none());
        assert!(residents.lease(digest(1), 10, false).is_some());
    }

    #[test]
    fn jobs_share_an_input_unless_another_copies_it_without_a_check() {
        let mut residents = three();
        let used = |residents: &mut Residents, share| {
            let lent = residents.lease(digest(1), 10, share).unwrap();
            (lent.access, lent)
        };
        let (first, copy) = used(&mut residents, false);
        let (second, instead) = used(&mut residents, true);
        assert_eq!([first, second], [Access::Copied; 2]);
        for lent in [copy, instead] {
            residents.release(digest(1), lent);
        }
        let uses = [true, true, false, true].map(|share| used(&mut residents, share).0);
        assert_eq!(uses, [Access::Shared, Access::Shared, Access::CopiedAndChecked, Access::Shared]);
    }

    #[test]
    fn jobs_always_share_an_input_that_the_device_protects() {
        let mut residents = three();
        residents.protect();
        let uses = [false, true, true].map(|share| residents.lease(digest(1), 10, share).unwrap().access);
        assert_eq!(uses, [Access::Copied, Access::Shared, Access::Shared]);
    }
}
