//! Copies between arrays and linear memory, which count bytes in the order of texels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_array_copy {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 3020 cuMemcpyDtoA_v2(to: Array, to_offset: usize, from: Address, bytes: usize) twin ptds;
            ask 3020 cuMemcpyAtoD_v2(to: Address, from: Array, from_offset: usize, bytes: usize) twin ptds;
            own 3020 cuMemcpyHtoA_v2(to: Array, to_offset: usize, from: FromHost, bytes: Bytes) twin ptds;
            own 3020 cuMemcpyAtoH_v2(to: ToHost, from: Array, from_offset: usize, bytes: Bytes) twin ptds;
            ask 3020 cuMemcpyAtoA_v2(
                to: Array, to_offset: usize, from: Array, from_offset: usize, bytes: usize
            ) twin ptds;
            own 3020 cuMemcpyHtoAAsync_v2(
                to: Array, to_offset: usize, from: FromHost, bytes: Bytes, stream: Stream
            ) twin ptsz;
            own 3020 cuMemcpyAtoHAsync_v2(
                to: ToHost, from: Array, from_offset: usize, bytes: Bytes, stream: Stream
            ) twin ptsz;
        }
    };
}
