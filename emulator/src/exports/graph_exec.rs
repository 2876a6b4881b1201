//! C functions for executable graphs (`cuGraphInstantiate*`, `cuGraphExec*`).

use gpufleet_surface::{
    argument::{In, Out},
    structs::{
        copy::Volume,
        graph::{AnyHead, FillParams, HostParams, InstantiateParams, KernelParams, UpdateResult},
    },
};

use super::{
    graph_kernel,
    graph_node::{any_work, copy_work, fill_work, host_work, record_work, wait_work},
};
use crate::driver::{
    graph::{self, exec, plan::Mismatch},
    handle::Handle,
    operation::Operation,
    status::{Answer, Status},
    stream,
};

/// `CUDA_GRAPH_INSTANTIATE_SUCCESS`, `_ERROR` and `_INVALID_STRUCTURE`.
const INSTANTIATED: u32 = 0;
const INSTANTIATE_ERROR: u32 = 1;
const INVALID_STRUCTURE: u32 = 2;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`, allowed only for the call that has a stream for it.
const UPLOAD: u64 = 2;

pub(super) fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, flags: u64) -> Answer {
    if flags & UPLOAD != 0 {
        return Err(Status::InvalidValue);
    }
    exec.fill(|| instantiate(graph, flags))
}

pub(super) fn cuGraphExecGetFlags(exec: Handle, flags: Out<u64>) -> Answer {
    flags.fill(|| Ok(exec::find(exec)?.flags & !UPLOAD))
}

pub(super) fn cuGraphExecDestroy(exec: Handle) -> Answer {
    exec::destroy(exec)
}

pub(super) fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: Out<UpdateResult>) -> Answer {
    update(exec, graph, |number, node| {
        result.set(UpdateResult { result: number, error_node: node, error_from_node: 0 });
    })
}

pub(super) fn cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: In<KernelParams>) -> Answer {
    set_kernel(exec, node, &params.get()?)
}

pub(super) fn cuGraphExecMemcpyNodeSetParams(
    exec: Handle,
    node: Handle,
    params: In<Volume>,
    context: Handle,
) -> Answer {
    set(exec, node, || copy_work(params.get()?, context))
}

pub(super) fn cuGraphExecMemsetNodeSetParams(
    exec: Handle,
    node: Handle,
    params: In<FillParams>,
    context: Handle,
) -> Answer {
    set(exec, node, || fill_work(&params.get()?, context))
}

pub(super) fn cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: In<HostParams>) -> Answer {
    set(exec, node, || host_work(&params.get()?))
}

pub(super) fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle) -> Answer {
    set(exec, node, || Ok(Operation::Graph(graph::find(child)?)))
}

pub(super) fn cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle) -> Answer {
    set(exec, node, || record_work(event))
}

pub(super) fn cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle) -> Answer {
    set(exec, node, || wait_work(event))
}

pub(super) fn cuGraphExecNodeSetParams(exec: Handle, node: Handle, params: Out<AnyHead>) -> Answer {
    match any_work(params)? {
        work @ Operation::Kernel(_) => exec::find(exec)?.set_kernel(node, work),
        work => set(exec, node, || Ok(work)),
    }
}

pub(super) fn cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32) -> Answer {
    exec::find(exec)?.set_enabled(node, enabled != 0)
}

pub(super) fn cuGraphNodeGetEnabled(exec: Handle, node: Handle, enabled: Out<u32>) -> Answer {
    enabled.fill(|| Ok(exec::find(exec)?.is_enabled(node)?.into()))
}

pub(super) fn cuGraphInstantiateWithParams(exec: Out<Handle>, graph: Handle, place: Out<InstantiateParams>) -> Answer {
    let mut params = place.input().get()?;
    if params.flags & UPLOAD != 0 {
        stream::find(params.upload_stream)?;
    }
    let made = graph::find(graph).and_then(|graph| exec::instantiate(&graph, params.flags));
    params.error_node = 0;
    params.result = match made {
        Ok(_) => INSTANTIATED,
        Err(Status::InvalidValue) => INVALID_STRUCTURE,
        Err(_) => INSTANTIATE_ERROR,
    };
    place.set(params);
    exec.fill(|| made)
}

/// Does nothing, because nothing has to be uploaded beforehand.
pub(super) fn cuGraphUpload(exec: Handle, stream: Handle) -> Answer {
    exec::find(exec)?;
    stream::find(stream).map(drop)
}

pub(super) fn cuGraphLaunch(exec: Handle, stream: Handle) -> Answer {
    exec::launch(exec, stream)
}

pub(super) fn instantiate(graph: Handle, flags: u64) -> Answer<Handle> {
    exec::instantiate(&graph::find(graph)?, flags)
}

/// Takes over the parameters of a graph. Calls `tell` with the number of the result and the node that does not match.
pub(super) fn update(exec: Handle, graph: Handle, tell: impl FnOnce(u32, Handle)) -> Answer {
    let updated = exec::find(exec)?.update(&graph::find(graph)?)?;
    let Mismatch { result, node } = updated.err().unwrap_or(Mismatch { result: 0, node: 0 });
    tell(result, node);
    updated.map_err(|_| Status::GraphExecUpdateFailure)
}

pub(super) fn set_kernel(exec: Handle, node: Handle, params: &KernelParams) -> Answer {
    exec::find(exec)?.set_kernel(node, graph_kernel::work(params)?)
}

fn set(exec: Handle, node: Handle, work: impl FnOnce() -> Answer<Operation>) -> Answer {
    exec::find(exec)?.set_work(node, work()?)
}
