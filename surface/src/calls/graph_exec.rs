//! Executable graphs.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_graph_exec {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 11040 cuGraphInstantiateWithFlags(exec: Out<GraphExec>, graph: Graph, flags: u64);
            ask 12000 cuGraphExecGetFlags(exec: GraphExec, flags: Out<u64>);
            ask 10000 cuGraphExecDestroy(exec: Gone<GraphExec>);
            ask 12000 cuGraphExecUpdate_v2(exec: GraphExec, graph: Graph, result: Always<UpdateResult>);
            own 12000 cuGraphExecKernelNodeSetParams_v2(exec: GraphExec, node: GraphNode, params: In<KernelParams>);
            ask 10020 cuGraphExecMemcpyNodeSetParams(
                exec: GraphExec, node: GraphNode, params: In<Volume>, context: Context
            );
            ask 10020 cuGraphExecMemsetNodeSetParams(
                exec: GraphExec, node: GraphNode, params: In<FillParams>, context: Context
            );
            ask 10020 cuGraphExecHostNodeSetParams(exec: GraphExec, node: GraphNode, params: In<HostParams>);
            ask 11010 cuGraphExecChildGraphNodeSetParams(exec: GraphExec, node: GraphNode, child: Graph);
            ask 11010 cuGraphExecEventRecordNodeSetEvent(exec: GraphExec, node: GraphNode, event: Event);
            ask 11010 cuGraphExecEventWaitNodeSetEvent(exec: GraphExec, node: GraphNode, event: Event);
            local 12020 cuGraphExecNodeSetParams(exec: GraphExec, node: GraphNode, params: InOut<AnyHead>);
            ask 11060 cuGraphNodeSetEnabled(exec: GraphExec, node: GraphNode, enabled: u32);
            ask 11060 cuGraphNodeGetEnabled(exec: GraphExec, node: GraphNode, enabled: Out<u32>);
            ask 12000 cuGraphInstantiateWithParams(
                exec: Out<GraphExec>, graph: Graph, place: InOut<InstantiateParams>
            ) twin ptsz;
            ask 11010 cuGraphUpload(exec: GraphExec, stream: Stream) twin ptsz;
            ask 10000 cuGraphLaunch(exec: GraphExec, stream: Stream) twin ptsz;
        }
    };
}
