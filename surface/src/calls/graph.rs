//! Graphs: nodes and edges.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 10000 cuGraphCreate(graph: New<Graph>, flags: u32);
            post 10000 cuGraphDestroy(graph: Graph);
            make 10000 cuGraphClone(clone: New<Graph>, graph: Graph);
            ask 10000 cuGraphNodeFindInClone(node: Out<GraphNode>, origin: GraphNode, clone: Graph);
            ask 10000 cuGraphNodeGetType(node: GraphNode, kind: Out<u32>);
            post 10000 cuGraphDestroyNode(node: GraphNode);
            ask 10000 cuGraphGetNodes(graph: Graph, nodes: Out<GraphNode>, count: InOut<usize>);
            ask 10000 cuGraphGetRootNodes(graph: Graph, nodes: Out<GraphNode>, count: InOut<usize>);
            ask 10000 cuGraphGetEdges(graph: Graph, from: Out<GraphNode>, to: Out<GraphNode>, count: InOut<usize>);
            ask 12030 cuGraphGetEdges_v2(
                graph: Graph, from: Out<GraphNode>, to: Out<GraphNode>, data: Out<u64>, count: InOut<usize>
            );
            ask 10000 cuGraphNodeGetDependencies(node: GraphNode, nodes: Out<GraphNode>, count: InOut<usize>);
            ask 12030 cuGraphNodeGetDependencies_v2(
                node: GraphNode, nodes: Out<GraphNode>, data: Out<u64>, count: InOut<usize>
            );
            ask 10000 cuGraphNodeGetDependentNodes(node: GraphNode, nodes: Out<GraphNode>, count: InOut<usize>);
            ask 12030 cuGraphNodeGetDependentNodes_v2(
                node: GraphNode, nodes: Out<GraphNode>, data: Out<u64>, count: InOut<usize>
            );
            post 10000 cuGraphAddDependencies(graph: Graph, from: In<GraphNode>, to: In<GraphNode>, count: usize);
            post 12030 cuGraphAddDependencies_v2(
                graph: Graph, from: In<GraphNode>, to: In<GraphNode>, data: In<u64>, count: usize
            );
            post 10000 cuGraphRemoveDependencies(graph: Graph, from: In<GraphNode>, to: In<GraphNode>, count: usize);
            post 12030 cuGraphRemoveDependencies_v2(
                graph: Graph, from: In<GraphNode>, to: In<GraphNode>, data: In<u64>, count: usize
            );
            ask 10000 cuGraphChildGraphNodeGetGraph(node: GraphNode, graph: Out<Graph>);
            ask 11030 cuGraphDebugDotPrint(graph: Graph, path: Text, flags: u32);
        }
    };
}
