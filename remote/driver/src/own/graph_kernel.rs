//! Kernel nodes, whose arguments are packed before they are sent.

use gpufleet_remote::{
    kinds::{Function, Graph, GraphNode},
    roles::{Count, Many, New, Packed},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::Answer,
    structs::graph::KernelParams,
};

use crate::{functions::pack, messages, rows};

/// Calls `call` with parameters whose arguments are in a buffer.
pub(super) fn with_params(params: In<KernelParams>, call: impl FnOnce(In<KernelParams>) -> Answer) -> Answer {
    if params.is_null() {
        return call(params);
    }
    let mut params = params.get()?;
    let function = if params.first.function == 0 { params.kernel } else { params.first.function };
    let mut packed = pack(Function(function as u64), params.first.parameters, params.first.extra)?;
    params.first.parameters = In::NULL;
    if let Some(packed) = &mut packed {
        params.first.extra = Packed::extra(packed);
    }
    // SAFETY: the structure and the buffer live until the call has ended.
    call(unsafe { In::from_pointer(&raw const params) })
}

pub(crate) fn cuGraphAddKernelNode_v2(
    node: New<GraphNode>,
    graph: Graph,
    dependencies: Many<GraphNode>,
    count: Count,
    params: In<KernelParams>,
) -> Answer {
    with_params(params, |params| rows::cuGraphAddKernelNode_v2(node, graph, dependencies, count, params))
}

/// A driver returns pointers to its own copies of the arguments, which are not in this process.
pub(crate) fn cuGraphKernelNodeGetParams_v2(node: GraphNode, params: Out<KernelParams>) -> Answer {
    let _ = (node, params);
    Err(messages::refuse("cuGraphKernelNodeGetParams"))
}

pub(crate) fn cuGraphKernelNodeSetParams_v2(node: GraphNode, params: In<KernelParams>) -> Answer {
    with_params(params, |params| rows::cuGraphKernelNodeSetParams_v2(node, params))
}
