//! Device memory: calls that allocate, free and query.

pub mod allocate;
pub mod pools;
pub mod table;

use super::{
    capture,
    context::Job,
    current,
    device::{Device, DeviceFault},
    driver,
    faults::Site,
    handle::Handle,
    injection,
    operation::Operation,
    pool::pools,
    status::{Answer, Status},
    stream,
};
use crate::memory::ALLOCATION_ALIGN;
use allocate::{Purpose, allocate, allocate_for_graph};
use table::Allocation;

/// Pitched memory: rows, each padded for aligned access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pitched {
    pub address: u64,
    pub pitch: usize,
}

/// `cuMemAlloc`.
pub fn alloc(bytes: usize) -> Answer<u64> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    allocate(&context, bytes, Purpose::default())
}

/// `cuMemAllocManaged`. Device addresses are host addresses here, so any allocation works as managed memory.
pub fn alloc_managed(bytes: usize, flags: u32) -> Answer<u64> {
    /// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`; attachment to a single stream is a separate, later call.
    const FLAGS: std::ops::RangeInclusive<u32> = 1..=2;
    if !FLAGS.contains(&flags) {
        return Err(Status::InvalidValue);
    }
    let context = current::context()?;
    capture::forbid_unsafe()?;
    allocate(&context, bytes, Purpose { managed: true, ..Purpose::default() })
}

/// `cuMemAllocPitch`.
pub fn alloc_pitch(width_bytes: usize, height: usize, element_bytes: u32) -> Answer<Pitched> {
    if !matches!(element_bytes, 4 | 8 | 16) || width_bytes == 0 || height == 0 {
        return Err(Status::InvalidValue);
    }
    let pitch = width_bytes.checked_next_multiple_of(ALLOCATION_ALIGN as usize).ok_or(Status::OutOfMemory)?;
    let bytes = pitch.checked_mul(height).ok_or(Status::OutOfMemory)?;
    Ok(Pitched { address: alloc(bytes)?, pitch })
}

/// `cuMemAllocAsync` and `cuMemAllocFromPoolAsync`. The caller needs the address immediately, so the memory is
/// allocated immediately; the caller has to use it in stream order.
pub fn alloc_async(bytes: usize, pool: Option<Handle>, stream: Handle) -> Answer<u64> {
    let (context, stream) = stream::find(stream)?;
    if let Some(taken) = capture::of(&stream)? {
        let memory = allocate_for_graph(&context, bytes).map_err(|status| taken.spoil(status))?;
        let address = memory.address;
        return taken.add(Operation::Allocate(memory)).map(|_| address);
    }
    let pool = pool.unwrap_or_else(|| context.device.current_pool());
    if pools()?.get(pool)?.device != context.device.ordinal {
        return Err(Status::InvalidValue);
    }
    allocate(&context, bytes, Purpose { pool: Some(pool), ..Purpose::default() })
}

/// `cuMemFree`. Waits for work in flight, which may still use the memory.
pub fn free(address: u64) -> Answer {
    let context = current::context()?;
    if address == 0 {
        return Ok(());
    }
    let device = owner(address)?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    device.free_for_caller(address)
}

/// Reports whether a graph owns the allocation that starts here.
pub fn is_of_graph(address: u64) -> Answer<bool> {
    Ok(owner(address)?.allocations.get(address).is_some_and(|allocation| allocation.graph.is_some()))
}

/// `cuMemFreeAsync`: frees the memory when the stream reaches this point.
pub fn free_async(address: u64, stream: Handle) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let device = owner(address)?;
    if let Some(taken) = capture::of(&stream)? {
        let freed = if is_of_graph(address)? { Ok(Operation::Free(address)) } else { Err(Status::InvalidValue) };
        return taken.add(freed.map_err(|status| taken.spoil(status))?).map(drop);
    }
    let work = Box::new(move || {
        device.free_for_caller(address).map_err(|status| {
            DeviceFault::new(status, format!("double free: a stream freed {address:#x}, which was already free"))
        })
    });
    context.enqueue(&stream, Job { after: Vec::new(), brief: true, work }).map(drop)
}

/// Makes an allocation read-only for kernels until the host writes to it.
pub fn protect(address: u64) -> Answer {
    let driver = driver()?;
    if !driver.settings.protects {
        return Err(Status::NotSupported);
    }
    owner(address)?.memory.protect(address).map_err(|_| Status::InvalidValue)
}

/// Returns free and total bytes of the current device.
pub fn info() -> Answer<(usize, usize)> {
    let context = current::context()?;
    injection::call(&context, Site::Info)?;
    let (free, total) = context.device.memory.info();
    Ok((free as usize, total as usize))
}

/// Returns start and bytes of the allocation, or of the pinned host memory, that contains an address.
pub fn range(address: u64) -> Answer<(u64, usize)> {
    current::context()?;
    if let Some(block) = driver()?.host.find(address as usize) {
        return Ok((block.base as u64, block.bytes));
    }
    let device = driver()?.device_of(address).ok_or(Status::NotFound)?;
    let (base, bytes) = device.memory.find(address).ok_or(Status::NotFound)?;
    Ok((base, bytes as usize))
}

/// Checks that a range is in managed memory.
pub fn check_managed(address: u64, bytes: usize) -> Answer {
    current::context()?;
    let device = driver()?.device_of(address).ok_or(Status::InvalidValue)?;
    let (base, length) = device.memory.find(address).ok_or(Status::InvalidValue)?;
    let is_managed = device.allocations.get(base).is_some_and(|allocation| allocation.managed);
    if is_managed && bytes as u64 <= length - (address - base) { Ok(()) } else { Err(Status::InvalidValue) }
}

/// Returns the device with an allocation that starts at this address.
fn owner(address: u64) -> Answer<&'static Device> {
    let owner = driver()?.devices.iter().find(|device| device.allocations.get(address).is_some());
    owner.ok_or(Status::InvalidValue)
}

impl Device {
    /// Frees memory for the caller. Memory of a graph stays until the graph is gone, because the graph may be launched
    /// again.
    fn free_for_caller(&self, address: u64) -> Answer {
        match self.allocations.get(address) {
            Some(Allocation { graph: Some(_), .. }) => Ok(()),
            _ => self.allocations.free(address, &self.memory),
        }
    }
}
