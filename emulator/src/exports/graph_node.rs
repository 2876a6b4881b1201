//! Nodes of graphs, and their parameters.

use std::{ffi::c_void, sync::Arc};

use super::{
    call::{In, Out},
    capture::no_edge_data,
    copy::Volume,
    exports,
    graph::handles,
    launch,
    pool::Properties,
};
use crate::driver::{
    context::Context,
    current, driver,
    fill::{Fill, Value},
    graph::{self, memory::GraphMemory},
    handle::Handle,
    launch::{Kernel, Request},
    memory,
    operation::{HostCall, HostFunction, Operation},
    status::{Answer, Status},
};

/// `CUDA_KERNEL_NODE_PARAMS`, in its second and third version.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: In<*const u8>,
    extra: In<usize>,
    kernel: Handle,
    context: Handle,
}

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

/// The start of `CUgraphNodeParams`; what follows depends on the kind.
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

    fn cuGraphAddKernelNode_v2(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<KernelParams>,
    ) {
        add(node, graph, dependencies, count, || params.get()?.work())
    }

    fn cuGraphKernelNodeGetParams_v2(node: Handle, params: Out<KernelParams>) {
        params.fill(|| KernelParams::of(&*kernel_of(node)?))
    }

    fn cuGraphKernelNodeSetParams_v2(node: Handle, params: In<KernelParams>) {
        let kernel = kernel_of(node)?;
        graph::of_node(node)?.set_work(node, params.get()?.work()?)?;
        // Parameters say nothing of it, so a node stays what it was.
        set_cooperative(node, &*kernel_of(node)?, kernel.request.cooperative)
    }

    fn cuGraphKernelNodeGetAttribute(node: Handle, attribute: u32, value: Out<[u64; 8]>) {
        value.fill(|| {
            let kernel = kernel_of(node)?;
            match attribute {
                launch::COOPERATIVE => Ok([kernel.request.cooperative.into(), 0, 0, 0, 0, 0, 0, 0]),
                attribute if launch::HINTS.contains(&attribute) => Ok([0; 8]),
                attribute if launch::CLUSTER_SHAPES.contains(&attribute) => Ok([1 << 32 | 1, 1, 0, 0, 0, 0, 0, 0]),
                _ => Err(Status::InvalidValue),
            }
        })
    }

    fn cuGraphKernelNodeSetAttribute(node: Handle, attribute: u32, value: In<[u64; 8]>) {
        let kernel = kernel_of(node)?;
        match attribute {
            launch::COOPERATIVE => set_cooperative(node, &kernel, value.get()?[0] as u32 != 0),
            attribute if launch::HINTS.contains(&attribute) => Ok(()),
            attribute if launch::CLUSTER_SHAPES.contains(&attribute) => launch::check_cluster(value.get()?),
            _ => Err(Status::InvalidValue),
        }
    }

    fn cuGraphKernelNodeCopyAttributes(target: Handle, source: Handle) {
        set_cooperative(target, &*kernel_of(target)?, kernel_of(source)?.request.cooperative)
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

fn add(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    work: impl FnOnce() -> Answer<Operation>,
) -> Answer {
    node.fill(|| graph::find(graph)?.add(work()?, &handles(dependencies, count)?))
}

/// The context behind a handle, or the current one.
fn context_of(handle: Handle) -> Answer<Arc<Context>> {
    if handle == 0 {
        return current::context();
    }
    let context = driver()?.contexts.get(handle).map_err(|_| Status::InvalidContext)?;
    context.check()?;
    Ok(context)
}

fn kernel_of(node: Handle) -> Answer<Arc<Kernel>> {
    match graph::work_of(node)? {
        Operation::Kernel(kernel) => Ok(kernel),
        _ => Err(Status::InvalidValue),
    }
}

fn set_cooperative(node: Handle, kernel: &Kernel, cooperative: bool) -> Answer {
    let changed = kernel.with_cooperative(cooperative)?;
    graph::of_node(node)?.set_work(node, Operation::Kernel(Arc::new(changed)))
}

pub(super) fn copy_work(volume: Volume, context: Handle) -> Answer<Operation> {
    context_of(context)?;
    let copy = volume.copy()?;
    copy.check()?;
    Ok(Operation::Copy(copy))
}

pub(super) fn record_work(event: Handle) -> Answer<Operation> {
    driver()?.events.get(event).map(|_| Operation::Record(event))
}

pub(super) fn wait_work(event: Handle) -> Answer<Operation> {
    driver()?.events.get(event).map(|_| Operation::Wait(event))
}

fn allocate_work(place: Out<AllocateParams>) -> Answer<Operation> {
    let mut params = place.input().get()?;
    params.pool.check()?;
    let context = current::context()?;
    if params.pool.device() != context.device.ordinal {
        return Err(Status::InvalidValue);
    }
    let memory = GraphMemory::new(&context, params.bytes)?;
    params.address = memory.address;
    place.set(params);
    Ok(Operation::Allocate(memory))
}

fn free_work(address: u64) -> Answer<Operation> {
    if memory::is_of_graph(address)? { Ok(Operation::Free(address)) } else { Err(Status::InvalidValue) }
}

/// Work by the kind that the parameters tell first.
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

impl KernelParams {
    pub(super) fn work(&self) -> Answer<Operation> {
        let request = Request {
            function: if self.function == 0 { self.kernel } else { self.function },
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared_bytes,
            stream: 0,
            cooperative: false,
        };
        let arguments = launch::arguments(self.parameters, self.extra)?;
        let context = context_of(self.context)?;
        // SAFETY: the caller of the exported function vouches for the arguments.
        let kernel = unsafe { Kernel::new(&context, &request, arguments) }?;
        Ok(Operation::Kernel(Arc::new(kernel)))
    }

    fn of(kernel: &Kernel) -> Answer<Self> {
        let Request { function, grid, block, dynamic_shared, .. } = kernel.request;
        Ok(Self {
            function,
            grid,
            block,
            shared_bytes: dynamic_shared,
            // The node keeps the values as long as it has these parameters.
            parameters: In::from_address(kernel.argument_pointers().as_ptr().expose_provenance()),
            extra: In::from_address(0),
            kernel: 0,
            context: kernel.context.handle,
        })
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
        let device = fill.check(&*context_of(context)?)?.ok_or(Status::InvalidValue)?;
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
