//! C functions for the kernel nodes of graphs and their parameters.

use std::sync::Arc;

use gpufleet_surface::argument::{In, Out};

use super::{
    exports,
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

/// `CUDA_KERNEL_NODE_PARAMS`, in its second and third versions.
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

/// `CUDA_KERNEL_NODE_PARAMS` in its first version, with which the later versions begin.
pub(super) type FirstKernelParams = [u64; 7];

exports! {
    fn cuGraphAddKernelNode_v2(
        node: Out<Handle>,
        graph: Handle,
        dependencies: In<Handle>,
        count: usize,
        params: In<KernelParams>,
    ) {
        add_kernel(node, graph, dependencies, count, || params.get())
    }

    fn cuGraphKernelNodeGetParams_v2(node: Handle, params: Out<KernelParams>) {
        params.fill(|| KernelParams::of(&*kernel_of(node)?))
    }

    fn cuGraphKernelNodeSetParams_v2(node: Handle, params: In<KernelParams>) {
        set_kernel(node, &params.get()?)
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
}

pub(super) fn add_kernel(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: impl FnOnce() -> Answer<KernelParams>,
) -> Answer {
    add(node, graph, dependencies, count, || params()?.work())
}

pub(super) fn set_kernel(node: Handle, params: &KernelParams) -> Answer {
    let kernel = kernel_of(node)?;
    graph::of_node(node)?.set_work(node, params.work()?)?;
    // The parameters do not include this attribute, so the node keeps it.
    set_cooperative(node, &*kernel_of(node)?, kernel.request.cooperative)
}

/// Converts parameters of the first version, which had neither kernel nor context.
pub(super) fn of_first(params: FirstKernelParams) -> KernelParams {
    let [function, grid, grid_and_block, block, shared_bytes, parameters, extra] = params;
    KernelParams {
        function: function as Handle,
        grid: [grid as u32, (grid >> 32) as u32, grid_and_block as u32],
        block: [(grid_and_block >> 32) as u32, block as u32, (block >> 32) as u32],
        shared_bytes: shared_bytes as u32,
        parameters: In::from_address(parameters as usize),
        extra: In::from_address(extra as usize),
        kernel: 0,
        context: 0,
    }
}

/// Returns a node's parameters in their first version.
pub(super) fn first_of(node: Handle) -> Answer<FirstKernelParams> {
    let params = KernelParams::of(&*kernel_of(node)?)?;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let ([x, y, z], [width, height, depth]) = (params.grid, params.block);
    let [parameters, extra] = [params.parameters.pointer().addr(), params.extra.pointer().addr()];
    let (function, shared_bytes) = (params.function as u64, params.shared_bytes.into());
    Ok([function, pair(x, y), pair(z, width), pair(height, depth), shared_bytes, parameters as u64, extra as u64])
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
        let kernel = unsafe { submission::kernel(&context, &request, arguments) }?;
        Ok(Operation::Kernel(Arc::new(kernel)))
    }

    fn of(kernel: &Kernel) -> Answer<Self> {
        let Request { function, grid, block, dynamic_shared, .. } = kernel.request;
        Ok(Self {
            function,
            grid,
            block,
            shared_bytes: dynamic_shared,
            // The pointers are valid as long as the node has these parameters.
            parameters: In::from_address(kernel.argument_pointers().as_ptr().expose_provenance()),
            extra: In::from_address(0),
            kernel: 0,
            context: kernel.context.handle,
        })
    }
}
