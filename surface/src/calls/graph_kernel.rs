//! Kernel nodes of graphs.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph_kernel {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            own 12000 cuGraphAddKernelNode_v2(
                node: New<GraphNode>, graph: Graph, dependencies: Many<GraphNode>, count: Count, params: In<KernelParams>
            );
            local 12000 cuGraphKernelNodeGetParams_v2(node: GraphNode, params: Out<KernelParams>);
            own 12000 cuGraphKernelNodeSetParams_v2(node: GraphNode, params: In<KernelParams>);
            ask 11000 cuGraphKernelNodeGetAttribute(node: GraphNode, attribute: u32, value: Out<[u64; 8]>);
            ask 11000 cuGraphKernelNodeSetAttribute(node: GraphNode, attribute: AttributeId, value: In<[u64; 8]>);
            ask 11000 cuGraphKernelNodeCopyAttributes(target: GraphNode, source: GraphNode);
        }
    };
}
