//! First versions of functions, which become calls of the later ones.

use gpufleet_remote::{
    kinds::{Graph, GraphExec, GraphNode, HostAddress, Stream},
    roles::{Always, Count, Many},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::Answer,
    structs::graph::{FirstKernelParams, KernelParams, UpdateResult},
};

use super::{
    graph_exec::cuGraphExecKernelNodeSetParams_v2,
    graph_kernel::{cuGraphAddKernelNode_v2, cuGraphKernelNodeSetParams_v2},
};
use crate::{host_memory, messages, rows};

/// Calls `call` with parameters in their later version.
fn later(params: In<FirstKernelParams>, call: impl FnOnce(In<KernelParams>) -> Answer) -> Answer {
    let params = KernelParams::from(params.get()?);
    // SAFETY: the structure lives until the call has ended.
    call(unsafe { In::from_pointer(&raw const params) })
}

pub(crate) fn cuGraphAddKernelNode(
    node: Out<GraphNode>,
    graph: Graph,
    dependencies: In<GraphNode>,
    count: usize,
    params: In<FirstKernelParams>,
) -> Answer {
    later(params, |params| cuGraphAddKernelNode_v2(node, graph, Many(dependencies), Count(count), params))
}

pub(crate) fn cuGraphKernelNodeGetParams(node: GraphNode, params: Out<FirstKernelParams>) -> Answer {
    let _ = (node, params);
    Err(messages::refuse("cuGraphKernelNodeGetParams"))
}

pub(crate) fn cuGraphKernelNodeSetParams(node: GraphNode, params: In<FirstKernelParams>) -> Answer {
    later(params, |params| cuGraphKernelNodeSetParams_v2(node, params))
}

pub(crate) fn cuGraphExecKernelNodeSetParams(
    exec: GraphExec,
    node: GraphNode,
    params: In<FirstKernelParams>,
) -> Answer {
    later(params, |params| cuGraphExecKernelNodeSetParams_v2(exec, node, params))
}

pub(crate) fn cuMemAllocHost(pointer: Out<HostAddress>, bytes: u32) -> Answer {
    pointer.fill(|| host_memory::allocate(bytes as usize, 0).map(HostAddress))
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL` is what captures were before they had modes.
pub(crate) fn cuStreamBeginCapture(stream: Stream) -> Answer {
    rows::cuStreamBeginCapture_v2(stream, 0)
}

pub(crate) fn cuGraphInstantiate(
    exec: Out<GraphExec>,
    graph: Graph,
    error_node: Out<GraphNode>,
    log: Out<u8>,
    room: usize,
) -> Answer {
    error_node.set(GraphNode(0));
    if room > 0 {
        // There is no log; the code says it all.
        log.set(0);
    }
    rows::cuGraphInstantiateWithFlags(exec, graph, 0)
}

pub(crate) fn cuGraphInstantiate_v2(
    exec: Out<GraphExec>,
    graph: Graph,
    error_node: Out<GraphNode>,
    log: Out<u8>,
    room: usize,
) -> Answer {
    cuGraphInstantiate(exec, graph, error_node, log, room)
}

pub(crate) fn cuGraphExecUpdate(exec: GraphExec, graph: Graph, error_node: Out<GraphNode>, result: Out<u32>) -> Answer {
    let mut updated = UpdateResult { result: 0, error_node: 0, error_from_node: 0 };
    // SAFETY: the place lives until the call has ended.
    let answer = rows::cuGraphExecUpdate_v2(exec, graph, Always(unsafe { Out::from_pointer(&raw mut updated) }));
    error_node.set(GraphNode(updated.error_node as u64));
    result.set(updated.result);
    answer
}
