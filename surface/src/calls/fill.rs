//! Fills of memory.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_fill {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 3020 cuMemsetD8_v2(address: Address, value: u8, count: usize) twin ptds;
            ask 3020 cuMemsetD16_v2(address: Address, value: u16, count: usize) twin ptds;
            ask 3020 cuMemsetD32_v2(address: Address, value: u32, count: usize) twin ptds;
            ask 3020 cuMemsetD2D8_v2(address: Address, pitch: usize, value: u8, width: usize, height: usize) twin ptds;
            ask 3020 cuMemsetD2D16_v2(
                address: Address, pitch: usize, value: u16, width: usize, height: usize
            ) twin ptds;
            ask 3020 cuMemsetD2D32_v2(
                address: Address, pitch: usize, value: u32, width: usize, height: usize
            ) twin ptds;
            post 3020 cuMemsetD8Async(address: Address, value: u8, count: usize, stream: Stream) twin ptsz;
            post 3020 cuMemsetD16Async(address: Address, value: u16, count: usize, stream: Stream) twin ptsz;
            post 3020 cuMemsetD32Async(address: Address, value: u32, count: usize, stream: Stream) twin ptsz;
            post 3020 cuMemsetD2D8Async(
                address: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Stream
            ) twin ptsz;
            post 3020 cuMemsetD2D16Async(
                address: Address, pitch: usize, value: u16, width: usize, height: usize, stream: Stream
            ) twin ptsz;
            post 3020 cuMemsetD2D32Async(
                address: Address, pitch: usize, value: u32, width: usize, height: usize, stream: Stream
            ) twin ptsz;
        }
    };
}
