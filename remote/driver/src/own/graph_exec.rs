//! New parameters for nodes of graphs that were instantiated.

use gpufleet_remote::{
    kinds::{Context, Event, Graph, GraphExec, GraphNode},
    roles::InOut,
};
use gpufleet_surface::{
    argument::In,
    status::{Answer, Status},
    structs::graph::{AnyHead, KernelParams},
};

use super::{
    graph_kernel::with_params,
    graph_node::{AnyParams, any},
};
use crate::rows;

pub(crate) fn cuGraphExecKernelNodeSetParams_v2(exec: GraphExec, node: GraphNode, params: In<KernelParams>) -> Answer {
    with_params(params, |params| rows::cuGraphExecKernelNodeSetParams_v2(exec, node, params))
}

pub(crate) fn cuGraphExecNodeSetParams(exec: GraphExec, node: GraphNode, params: InOut<AnyHead>) -> Answer {
    match any(params)? {
        AnyParams::Kernel(params) => cuGraphExecKernelNodeSetParams_v2(exec, node, params),
        AnyParams::Copy(volume, context) => rows::cuGraphExecMemcpyNodeSetParams(exec, node, volume, Context(context)),
        AnyParams::Fill(fill, context) => rows::cuGraphExecMemsetNodeSetParams(exec, node, fill, Context(context)),
        AnyParams::Host(params) => rows::cuGraphExecHostNodeSetParams(exec, node, params),
        AnyParams::Graph(graph) => rows::cuGraphExecChildGraphNodeSetParams(exec, node, Graph(graph)),
        AnyParams::Wait(event) => rows::cuGraphExecEventWaitNodeSetEvent(exec, node, Event(event)),
        AnyParams::Record(event) => rows::cuGraphExecEventRecordNodeSetEvent(exec, node, Event(event)),
        AnyParams::Empty | AnyParams::Allocate(_) | AnyParams::Free(_) => Err(Status::InvalidValue),
    }
}
