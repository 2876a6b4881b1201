//! Copies data into buffers before a job's kernels and out of them afterwards, on the job's stream.

use cudarc::driver::{
    result,
    sys::{self, CUdeviceptr, CUstream},
};

use super::{
    buffer::DeviceBuffer,
    ending::{StreamError, internal},
    error::{CudaError, called},
    job_inputs::{JobInputs, Source},
    pinned::PinnedSegment,
    work::Work,
};
use crate::ipc::message::{Contents, Place};

/// Size of a piece of a copy, in bytes. A device runs one copy at a time in each direction, so copying a large buffer in pieces lets small
/// copies of other streams run in between.
const PIECE_BYTES: usize = 1 << 20;

/// Maximum number of rows of one fill, because its time grows with the rows. Copies fill the rest of the buffer.
const ROWS_MAX: usize = 4096;

/// Writes the initial contents of a buffer, and zeros the rest of its block, which may have belonged to another job.
pub(super) fn fill(
    stream: CUstream,
    work: &Work,
    inputs: &JobInputs<'_>,
    index: usize,
    block: DeviceBuffer,
) -> Result<(), StreamError> {
    let plan = &work.run.buffers[index];
    let filled = match &plan.contents {
        Contents::Zeros => 0,
        Contents::Pattern(element) => {
            repeat(stream, element, plan.bytes, block)?;
            plan.bytes
        }
        Contents::Staged(at) => {
            copy_in(stream, work.segment(*at)?, *at, plan.bytes, block.address)?;
            plan.bytes
        }
        Contents::Input { .. } => {
            match inputs.source(index, plan)? {
                Source::InPlace => return Ok(()),
                Source::Resident(source) => copy_resident(stream, source, plan.bytes, block)?,
                Source::Buffer => {}
            }
            plan.bytes
        }
    };
    if filled < block.bytes {
        let rest = (block.bytes - filled) as usize;
        // SAFETY: the range to zero is inside the block.
        let zeroed = unsafe { result::memset_d8_async(block.address + filled, 0, rest, stream) };
        called("cuMemsetD8Async", zeroed)?;
    }
    Ok(())
}

/// Copies bytes from shared memory to the device.
pub(super) fn copy_in(
    stream: CUstream,
    segment: &PinnedSegment,
    from: Place,
    bytes: u64,
    to: CUdeviceptr,
) -> Result<(), StreamError> {
    let source = start(segment, from, bytes)?;
    for (offset, bytes) in pieces(bytes) {
        // SAFETY: the source is mapped and has this length, nothing writes to it until the copy is answered, and the target is at least as
        // long.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(to + offset as u64, source.add(offset).cast(), bytes, stream) };
        called("cuMemcpyHtoDAsync", copied.result())?;
    }
    Ok(())
}

/// Copies a resident input to the job's buffer, because the job's kernels may write to that.
fn copy_resident(stream: CUstream, source: DeviceBuffer, bytes: u64, block: DeviceBuffer) -> Result<(), CudaError> {
    // SAFETY: both blocks are different and have at least this length, the job holds its lease of the source until the stream has ended its
    // work, and nothing writes to a resident input.
    let copied = unsafe { result::memcpy_dtod_async(block.address, source.address, bytes as usize, stream) };
    called("cuMemcpyDtoDAsync", copied)
}

/// Repeats one element over a buffer.
fn repeat(stream: CUstream, element: &[u8], bytes: u64, block: DeviceBuffer) -> Result<(), StreamError> {
    let count = (bytes / element.len().max(1) as u64) as usize;
    let to = block.address;
    // SAFETY: each fill covers `count` elements or fewer from the beginning of the buffer, and the block is at least as long. An element of
    // eight bytes with different halves is two columns of four bytes, with a row for each element.
    let filled = unsafe {
        match *element {
            [a] => sys::cuMemsetD8Async(to, a, count, stream),
            [a, b] => sys::cuMemsetD16Async(to, u16::from_le_bytes([a, b]), count, stream),
            [a, b, c, d] => sys::cuMemsetD32Async(to, u32::from_le_bytes([a, b, c, d]), count, stream),
            [a, b, c, d, e, f, g, h] if [a, b, c, d] == [e, f, g, h] => {
                sys::cuMemsetD32Async(to, u32::from_le_bytes([a, b, c, d]), 2 * count, stream)
            }
            [a, b, c, d, e, f, g, h] => {
                let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                let rows = count.min(ROWS_MAX);
                called("cuMemsetD2D32Async", sys::cuMemsetD2D32Async(to, 8, low, 1, rows, stream).result())?;
                called("cuMemsetD2D32Async", sys::cuMemsetD2D32Async(to + 4, 8, high, 1, rows, stream).result())?;
                return Ok(double(stream, to, 8 * rows, 8 * count)?);
            }
            _ => {
                let size = element.len();
                return internal(format!("an element of {size} bytes"));
            }
        }
    };
    Ok(called("cuMemsetAsync", filled.result())?)
}

/// Fills the rest of a buffer by copying its beginning. The filled part doubles with each copy.
fn double(stream: CUstream, to: CUdeviceptr, mut filled: usize, bytes: usize) -> Result<(), CudaError> {
    while filled < bytes {
        let more = filled.min(bytes - filled);
        // SAFETY: both ranges are inside the buffer, and the first ends before the second begins.
        let copied = unsafe { result::memcpy_dtod_async(to + filled as u64, to, more, stream) };
        called("cuMemcpyDtoDAsync", copied)?;
        filled += more;
    }
    Ok(())
}

/// Copies bytes from the device to shared memory.
pub(super) fn copy_out(
    stream: CUstream,
    segment: &PinnedSegment,
    to: Place,
    bytes: u64,
    from: CUdeviceptr,
) -> Result<(), StreamError> {
    let target = start(segment, to, bytes)?;
    for (offset, bytes) in pieces(bytes) {
        // SAFETY: the target is mapped and has this length, no other job has it, the supervisor does not use it until the copy is answered,
        // and the source is at least as long.
        let copied =
            unsafe { sys::cuMemcpyDtoHAsync_v2(target.add(offset).cast(), from + offset as u64, bytes, stream) };
        called("cuMemcpyDtoHAsync", copied.result())?;
    }
    Ok(())
}

/// Returns the address of a range in shared memory, if the range is valid.
fn start(segment: &PinnedSegment, at: Place, bytes: u64) -> Result<*mut u8, StreamError> {
    match segment.range(at, bytes) {
        Some(start) => Ok(start),
        None => internal(format!("{bytes} bytes are not at {at:?}")),
    }
}

/// Returns the offsets and lengths of the pieces of a copy.
fn pieces(bytes: u64) -> impl Iterator<Item = (usize, usize)> {
    let bytes = bytes as usize;
    (0..bytes).step_by(PIECE_BYTES).map(move |offset| (offset, PIECE_BYTES.min(bytes - offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_whole_without_gaps() {
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 7 * PIECE_BYTES + 3] {
            let end = pieces(bytes as u64).fold(0, |end, (offset, length)| {
                assert!(offset == end && (1..=PIECE_BYTES).contains(&length));
                offset + length
            });
            assert_eq!(end, bytes);
        }
    }
}
