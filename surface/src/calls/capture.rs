//! Stream capture.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_capture {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 10010 cuThreadExchangeStreamCaptureMode(mode: InOut<u32>);
            ask 10010 cuStreamBeginCapture_v2(stream: Stream, mode: u32) twin ptsz;
            ask 12030 cuStreamBeginCaptureToGraph(
                stream: Stream, graph: Graph, dependencies: Many<GraphNode>, data: Many<u64>, count: Count, mode: u32
            ) twin ptsz;
            ask 10000 cuStreamEndCapture(stream: Stream, graph: Always<Graph>) twin ptsz;
            ask 10000 cuStreamIsCapturing(stream: Stream, status: Out<u32>) twin ptsz;
            ask 11030 cuStreamGetCaptureInfo_v2(
                stream: Stream, status: Out<u32>, id: Out<u64>, graph: Out<Graph>, dependencies: Frontier,
                count: FrontierCount
            ) twin ptsz;
            ask 12030 cuStreamGetCaptureInfo_v3(
                stream: Stream, status: Out<u32>, id: Out<u64>, graph: Out<Graph>, dependencies: Frontier,
                data: FrontierData, count: FrontierCount
            ) twin ptsz;
            ask 11030 cuStreamUpdateCaptureDependencies(
                stream: Stream, dependencies: Many<GraphNode>, count: Count, flags: u32
            ) twin ptsz;
            ask 12030 cuStreamUpdateCaptureDependencies_v2(
                stream: Stream, dependencies: Many<GraphNode>, data: Many<u64>, count: Count, flags: u32
            ) twin ptsz;
        }
    };
}
