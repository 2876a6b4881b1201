//! Streams, and host functions in them.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_stream {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 12040 cuStreamGetGreenCtx(stream: Stream, part: Out<GreenContext>);
            make 2000 cuStreamCreate(stream: New<Stream>, flags: u32);
            make 5050 cuStreamCreateWithPriority(stream: New<Stream>, flags: u32, priority: i32);
            ask 4000 cuStreamDestroy_v2(stream: Gone<Stream>) old cuStreamDestroy;
            ask 11000 cuStreamGetAttribute(stream: Stream, attribute: u32, value: Out<[u64; 8]>) twin ptsz;
            ask 11000 cuStreamSetAttribute(stream: Stream, attribute: AttributeId, value: In<[u64; 8]>) twin ptsz;
            ask 11000 cuStreamCopyAttributes(target: Stream, source: Stream) twin ptsz;
            ask 11070 cuStreamWriteValue32_v2(
                stream: Stream, address: Address, value: u32, flags: u32
            ) twin ptsz old cuStreamWriteValue32;
            ask 11070 cuStreamWriteValue64_v2(
                stream: Stream, address: Address, value: u64, flags: u32
            ) twin ptsz old cuStreamWriteValue64;
            ask 11070 cuStreamWaitValue32_v2(
                stream: Stream, address: Address, value: u32, flags: u32
            ) twin ptsz old cuStreamWaitValue32;
            ask 11070 cuStreamWaitValue64_v2(
                stream: Stream, address: Address, value: u64, flags: u32
            ) twin ptsz old cuStreamWaitValue64;
            ask 11070 cuStreamBatchMemOp_v2(
                stream: Stream, count: Count32, operations: Many<WordOperation>, flags: u32
            ) twin ptsz old cuStreamBatchMemOp;
            wait 2000 cuStreamSynchronize(stream: Stream) twin ptsz;
            ask 2000 cuStreamQuery(stream: Stream) twin ptsz;
            ask 3020 cuStreamWaitEvent(stream: Stream, event: Event, flags: u32) twin ptsz;
            ask 5050 cuStreamGetPriority(stream: Stream, priority: Out<i32>) twin ptsz;
            ask 5050 cuStreamGetFlags(stream: Stream, flags: Out<u32>) twin ptsz;
            ask 12000 cuStreamGetId(stream: Stream, id: Out<u64>) twin ptsz;
            ask 9020 cuStreamGetCtx(stream: Stream, context: Out<Context>) twin ptsz;
            ask 12050 cuStreamGetCtx_v2(stream: Stream, context: Out<Context>, part: Out<GreenContext>) twin ptsz;
            ask 12080 cuStreamGetDevice(stream: Stream, device: Out<Device>) twin ptsz;
            ask 10000 cuLaunchHostFunc(stream: Stream, function: Option<HostFunction>, data: HostData) twin ptsz;
            ask 5000 cuStreamAddCallback(
                stream: Stream, callback: Option<Callback>, data: HostData, flags: u32
            ) twin ptsz;
        }
    };
}
