//! C functions for the nodes of graphs, except kernel nodes, and their parameters.

use std::{ffi::c_void, sync::Arc};

use gpufleet_surface::argument::{In, Out};

use super::{
    copy::Volume,
    exports,
    graph::{handles, no_edge_data},
    graph_kernel::KernelParams,
    pool::Properties,
};
use crate::driver::{
    context::Context,
    context::contexts,
    current,
    event::events,
    fill::{Fill, Value},
    graph,
    handle::Handle,
    host_call::{HostCall, HostFunction},
    memory,
    memory::allocate::allocate_for_graph,
    operation::Operation,
    status::{Answer, Status},
};

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FillParams {
    address: u64,
    pitch: usize,
    value: u32,
    element_bytes: u32,
    width: usize,
    height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillIn {
    fill: FillParams,
    context: Handle,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HostParams {
    function: Option<HostFunction>,
    data: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AllocateParams {
    pool: Properties,
    accesses: usize,
    access_count: usize,
    bytes: usize,
    address: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParams {
    flags: i32,
    reserved: i32,
    context: Handle,
    volume: Volume,
}

/// The start of `CUgraphNodeParams`; the rest depends on the kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AnyHead {
    kind: u32,
    reserved: [i32; 3],
}

exports! {
    fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize) {
        add(node, graph, dependencies, count, || Ok(Operation::Empty))
    }

    fn cuGraphAddMemcpyNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<Volume>,
        context: Handle,
    ) {
        add(node, graph, dependencies, count, || copy_work(params.get()?, context))
    }

    fn cuGraphMemcpyNodeGetParams(node: Handle, params: Out<Volume>) {
        params.fill(|| match graph::work_of(node)? {
            Operation::Copy(copy) => Ok(Volume::of(&copy)),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphMemcpyNodeSetParams(node: Handle, params: In<Volume>) {
        graph::of_node(node)?.set_work(node, copy_work(params.get()?, 0)?)
    }

    fn cuGraphAddMemsetNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<FillParams>,
        context: Handle,
    ) {
        add(node, graph, dependencies, count, || params.get()?.work(context))
    }

    fn cuGraphMemsetNodeGetParams(node: Handle, params: Out<FillParams>) {
        params.fill(|| match graph::work_of(node)? {
            Operation::Fill(fill, _) => Ok(FillParams::of(&fill)),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphMemsetNodeSetParams(node: Handle, params: In<FillParams>) {
        graph::of_node(node)?.set_work(node, params.get()?.work(0)?)
    }

    fn cuGraphAddHostNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<HostParams>,
    ) {
        add(node, graph, dependencies, count, || params.get()?.work())
    }

    fn cuGraphHostNodeGetParams(node: Handle, params: Out<HostParams>) {
        params.fill(|| match graph::work_of(node)? {
            Operation::Host(HostCall { function, data }) => {
                Ok(HostParams { function: Some(function), data: std::ptr::with_exposed_provenance_mut(data) })
            }
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphHostNodeSetParams(node: Handle, params: In<HostParams>) {
        graph::of_node(node)?.set_work(node, params.get()?.work()?)
    }

    fn cuGraphAddChildGraphNode(node: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, child: Handle) {
        add(node, graph, dependencies, count, || Ok(Operation::Graph(graph::find(child)?)))
    }

    fn cuGraphAddEventRecordNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        event: Handle,
    ) {
        add(node, graph, dependencies, count, || record_work(event))
    }

    fn cuGraphEventRecordNodeGetEvent(node: Handle, event: Out<Handle>) {
        event.fill(|| match graph::work_of(node)? {
            Operation::Record(event) => Ok(event),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle) {
        graph::of_node(node)?.set_work(node, record_work(event)?)
    }

    fn cuGraphAddEventWaitNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        event: Handle,
    ) {
        add(node, graph, dependencies, count, || wait_work(event))
    }

    fn cuGraphEventWaitNodeGetEvent(node: Handle, event: Out<Handle>) {
        event.fill(|| match graph::work_of(node)? {
            Operation::Wait(event) => Ok(event),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle) {
        graph::of_node(node)?.set_work(node, wait_work(event)?)
    }

    fn cuGraphAddMemAllocNode(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: Out<AllocateParams>,
    ) {
        add(node, graph, dependencies, count, || allocate_work(params))
    }

    fn cuGraphMemAllocNodeGetParams(node: Handle, params: Out<AllocateParams>) {
        params.fill(|| match graph::work_of(node)? {
            Operation::Allocate(memory) => Ok(AllocateParams {
                pool: Properties::on(current::context()?.device.ordinal),
                accesses: 0,
                access_count: 0,
                bytes: memory.bytes as usize,
                address: memory.address,
            }),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphAddMemFreeNode(node: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, address: u64) {
        add(node, graph, dependencies, count, || free_work(address))
    }

    fn cuGraphMemFreeNodeGetParams(node: Handle, address: Out<u64>) {
        address.fill(|| match graph::work_of(node)? {
            Operation::Free(address) => Ok(address),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuGraphAddNode(node: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, params: Out<AnyHead>) {
        add(node, graph, dependencies, count, || any_work(params))
    }

    fn cuGraphAddNode_v2(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        data: In<u64>,
        count: usize,
        params: Out<AnyHead>,
    ) {
        no_edge_data(data, count)?;
        add(node, graph, dependencies, count, || any_work(params))
    }

    fn cuGraphNodeSetParams(node: Handle, params: Out<AnyHead>) {
        graph::of_node(node)?.set_work(node, any_work(params)?)
    }
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
    let copy = volume.copy()?;
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
    params.pool.check()?;
    let context = current::context()?;
    if params.pool.device() != context.device.ordinal {
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
        0 => body.cast::<KernelParams>().input().get()?.work(),
        1 => {
            let CopyParams { flags: _, reserved: _, context, volume } = body.cast().input().get()?;
            copy_work(volume, context)
        }
        2 => {
            let FillIn { fill, context } = body.cast().input().get()?;
            fill.work(context)
        }
        3 => body.cast::<HostParams>().input().get()?.work(),
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

impl FillParams {
    pub(super) fn work(&self, context: Handle) -> Answer<Operation> {
        let Self { address, pitch, value, element_bytes, width, height } = *self;
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

    fn of(fill: &Fill) -> Self {
        let (value, element_bytes) = match fill.value {
            Value::One(value) => (value.into(), 1),
            Value::Two(value) => (value.into(), 2),
            Value::Four(value) => (value, 4),
        };
        let Fill { address, width, height, pitch, .. } = *fill;
        Self { address, pitch, value, element_bytes, width, height }
    }
}

impl HostParams {
    pub(super) fn work(&self) -> Answer<Operation> {
        let function = self.function.ok_or(Status::InvalidValue)?;
        Ok(Operation::Host(HostCall { function, data: self.data.expose_provenance() }))
    }
}
