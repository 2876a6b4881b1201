//! Nodes of any kind, which become calls for their kinds.

use gpufleet_remote::{
    kinds::{Address, Context, Event, Graph, GraphNode},
    roles::{Count, InOut, Many},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
    structs::{
        copy::Volume,
        graph::{AllocateParams, AnyHead, CopyParams, FillIn, FillParams, HostParams, KernelParams},
    },
};

use super::graph_kernel::{cuGraphAddKernelNode_v2, cuGraphKernelNodeSetParams_v2};
use crate::rows;

/// Parameters of a node (`CUgraphNodeParams`), by its kind. Handles are those of the row that they go to.
pub(super) enum AnyParams {
    Kernel(In<KernelParams>),
    Copy(In<Volume>, u64),
    Fill(In<FillParams>, u64),
    Host(In<HostParams>),
    Graph(u64),
    Empty,
    Wait(u64),
    Record(u64),
    Allocate(Out<AllocateParams>),
    Free(u64),
}

/// Returns the parameters behind their head.
pub(super) fn any(params: InOut<AnyHead>) -> Answer<AnyParams> {
    let AnyHead { kind, reserved: _ } = params.0.input().get()?;
    let body = params.0.at(1);
    let number = || body.cast::<u64>().input().get();
    Ok(match kind {
        0 => AnyParams::Kernel(body.cast().input()),
        1 => {
            let copy = body.cast::<CopyParams>().pointer();
            // SAFETY: the program vouches for the structure that the kind says.
            unsafe { AnyParams::Copy(In::from_pointer(&raw const (*copy).volume), (*copy).context as u64) }
        }
        2 => {
            let fill = body.cast::<FillIn>().pointer();
            // SAFETY: as above.
            unsafe { AnyParams::Fill(In::from_pointer(&raw const (*fill).fill), (*fill).context as u64) }
        }
        3 => AnyParams::Host(body.cast().input()),
        4 => AnyParams::Graph(number()?),
        5 => AnyParams::Empty,
        6 => AnyParams::Wait(number()?),
        7 => AnyParams::Record(number()?),
        10 => AnyParams::Allocate(body.cast()),
        11 => AnyParams::Free(number()?),
        8 | 9 | 12 | 13 => return Err(Status::NotSupported),
        _ => return Err(Status::InvalidValue),
    })
}

pub(crate) fn cuGraphAddNode(
    node: Out<GraphNode>,
    graph: Graph,
    dependencies: Many<GraphNode>,
    count: Count,
    params: InOut<AnyHead>,
) -> Answer {
    match any(params)? {
        AnyParams::Kernel(params) => cuGraphAddKernelNode_v2(node, graph, dependencies, count, params),
        AnyParams::Copy(volume, context) => {
            rows::cuGraphAddMemcpyNode(node, graph, dependencies, count, volume, Context(context))
        }
        AnyParams::Fill(fill, context) => {
            rows::cuGraphAddMemsetNode(node, graph, dependencies, count, fill, Context(context))
        }
        AnyParams::Host(params) => rows::cuGraphAddHostNode(node, graph, dependencies, count, params),
        AnyParams::Graph(child) => rows::cuGraphAddChildGraphNode(node, graph, dependencies, count, Graph(child)),
        AnyParams::Empty => rows::cuGraphAddEmptyNode(node, graph, dependencies, count),
        AnyParams::Wait(event) => rows::cuGraphAddEventWaitNode(node, graph, dependencies, count, Event(event)),
        AnyParams::Record(event) => rows::cuGraphAddEventRecordNode(node, graph, dependencies, count, Event(event)),
        AnyParams::Allocate(params) => rows::cuGraphAddMemAllocNode(node, graph, dependencies, count, InOut(params)),
        AnyParams::Free(address) => rows::cuGraphAddMemFreeNode(node, graph, dependencies, count, Address(address)),
    }
}

/// Edges have no data in a session.
pub(crate) fn cuGraphAddNode_v2(
    node: Out<GraphNode>,
    graph: Graph,
    dependencies: Many<GraphNode>,
    data: Many<u64>,
    count: Count,
    params: InOut<AnyHead>,
) -> Answer {
    if !data.0.is_null() {
        for index in 0..count.0 {
            if data.0.at(index)? != 0 {
                return Err(Status::NotSupported);
            }
        }
    }
    cuGraphAddNode(node, graph, dependencies, count, params)
}

pub(crate) fn cuGraphNodeSetParams(node: GraphNode, params: InOut<AnyHead>) -> Answer {
    match any(params)? {
        AnyParams::Kernel(params) => cuGraphKernelNodeSetParams_v2(node, params),
        AnyParams::Copy(volume, _) => rows::cuGraphMemcpyNodeSetParams(node, volume),
        AnyParams::Fill(fill, _) => rows::cuGraphMemsetNodeSetParams(node, fill),
        AnyParams::Host(params) => rows::cuGraphHostNodeSetParams(node, params),
        AnyParams::Wait(event) => rows::cuGraphEventWaitNodeSetEvent(node, Event(event)),
        AnyParams::Record(event) => rows::cuGraphEventRecordNodeSetEvent(node, Event(event)),
        AnyParams::Graph(_) | AnyParams::Empty | AnyParams::Allocate(_) | AnyParams::Free(_) => {
            Err(Status::InvalidValue)
        }
    }
}
