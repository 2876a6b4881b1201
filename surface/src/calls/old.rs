//! First versions of functions. Programs for an earlier CUDA find them by their symbols; `cuGetProcAddress` does not
//! return them. Those without arguments have 32-bit addresses and sizes.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_old {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local cuGraphAddKernelNode(
                node: Out<GraphNode>, graph: Graph, dependencies: In<GraphNode>, count: usize,
                params: In<FirstKernelParams>
            );
            local cuGraphKernelNodeGetParams(node: GraphNode, params: Out<FirstKernelParams>);
            local cuGraphKernelNodeSetParams(node: GraphNode, params: In<FirstKernelParams>);
            local cuGraphExecKernelNodeSetParams(exec: GraphExec, node: GraphNode, params: In<FirstKernelParams>);
            local cuMemAllocHost(pointer: Out<HostAddress>, bytes: u32);
            local cuStreamBeginCapture(stream: Stream);
            local cuGraphInstantiate(
                exec: Out<GraphExec>, graph: Graph, error_node: Out<GraphNode>, log: Out<u8>, room: usize
            );
            local cuGraphInstantiate_v2(
                exec: Out<GraphExec>, graph: Graph, error_node: Out<GraphNode>, log: Out<u8>, room: usize
            );
            local cuGraphExecUpdate(exec: GraphExec, graph: Graph, error_node: Out<GraphNode>, result: Out<u32>);
            refuse cuArray3DCreate;
            refuse cuArray3DGetDescriptor;
            refuse cuArrayCreate;
            refuse cuArrayGetDescriptor;
            refuse cuDeviceTotalMem;
            refuse cuGraphicsResourceGetMappedPointer;
            refuse cuGraphicsResourceSetMapFlags;
            refuse cuIpcOpenMemHandle;
            refuse cuMemAlloc;
            refuse cuMemAllocPitch;
            refuse cuMemFree;
            refuse cuMemGetAddressRange;
            refuse cuMemGetInfo;
            refuse cuMemHostGetDevicePointer;
            refuse cuMemcpy2D;
            refuse cuMemcpy2DAsync;
            refuse cuMemcpy2DUnaligned;
            refuse cuMemcpy3D;
            refuse cuMemcpy3DAsync;
            refuse cuMemcpyAtoA;
            refuse cuMemcpyAtoD;
            refuse cuMemcpyAtoH;
            refuse cuMemcpyAtoHAsync;
            refuse cuMemcpyDtoA;
            refuse cuMemcpyDtoD;
            refuse cuMemcpyDtoDAsync;
            refuse cuMemcpyDtoH;
            refuse cuMemcpyDtoHAsync;
            refuse cuMemcpyHtoA;
            refuse cuMemcpyHtoAAsync;
            refuse cuMemcpyHtoD;
            refuse cuMemcpyHtoDAsync;
            refuse cuMemsetD16;
            refuse cuMemsetD2D16;
            refuse cuMemsetD2D32;
            refuse cuMemsetD2D8;
            refuse cuMemsetD32;
            refuse cuMemsetD8;
            refuse cuModuleGetGlobal;
            refuse cuTexRefGetAddress;
            refuse cuTexRefSetAddress;
            refuse cuTexRefSetAddress2D;
        }
    };
}
