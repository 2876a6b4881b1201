//! Allocation of device memory for calls and graphs.

use std::sync::Arc;

use super::table::Allocation;
use crate::driver::{
    context::Context,
    faults::Site,
    graph::memory::GraphMemory,
    handle::{Handle, fresh},
    injection,
    pool::pools,
    status::{Answer, Status},
};
use crate::memory::Owner;

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Purpose {
    pub pool: Option<Handle>,
    pub managed: bool,
    pub graph: Option<Handle>,
}

pub fn allocate(context: &Arc<Context>, bytes: usize, purpose: Purpose) -> Answer<u64> {
    let Purpose { pool, managed, graph } = purpose;
    if bytes == 0 {
        return Err(Status::InvalidValue);
    }
    injection::call(context, Site::Allocation)?;
    let device = context.device;
    let bytes = bytes as u64;
    let pool = pool.map(|pool| pools()?.get(pool).map(|known| (pool, known))).transpose()?;
    if let Some((_, pool)) = &pool {
        pool.take(bytes)?;
    }
    let drawn = draw(context, Owner::Program, bytes);
    if let (Err(_), Some((_, pool))) = (&drawn, &pool) {
        pool.give(bytes);
    }
    let (address, pool) = (drawn?, pool.map(|(handle, _)| handle));
    device.allocations.insert(address, Allocation { context: context.handle, bytes, pool, managed, graph });
    Ok(address)
}

/// Allocates device memory for an owner.
pub fn draw(context: &Context, owner: Owner, bytes: u64) -> Answer<u64> {
    let device = context.device;
    match device.memory.alloc_for(owner, bytes) {
        Ok(address) => Ok(address),
        // Memory that streams have yet to free may suffice.
        Err(_) => {
            context.synchronize()?;
            device.memory.alloc_for(owner, bytes).map_err(|_| Status::OutOfMemory)
        }
    }
}

/// Allocates memory for a graph. It belongs to no pool and has the graph's mark.
pub fn allocate_for_graph(context: &Arc<Context>, bytes: usize) -> Answer<Arc<GraphMemory>> {
    let mark = fresh();
    let address = allocate(context, bytes, Purpose { graph: Some(mark), ..Purpose::default() })?;
    context.device.graph_bytes.add(bytes as u64);
    Ok(Arc::new(GraphMemory { address, bytes: bytes as u64, mark, device: context.device }))
}
