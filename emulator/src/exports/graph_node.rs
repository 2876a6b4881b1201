//! C functions for the nodes of graphs, except kernel nodes, and their parameters.

use std::sync::Arc;

use gpufleet_surface::{
    argument::{In, Out},
    structs::{
        copy::Volume,
        graph::{AllocateParams, AnyHead, CopyParams, FillIn, FillParams, HostParams, KernelParams},
        memory::PoolProperties,
    },
};

use super::{
    copy::{self, volume},
    graph::{handles, no_edge_data},
    graph_kernel,
};
use crate::driver::{
    context::Context,
    context::contexts,
    current,
    event::events,
    fill::{Fill, Value},
    graph,
    handle::Handle,
    host_call::HostCall,
    memory,
    memory::allocate::allocate_for_graph,
    operation::Operation,
    status::{Answer, Status},
};

pub(super) fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize) -> Answer {
    add(node, graph, dependencies, count, || Ok(Operation::Empty))
}

pub(super) fn cuGraphAddMemcpyNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<Volume>,
    context: Handle,
) -> Answer {
    add(node, graph, dependencies, count, || copy_work(params.get()?, context))
}

pub(super) fn cuGraphMemcpyNodeGetParams(node: Handle, params: Out<Volume>) -> Answer {
    params.fill(|| match graph::work_of(node)? {
        Operation::Copy(copy) => Ok(volume(&copy)),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphMemcpyNodeSetParams(node: Handle, params: In<Volume>) -> Answer {
    graph::of_node(node)?.set_work(node, copy_work(params.get()?, 0)?)
}

pub(super) fn cuGraphAddMemsetNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<FillParams>,
    context: Handle,
) -> Answer {
    add(node, graph, dependencies, count, || fill_work(&params.get()?, context))
}

pub(super) fn cuGraphMemsetNodeGetParams(node: Handle, params: Out<FillParams>) -> Answer {
    params.fill(|| match graph::work_of(node)? {
        Operation::Fill(fill, _) => Ok(fill_params(&fill)),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphMemsetNodeSetParams(node: Handle, params: In<FillParams>) -> Answer {
    graph::of_node(node)?.set_work(node, fill_work(&params.get()?, 0)?)
}

pub(super) fn cuGraphAddHostNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<HostParams>,
) -> Answer {
    add(node, graph, dependencies, count, || host_work(&params.get()?))
}

pub(super) fn cuGraphHostNodeGetParams(node: Handle, params: Out<HostParams>) -> Answer {
    params.fill(|| match graph::work_of(node)? {
        Operation::Host(HostCall { function, data }) => {
            Ok(HostParams { function: Some(function), data: std::ptr::with_exposed_provenance_mut(data) })
        }
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphHostNodeSetParams(node: Handle, params: In<HostParams>) -> Answer {
    graph::of_node(node)?.set_work(node, host_work(&params.get()?)?)
}

pub(super) fn cuGraphAddChildGraphNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    child: Handle,
) -> Answer {
    add(node, graph, dependencies, count, || Ok(Operation::Graph(graph::find(child)?)))
}

pub(super) fn cuGraphAddEventRecordNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    event: Handle,
) -> Answer {
    add(node, graph, dependencies, count, || record_work(event))
}

pub(super) fn cuGraphEventRecordNodeGetEvent(node: Handle, event: Out<Handle>) -> Answer {
    event.fill(|| match graph::work_of(node)? {
        Operation::Record(event) => Ok(event),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle) -> Answer {
    graph::of_node(node)?.set_work(node, record_work(event)?)
}

pub(super) fn cuGraphAddEventWaitNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    event: Handle,
) -> Answer {
    add(node, graph, dependencies, count, || wait_work(event))
}

pub(super) fn cuGraphEventWaitNodeGetEvent(node: Handle, event: Out<Handle>) -> Answer {
    event.fill(|| match graph::work_of(node)? {
        Operation::Wait(event) => Ok(event),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle) -> Answer {
    graph::of_node(node)?.set_work(node, wait_work(event)?)
}

pub(super) fn cuGraphAddMemAllocNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: Out<AllocateParams>,
) -> Answer {
    add(node, graph, dependencies, count, || allocate_work(params))
}

pub(super) fn cuGraphMemAllocNodeGetParams(node: Handle, params: Out<AllocateParams>) -> Answer {
    params.fill(|| match graph::work_of(node)? {
        Operation::Allocate(memory) => Ok(AllocateParams {
            pool: PoolProperties::on(current::context()?.device.ordinal),
            accesses: 0,
            access_count: 0,
            bytes: memory.bytes as usize,
            address: memory.address,
        }),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphAddMemFreeNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    address: u64,
) -> Answer {
    add(node, graph, dependencies, count, || free_work(address))
}

pub(super) fn cuGraphMemFreeNodeGetParams(node: Handle, address: Out<u64>) -> Answer {
    address.fill(|| match graph::work_of(node)? {
        Operation::Free(address) => Ok(address),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphAddNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: Out<AnyHead>,
) -> Answer {
    add(node, graph, dependencies, count, || any_work(params))
}

pub(super) fn cuGraphAddNode_v2(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    data: In<u64>,
    count: usize,
    params: Out<AnyHead>,
) -> Answer {
    no_edge_data(data, count)?;
    add(node, graph, dependencies, count, || any_work(params))
}

pub(super) fn cuGraphNodeSetParams(node: Handle, params: Out<AnyHead>) -> Answer {
    graph::of_node(node)?.set_work(node, any_work(params)?)
}

pub(super) fn add(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    work: impl FnOnce() -> Answer<Operation>,
) -> Answer {
    node.fill(|| graph::find(graph)?.add(work()?, &handles(dependencies, count)?))
}

/// Returns the context behind a handle; the current one for null.
pub(super) fn context_of(handle: Handle) -> Answer<Arc<Context>> {
    if handle == 0 {
        return current::context();
    }
    let context = contexts()?.get(handle).map_err(|_| Status::InvalidContext)?;
    context.check()?;
    Ok(context)
}

pub(super) fn copy_work(volume: Volume, context: Handle) -> Answer<Operation> {
    context_of(context)?;
    let copy = copy::copy(&volume)?;
    copy.check()?;
    Ok(Operation::Copy(copy))
}

pub(super) fn record_work(event: Handle) -> Answer<Operation> {
    events()?.get(event).map(|_| Operation::Record(event))
}

pub(super) fn wait_work(event: Handle) -> Answer<Operation> {
    events()?.get(event).map(|_| Operation::Wait(event))
}

fn allocate_work(place: Out<AllocateParams>) -> Answer<Operation> {
    let mut params = place.input().get()?;
    let device = params.pool.device()?;
    let context = current::context()?;
    if device != context.device.ordinal {
        return Err(Status::InvalidValue);
    }
    let memory = allocate_for_graph(&context, params.bytes)?;
    params.address = memory.address;
    place.set(params);
    Ok(Operation::Allocate(memory))
}

fn free_work(address: u64) -> Answer<Operation> {
    if memory::is_of_graph(address)? { Ok(Operation::Free(address)) } else { Err(Status::InvalidValue) }
}

/// Makes the work of a node, whose kind is the first field of the parameters.
pub(super) fn any_work(params: Out<AnyHead>) -> Answer<Operation> {
    let AnyHead { kind, reserved: _ } = params.input().get()?;
    let body = params.at(1);
    let handle = || body.cast::<Handle>().input().get();
    match kind {
        0 => graph_kernel::work(&body.cast::<KernelParams>().input().get()?),
        1 => {
            let CopyParams { flags: _, reserved: _, context, volume } = body.cast().input().get()?;
            copy_work(volume, context)
        }
        2 => {
            let FillIn { fill, context } = body.cast().input().get()?;
            fill_work(&fill, context)
        }
        3 => host_work(&body.cast::<HostParams>().input().get()?),
        4 => Ok(Operation::Graph(graph::find(handle()?)?)),
        5 => Ok(Operation::Empty),
        6 => wait_work(handle()?),
        7 => record_work(handle()?),
        10 => allocate_work(body.cast()),
        11 => free_work(body.cast::<u64>().input().get()?),
        8 | 9 | 12 | 13 => Err(Status::NotSupported),
        _ => Err(Status::InvalidValue),
    }
}

/// Makes the work of a node that fills memory.
pub(super) fn fill_work(params: &FillParams, context: Handle) -> Answer<Operation> {
    let FillParams { address, pitch, value, element_bytes, width, height } = *params;
    let value = match element_bytes {
        1 => u8::try_from(value).map(Value::One).map_err(|_| Status::InvalidValue)?,
        2 => u16::try_from(value).map(Value::Two).map_err(|_| Status::InvalidValue)?,
        4 => Value::Four(value),
        _ => return Err(Status::InvalidValue),
    };
    let fill = Fill { address, value, width, height, pitch };
    let device = fill.check(context_of(context)?.device)?.ok_or(Status::InvalidValue)?;
    Ok(Operation::Fill(fill, device))
}

fn fill_params(fill: &Fill) -> FillParams {
    let (value, element_bytes) = match fill.value {
        Value::One(value) => (value.into(), 1),
        Value::Two(value) => (value.into(), 2),
        Value::Four(value) => (value, 4),
    };
    let Fill { address, width, height, pitch, .. } = *fill;
    FillParams { address, pitch, value, element_bytes, width, height }
}

/// Makes the work of a node that calls a function of the caller.
pub(super) fn host_work(params: &HostParams) -> Answer<Operation> {
    let function = params.function.ok_or(Status::InvalidValue)?;
    Ok(Operation::Host(HostCall { function, data: params.data.expose_provenance() }))
}
