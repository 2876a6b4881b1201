//! Device memory: who allocated what, and the calls that allocate, free and ask.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    capture,
    context::{Context, Job},
    current,
    device::{Device, DeviceFault},
    driver,
    graph::memory::GraphMemory,
    handle::Handle,
    injection::{self, Site},
    operation::Operation,
    status::{Answer, Status},
    stream,
};
use crate::memory::{ALLOCATION_ALIGN, Memory};

/// The allocations of one device that callers made. A module's variables are its own and not among them.
#[derive(Debug, Default)]
pub struct Allocations {
    live: Mutex<HashMap<u64, Allocation>>,
}

/// Where an allocation came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    pub context: Handle,
    pub bytes: u64,
    /// The pool that it was drawn from, for stream-ordered allocations.
    pub pool: Option<Handle>,
    /// Made for host and device alike.
    pub managed: bool,
    /// Owned by graphs, under this mark of theirs.
    pub graph: Option<Handle>,
}

/// What an allocation is for.
#[derive(Debug, Clone, Copy, Default)]
struct Purpose {
    pool: Option<Handle>,
    managed: bool,
    graph: Option<Handle>,
}

/// Rows with the room between them that suits aligned access.
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

/// `cuMemAllocManaged`: device addresses are host addresses here, so every allocation suits both.
pub fn alloc_managed(bytes: usize, flags: u32) -> Answer<u64> {
    /// Global or host attachment; a single stream's is set later.
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

/// `cuMemAllocAsync` and `cuMemAllocFromPoolAsync`. The address is needed at once, so the memory is taken at once;
/// that it is used in the stream's order is up to the caller.
pub fn alloc_async(bytes: usize, pool: Option<Handle>, stream: Handle) -> Answer<u64> {
    let (context, stream) = stream::find(stream)?;
    if let Some(taken) = capture::of(&stream)? {
        let memory = GraphMemory::new(&context, bytes).map_err(|status| taken.spoil(status))?;
        let address = memory.address;
        return taken.add(Operation::Allocate(memory)).map(|_| address);
    }
    let pool = pool.unwrap_or_else(|| context.device.current_pool());
    if driver()?.pools.get(pool)?.device != context.device.ordinal {
        return Err(Status::InvalidValue);
    }
    allocate(&context, bytes, Purpose { pool: Some(pool), ..Purpose::default() })
}

/// `cuMemFree`: work in flight may still use the memory, so it ends first.
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

/// Memory for a graph, which is in no pool and under the graph's mark.
pub fn allocate_for_graph(context: &Arc<Context>, bytes: usize, mark: Handle) -> Answer<u64> {
    allocate(context, bytes, Purpose { graph: Some(mark), ..Purpose::default() })
}

/// Does a graph own the allocation that starts here?
pub fn is_of_graph(address: u64) -> Answer<bool> {
    Ok(owner(address)?.allocations.get(address).is_some_and(|allocation| allocation.graph.is_some()))
}

/// `cuMemFreeAsync`: the memory goes back when the stream comes to it.
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

/// Free and total bytes of the current device.
pub fn info() -> Answer<(usize, usize)> {
    let context = current::context()?;
    injection::call(&context, Site::Info)?;
    let (free, total) = context.device.memory.info();
    Ok((free as usize, total as usize))
}

/// Start and bytes of the allocation around an address.
pub fn range(address: u64) -> Answer<(u64, usize)> {
    current::context()?;
    let device = device_of(address).ok_or(Status::NotFound)?;
    let (base, bytes) = device.memory.find(address).ok_or(Status::NotFound)?;
    Ok((base, bytes as usize))
}

/// The device in whose memory an address lies; none for host memory, pinned or not.
pub fn device_of(address: u64) -> Option<&'static Device> {
    let driver = driver().ok()?;
    if driver.host.find(address as usize).is_some() {
        return None;
    }
    driver.devices.iter().find(|device| device.memory.find(address).is_some())
}

fn allocate(context: &Arc<Context>, bytes: usize, purpose: Purpose) -> Answer<u64> {
    let Purpose { pool, managed, graph } = purpose;
    if bytes == 0 {
        return Err(Status::InvalidValue);
    }
    injection::call(context, Site::Allocation)?;
    let device = context.device;
    let bytes = bytes as u64;
    let pool = pool.map(|pool| driver()?.pools.get(pool).map(|known| (pool, known))).transpose()?;
    if let Some((_, pool)) = &pool {
        pool.take(bytes)?;
    }
    let drawn = draw(context, bytes);
    if let (Err(_), Some((_, pool))) = (&drawn, &pool) {
        pool.give(bytes);
    }
    let (address, pool) = (drawn?, pool.map(|(handle, _)| handle));
    device.allocations.live().insert(address, Allocation { context: context.handle, bytes, pool, managed, graph });
    Ok(address)
}

/// Takes device memory.
fn draw(context: &Context, bytes: u64) -> Answer<u64> {
    let device = context.device;
    match device.memory.alloc(bytes) {
        Ok(address) => Ok(address),
        // What streams have yet to free may be enough.
        Err(_) => {
            context.synchronize()?;
            device.memory.alloc(bytes).map_err(|_| Status::OutOfMemory)
        }
    }
}

/// The device that has an allocation starting right here.
fn owner(address: u64) -> Answer<&'static Device> {
    let owner = driver()?.devices.iter().find(|device| device.allocations.get(address).is_some());
    owner.ok_or(Status::InvalidValue)
}

impl Device {
    /// What a graph owns stays until the graph is gone: it may be launched again.
    fn free_for_caller(&self, address: u64) -> Answer {
        match self.allocations.get(address) {
            Some(Allocation { graph: Some(_), .. }) => Ok(()),
            _ => self.free(address),
        }
    }

    pub(super) fn free(&self, address: u64) -> Answer {
        let allocation = self.allocations.live().remove(&address).ok_or(Status::InvalidValue)?;
        self.memory.free(address).expect("a listed allocation is live in the memory that it came from");
        give_to_pool(allocation);
        Ok(())
    }
}

impl Allocations {
    /// The allocation that starts at an address.
    pub fn get(&self, address: u64) -> Option<Allocation> {
        self.live().get(&address).copied()
    }

    /// Frees everything that a context allocated.
    pub fn free_all_of(&self, context: Handle, memory: &Memory) {
        self.live().retain(|address, allocation| {
            if allocation.context == context {
                memory.free(*address).expect("a listed allocation is live in the memory that it came from");
                give_to_pool(*allocation);
            }
            allocation.context != context
        });
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Allocation>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool may be destroyed while memory from it is still in use. That memory is then no longer counted.
fn give_to_pool(allocation: Allocation) {
    let pool = allocation.pool.and_then(|pool| driver().ok()?.pools.get(pool).ok());
    if let Some(pool) = pool {
        pool.give(allocation.bytes);
    }
}
