//! The inputs that stay in device memory after their jobs, in the order of their last use. Plain data: the arena allocates and frees
//! their memory.

use std::collections::HashMap;

use cudarc::driver::sys::CUdeviceptr;
use gpufleet_schema::BlobDigest;
use lru::LruCache;

use super::arena::DeviceBuffer;

/// The resident inputs of one executor, with the memory that they take.
#[derive(Debug)]
pub(super) struct Residents {
    inputs: LruCache<BlobDigest, Resident>,
    /// Evicted inputs that jobs still use, by address.
    leaving: HashMap<CUdeviceptr, Resident>,
    bytes: u64,
    /// Evicted since the supervisor was last told.
    evicted: Vec<BlobDigest>,
}

#[derive(Debug, Clone, Copy)]
struct Resident {
    block: DeviceBuffer,
    /// The length of the input, which may be less than that of its block.
    bytes: u64,
    /// Jobs that use it now.
    jobs: u32,
}

impl Default for Residents {
    fn default() -> Self {
        Self { inputs: LruCache::unbounded(), leaving: HashMap::new(), bytes: 0, evicted: Vec::new() }
    }
}

impl Residents {
    /// The memory of all resident inputs.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks the input as used last, so that it is evicted after the others.
    pub(super) fn touch(&mut self, input: BlobDigest) {
        self.inputs.promote(&input);
    }

    /// Lends the input to a job, which calls [`Residents::release`] in the end.
    pub(super) fn lease(&mut self, input: BlobDigest, bytes: u64) -> Option<DeviceBuffer> {
        let resident = self.inputs.get_mut(&input).filter(|resident| resident.bytes == bytes)?;
        resident.jobs += 1;
        Some(resident.block)
    }

    /// Adds an input and lends it to the job that brought it. Returns the lent block, and `block` if it is not needed because another job
    /// has brought the same input in the meantime.
    pub(super) fn insert(
        &mut self,
        input: BlobDigest,
        bytes: u64,
        block: DeviceBuffer,
    ) -> (DeviceBuffer, Option<DeviceBuffer>) {
        if let Some(resident) = self.inputs.get_mut(&input) {
            resident.jobs += 1;
            return (resident.block, Some(block));
        }
        self.bytes += block.bytes;
        self.inputs.put(input, Resident { block, bytes, jobs: 1 });
        (block, None)
    }

    /// Ends a job's use of a block. Returns the block if its input was evicted meanwhile and no other job uses it.
    pub(super) fn release(&mut self, input: BlobDigest, block: DeviceBuffer) -> Option<DeviceBuffer> {
        let address = block.address;
        if let Some(resident) = self.inputs.peek_mut(&input).filter(|resident| resident.block.address == address) {
            resident.jobs -= 1;
            return None;
        }
        let resident = self.leaving.get_mut(&address)?;
        resident.jobs -= 1;
        if resident.jobs > 0 {
            return None;
        }
        self.leaving.remove(&address);
        self.bytes -= block.bytes;
        Some(block)
    }

    /// Evicts the input that has not been used for longest, and returns its memory. An input in use is passed over.
    pub(super) fn evict_oldest(&mut self) -> Option<DeviceBuffer> {
        let (oldest, _) = self.inputs.iter().rev().find(|(_, resident)| resident.jobs == 0)?;
        let oldest = *oldest;
        let block = self.inputs.pop(&oldest)?.block;
        self.bytes -= block.bytes;
        self.evicted.push(oldest);
        Some(block)
    }

    /// Lends no input any more. The memory of an input in use is returned by [`Residents::release`], that of the others here.
    pub(super) fn evict_all(&mut self) -> Vec<DeviceBuffer> {
        let idle = std::iter::from_fn(|| self.evict_oldest()).collect();
        while let Some((input, resident)) = self.inputs.pop_lru() {
            self.evicted.push(input);
            self.leaving.insert(resident.block.address, resident);
        }
        idle
    }

    /// The inputs evicted since the last call.
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

    /// Three inputs that no job uses, inserted in the order of their numbers.
    fn three() -> Residents {
        let mut residents = Residents::default();
        for number in 1..=3 {
            let (lent, spare) = residents.insert(digest(number), 10, block(number.into()));
            assert!(spare.is_none() && residents.release(digest(number), lent).is_none());
        }
        residents
    }

    #[test]
    fn the_least_recently_used_input_is_evicted_first() {
        let mut residents = three();
        let lent = residents.lease(digest(1), 10).unwrap();
        residents.release(digest(1), lent);
        let addresses: Vec<_> = std::iter::from_fn(|| residents.evict_oldest()).map(|block| block.address).collect();
        assert_eq!(addresses, [2, 3, 1]);
        assert_eq!(residents.take_evicted(), [digest(2), digest(3), digest(1)]);
        assert_eq!((residents.bytes(), residents.take_evicted().len()), (0, 0));
    }

    #[test]
    fn an_input_in_use_keeps_its_memory_until_its_last_job_ends() {
        let mut residents = three();
        let [first, second] = [(); 2].map(|()| residents.lease(digest(1), 10).unwrap());
        assert!(residents.evict_oldest().is_some_and(|block| block.address == 2));
        assert_eq!(residents.evict_all().len(), 1);
        assert_eq!(residents.bytes(), 16);
        assert!(residents.lease(digest(1), 10).is_none(), "it is evicted");
        assert!(residents.release(digest(1), first).is_none());
        assert_eq!(residents.release(digest(1), second).unwrap().address, 1);
        assert_eq!(residents.bytes(), 0);
    }

    #[test]
    fn an_input_that_comes_again_while_its_first_copy_is_leaving_is_a_copy_of_its_own() {
        let mut residents = three();
        let old = residents.lease(digest(1), 10).unwrap();
        residents.evict_all();
        let (new, spare) = residents.insert(digest(1), 10, block(9));
        assert!(new.address == 9 && spare.is_none());
        assert_eq!(residents.release(digest(1), old).unwrap().address, 1);
        assert!(residents.release(digest(1), new).is_none());
        assert_eq!(residents.lease(digest(1), 10).unwrap().address, 9);
    }

    #[test]
    fn of_two_jobs_that_bring_the_same_input_the_second_uses_the_copy_of_the_first() {
        let mut residents = three();
        let (lent, spare) = residents.insert(digest(1), 10, block(9));
        assert_eq!((lent.address, spare.unwrap().address, residents.bytes()), (1, 9, 48));
    }

    #[test]
    fn an_input_of_another_length_is_not_lent() {
        let mut residents = three();
        assert!(residents.lease(digest(1), 11).is_none());
        assert!(residents.lease(digest(1), 10).is_some());
    }
}
