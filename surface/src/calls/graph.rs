//! Graphs: nodes and edges.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 10000 cuGraphCreate(graph: New<Graph>, flags: u32);
            ask 10000 cuGraphDestroy(graph: Gone<Graph>);
            make 10000 cuGraphClone(clone: New<Graph>, graph: Graph);
            ask 10000 cuGraphNodeFindInClone(node: Out<GraphNode>, origin: GraphNode, clone: Graph);
            ask 10000 cuGraphNodeGetType(node: GraphNode, kind: Out<u32>);
            ask 10000 cuGraphDestroyNode(node: Gone<GraphNode>);
            ask 10000 cuGraphGetNodes(graph: Graph, nodes: Room<GraphNode>, count: RoomCount);
            ask 10000 cuGraphGetRootNodes(graph: Graph, nodes: Room<GraphNode>, count: RoomCount);
            ask 10000 cuGraphGetEdges(graph: Graph, from: Room<GraphNode>, to: Room<GraphNode>, count: RoomCount);
            ask 12030 cuGraphGetEdges_v2(
                graph: Graph, from: Room<GraphNode>, to: Room<GraphNode>, data: Room<u64>, count: RoomCount
            );
            ask 10000 cuGraphNodeGetDependencies(node: GraphNode, nodes: Room<GraphNode>, count: RoomCount);
            ask 12030 cuGraphNodeGetDependencies_v2(
                node: GraphNode, nodes: Room<GraphNode>, data: Room<u64>, count: RoomCount
            );
            ask 10000 cuGraphNodeGetDependentNodes(node: GraphNode, nodes: Room<GraphNode>, count: RoomCount);
            ask 12030 cuGraphNodeGetDependentNodes_v2(
                node: GraphNode, nodes: Room<GraphNode>, data: Room<u64>, count: RoomCount
            );
            ask 10000 cuGraphAddDependencies(graph: Graph, from: Many<GraphNode>, to: Many<GraphNode>, count: Count);
            ask 12030 cuGraphAddDependencies_v2(
                graph: Graph, from: Many<GraphNode>, to: Many<GraphNode>, data: Many<u64>, count: Count
            );
            ask 10000 cuGraphRemoveDependencies(graph: Graph, from: Many<GraphNode>, to: Many<GraphNode>, count: Count);
            ask 12030 cuGraphRemoveDependencies_v2(
                graph: Graph, from: Many<GraphNode>, to: Many<GraphNode>, data: Many<u64>, count: Count
            );
            ask 10000 cuGraphChildGraphNodeGetGraph(node: GraphNode, graph: Out<Graph>);
            refuse 11030 cuGraphDebugDotPrint(graph: Graph, path: Text, flags: u32);
        }
    };
}
