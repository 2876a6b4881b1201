//! C functions for the kernel nodes of graphs and their parameters.

use std::sync::Arc;

use gpufleet_surface::{
    argument::{In, Out},
    launch::{arguments::Arguments, shape::Shape},
    structs::graph::{FirstKernelParams, KernelParams},
};

use super::{
    graph_node::{add, context_of},
    launch,
};
use crate::driver::{
    graph,
    handle::Handle,
    launch::{Kernel, Request},
    operation::Operation,
    status::{Answer, Status},
    submission,
};

pub(super) fn cuGraphAddKernelNode_v2(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<KernelParams>,
) -> Answer {
    add_kernel(node, graph, dependencies, count, || params.get())
}

pub(super) fn cuGraphKernelNodeGetParams_v2(node: Handle, params: Out<KernelParams>) -> Answer {
    params.fill(|| params_of(node))
}

pub(super) fn cuGraphKernelNodeSetParams_v2(node: Handle, params: In<KernelParams>) -> Answer {
    set_kernel(node, &params.get()?)
}

pub(super) fn cuGraphKernelNodeGetAttribute(node: Handle, attribute: u32, value: Out<[u64; 8]>) -> Answer {
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

pub(super) fn cuGraphKernelNodeSetAttribute(node: Handle, attribute: u32, value: In<[u64; 8]>) -> Answer {
    let kernel = kernel_of(node)?;
    match attribute {
        launch::COOPERATIVE => set_cooperative(node, &kernel, value.get()?[0] as u32 != 0),
        attribute if launch::HINTS.contains(&attribute) => Ok(()),
        attribute if launch::CLUSTER_SHAPES.contains(&attribute) => launch::check_cluster(value.get()?),
        _ => Err(Status::InvalidValue),
    }
}

pub(super) fn cuGraphKernelNodeCopyAttributes(target: Handle, source: Handle) -> Answer {
    set_cooperative(target, &*kernel_of(target)?, kernel_of(source)?.request.cooperative)
}

pub(super) fn add_kernel(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: impl FnOnce() -> Answer<KernelParams>,
) -> Answer {
    add(node, graph, dependencies, count, || work(&params()?))
}

pub(super) fn set_kernel(node: Handle, params: &KernelParams) -> Answer {
    let kernel = kernel_of(node)?;
    graph::of_node(node)?.set_work(node, work(params)?)?;
    // The parameters do not include this attribute, so the node keeps it.
    set_cooperative(node, &*kernel_of(node)?, kernel.request.cooperative)
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

/// Makes the work of a kernel node.
pub(super) fn work(params: &KernelParams) -> Answer<Operation> {
    let KernelParams { first, kernel, context } = *params;
    let request = Request {
        function: if first.function == 0 { kernel } else { first.function },
        shape: Shape { grid: first.grid, block: first.block, dynamic_shared: first.shared_bytes },
        stream: 0,
        cooperative: false,
    };
    let arguments = Arguments::of(first.parameters, first.extra)?;
    let context = context_of(context)?;
    // SAFETY: the caller of the exported function vouches for the arguments.
    let kernel = unsafe { submission::kernel(&context, &request, arguments) }?;
    Ok(Operation::Kernel(Arc::new(kernel)))
}

/// Returns the parameters of a kernel node.
pub(super) fn params_of(node: Handle) -> Answer<KernelParams> {
    let kernel = kernel_of(node)?;
    let Request { function, shape: Shape { grid, block, dynamic_shared }, .. } = kernel.request;
    // The pointers are valid as long as the node has these parameters.
    let parameters = In::from_address(kernel.argument_pointers().as_ptr().expose_provenance());
    let extra = In::from_address(0);
    let first = FirstKernelParams { function, grid, block, shared_bytes: dynamic_shared, parameters, extra };
    Ok(KernelParams { first, kernel: 0, context: kernel.context.handle })
}
