//! Copies of memory.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_copy {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            wait 4000 cuMemcpy(to: Address, from: Address, bytes: usize) twin ptds;
            post 3020 cuMemcpyHtoD_v2(to: Address, from: HostAddress, bytes: usize) twin ptds;
            wait 3020 cuMemcpyDtoH_v2(to: HostAddress, from: Address, bytes: usize) twin ptds;
            post 3020 cuMemcpyDtoD_v2(to: Address, from: Address, bytes: usize) twin ptds;
            post 4000 cuMemcpyPeer(
                to: Address, to_context: Context, from: Address, from_context: Context, bytes: usize
            ) twin ptds;
            wait 3020 cuMemcpy2D_v2(rectangle: In<Rectangle>) twin ptds;
            wait 3020 cuMemcpy2DUnaligned_v2(rectangle: In<Rectangle>) twin ptds;
            wait 3020 cuMemcpy3D_v2(volume: In<Volume>) twin ptds;
            wait 4000 cuMemcpy3DPeer(volume: In<Volume>) twin ptds;
            wait 4000 cuMemcpyAsync(to: Address, from: Address, bytes: usize, stream: Stream) twin ptsz;
            post 3020 cuMemcpyHtoDAsync_v2(to: Address, from: HostAddress, bytes: usize, stream: Stream) twin ptsz;
            wait 3020 cuMemcpyDtoHAsync_v2(to: HostAddress, from: Address, bytes: usize, stream: Stream) twin ptsz;
            post 3020 cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Stream) twin ptsz;
            post 4000 cuMemcpyPeerAsync(
                to: Address, to_context: Context, from: Address, from_context: Context, bytes: usize, stream: Stream
            ) twin ptsz;
            wait 3020 cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: Stream) twin ptsz;
            wait 3020 cuMemcpy3DAsync_v2(volume: In<Volume>, stream: Stream) twin ptsz;
            wait 4000 cuMemcpy3DPeerAsync(volume: In<Volume>, stream: Stream) twin ptsz;
        }
    };
}
