//! Copies of memory.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_copy {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 4000 cuMemcpy(to: Address, from: Address, bytes: usize) twin ptds;
            own 3020 cuMemcpyHtoD_v2(to: Address, from: FromHost, bytes: Bytes) twin ptds;
            own 3020 cuMemcpyDtoH_v2(to: ToHost, from: Address, bytes: Bytes) twin ptds;
            ask 3020 cuMemcpyDtoD_v2(to: Address, from: Address, bytes: usize) twin ptds;
            ask 4000 cuMemcpyPeer(
                to: Address, to_context: Context, from: Address, from_context: Context, bytes: usize
            ) twin ptds;
            local 3020 cuMemcpy2D_v2(rectangle: In<Rectangle>) twin ptds;
            local 3020 cuMemcpy2DUnaligned_v2(rectangle: In<Rectangle>) twin ptds;
            own 3020 cuMemcpy3D_v2(volume: HostVolume) twin ptds;
            local 4000 cuMemcpy3DPeer(volume: In<Volume>) twin ptds;
            local 4000 cuMemcpyAsync(to: Address, from: Address, bytes: usize, stream: Stream) twin ptsz;
            own_post 3020 cuMemcpyHtoDAsync_v2(to: Address, from: FromHost, bytes: Bytes, stream: Stream) twin ptsz;
            own 3020 cuMemcpyDtoHAsync_v2(to: ToHost, from: Address, bytes: Bytes, stream: Stream) twin ptsz;
            ask 3020 cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Stream) twin ptsz;
            ask 4000 cuMemcpyPeerAsync(
                to: Address, to_context: Context, from: Address, from_context: Context, bytes: usize, stream: Stream
            ) twin ptsz;
            local 3020 cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: Stream) twin ptsz;
            own 3020 cuMemcpy3DAsync_v2(volume: HostVolume, stream: Stream) twin ptsz;
            local 4000 cuMemcpy3DPeerAsync(volume: In<Volume>, stream: Stream) twin ptsz;
        }
    };
}
