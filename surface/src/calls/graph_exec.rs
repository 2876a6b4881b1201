//! Executable graphs.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph_exec {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 11040 cuGraphInstantiateWithFlags(exec: Out<GraphExec>, graph: Graph, flags: u64);
            ask 12000 cuGraphExecGetFlags(exec: GraphExec, flags: Out<u64>);
            post 10000 cuGraphExecDestroy(exec: GraphExec);
            ask 12000 cuGraphExecUpdate_v2(exec: GraphExec, graph: Graph, result: Out<UpdateResult>);
            post 12000 cuGraphExecKernelNodeSetParams_v2(exec: GraphExec, node: GraphNode, params: In<KernelParams>);
            post 10020 cuGraphExecMemcpyNodeSetParams(
                exec: GraphExec, node: GraphNode, params: In<Volume>, context: Context
            );
            post 10020 cuGraphExecMemsetNodeSetParams(
                exec: GraphExec, node: GraphNode, params: In<FillParams>, context: Context
            );
            post 10020 cuGraphExecHostNodeSetParams(exec: GraphExec, node: GraphNode, params: In<HostParams>);
            post 11010 cuGraphExecChildGraphNodeSetParams(exec: GraphExec, node: GraphNode, child: Graph);
            post 11010 cuGraphExecEventRecordNodeSetEvent(exec: GraphExec, node: GraphNode, event: Event);
            post 11010 cuGraphExecEventWaitNodeSetEvent(exec: GraphExec, node: GraphNode, event: Event);
            ask 12020 cuGraphExecNodeSetParams(exec: GraphExec, node: GraphNode, params: InOut<AnyHead>);
            post 11060 cuGraphNodeSetEnabled(exec: GraphExec, node: GraphNode, enabled: u32);
            ask 11060 cuGraphNodeGetEnabled(exec: GraphExec, node: GraphNode, enabled: Out<u32>);
            ask 12000 cuGraphInstantiateWithParams(
                exec: Out<GraphExec>, graph: Graph, place: InOut<InstantiateParams>
            ) twin ptsz;
            post 11010 cuGraphUpload(exec: GraphExec, stream: Stream) twin ptsz;
            post 10000 cuGraphLaunch(exec: GraphExec, stream: Stream) twin ptsz;
        }
    };
}
