//! Copies between arrays and linear memory, which count bytes in the order of texels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_array_copy {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            post 3020 cuMemcpyDtoA_v2(to: Array, to_offset: usize, from: Address, bytes: usize) twin ptds;
            post 3020 cuMemcpyAtoD_v2(to: Address, from: Array, from_offset: usize, bytes: usize) twin ptds;
            post 3020 cuMemcpyHtoA_v2(to: Array, to_offset: usize, from: HostAddress, bytes: usize) twin ptds;
            wait 3020 cuMemcpyAtoH_v2(to: HostAddress, from: Array, from_offset: usize, bytes: usize) twin ptds;
            post 3020 cuMemcpyAtoA_v2(
                to: Array, to_offset: usize, from: Array, from_offset: usize, bytes: usize
            ) twin ptds;
            post 3020 cuMemcpyHtoAAsync_v2(
                to: Array, to_offset: usize, from: HostAddress, bytes: usize, stream: Stream
            ) twin ptsz;
            wait 3020 cuMemcpyAtoHAsync_v2(
                to: HostAddress, from: Array, from_offset: usize, bytes: usize, stream: Stream
            ) twin ptsz;
        }
    };
}
