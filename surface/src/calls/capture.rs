//! Stream capture.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_capture {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 10010 cuThreadExchangeStreamCaptureMode(mode: InOut<u32>);
            ask 10010 cuStreamBeginCapture_v2(stream: Stream, mode: u32) twin ptsz;
            ask 12030 cuStreamBeginCaptureToGraph(
                stream: Stream, graph: Graph, dependencies: In<GraphNode>, data: In<u64>, count: usize, mode: u32
            ) twin ptsz;
            ask 10000 cuStreamEndCapture(stream: Stream, graph: Out<Graph>) twin ptsz;
            local 10000 cuStreamIsCapturing(stream: Stream, status: Out<u32>) twin ptsz;
            ask 11030 cuStreamGetCaptureInfo_v2(
                stream: Stream, status: Out<u32>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<*const GraphNode>,
                count: Out<usize>
            ) twin ptsz;
            ask 12030 cuStreamGetCaptureInfo_v3(
                stream: Stream, status: Out<u32>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<*const GraphNode>,
                data: Out<*const u64>, count: Out<usize>
            ) twin ptsz;
            ask 11030 cuStreamUpdateCaptureDependencies(
                stream: Stream, dependencies: In<GraphNode>, count: usize, flags: u32
            ) twin ptsz;
            ask 12030 cuStreamUpdateCaptureDependencies_v2(
                stream: Stream, dependencies: In<GraphNode>, data: In<u64>, count: usize, flags: u32
            ) twin ptsz;
        }
    };
}
