//! Nodes of graphs, except kernel nodes.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph_node {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 10000 cuGraphAddEmptyNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count
            );
            make 10000 cuGraphAddMemcpyNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, params: In<Volume>,
                context: Context
            );
            ask 10000 cuGraphMemcpyNodeGetParams(node: GraphNode, params: Out<Volume>);
            ask 10000 cuGraphMemcpyNodeSetParams(node: GraphNode, params: In<Volume>);
            make 10000 cuGraphAddMemsetNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, params: In<FillParams>,
                context: Context
            );
            ask 10000 cuGraphMemsetNodeGetParams(node: GraphNode, params: Out<FillParams>);
            ask 10000 cuGraphMemsetNodeSetParams(node: GraphNode, params: In<FillParams>);
            make 10000 cuGraphAddHostNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, params: In<HostParams>
            );
            ask 10000 cuGraphHostNodeGetParams(node: GraphNode, params: Out<HostParams>);
            ask 10000 cuGraphHostNodeSetParams(node: GraphNode, params: In<HostParams>);
            make 10000 cuGraphAddChildGraphNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, child: Graph
            );
            make 11010 cuGraphAddEventRecordNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, event: Event
            );
            ask 11010 cuGraphEventRecordNodeGetEvent(node: GraphNode, event: Out<Event>);
            ask 11010 cuGraphEventRecordNodeSetEvent(node: GraphNode, event: Event);
            make 11010 cuGraphAddEventWaitNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, event: Event
            );
            ask 11010 cuGraphEventWaitNodeGetEvent(node: GraphNode, event: Out<Event>);
            ask 11010 cuGraphEventWaitNodeSetEvent(node: GraphNode, event: Event);
            ask 11040 cuGraphAddMemAllocNode(
                node: Out<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count,
                params: InOut<AllocateParams>
            );
            ask 11040 cuGraphMemAllocNodeGetParams(node: GraphNode, params: Out<AllocateParams>);
            make 11040 cuGraphAddMemFreeNode(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, address: Address
            );
            ask 11040 cuGraphMemFreeNodeGetParams(node: GraphNode, address: Out<Address>);
            local 12020 cuGraphAddNode(
                node: Out<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, params: InOut<AnyHead>
            );
            local 12030 cuGraphAddNode_v2(
                node: Out<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, data: Many<u64>, count: Count,
                params: InOut<AnyHead>
            );
            local 12020 cuGraphNodeSetParams(node: GraphNode, params: InOut<AnyHead>);
        }
    };
}
