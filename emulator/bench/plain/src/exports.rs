//! C exports of the kernels, which the benchmark opens in two builds.

use crate::{array, matrix, simulation};

/// A buffer, as it is passed between two builds.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start: *mut u8,
    pub bytes: usize,
}

/// A kernel: its buffers, and two numbers that most kernels ignore.
///
/// # Safety
/// There are as many spans as the kernel takes; they are distinct, live, and aligned for its elements.
pub type Kernel = unsafe extern "C" fn(spans: *const Span, first: u32, second: u32);

/// # Safety
/// As for [`Kernel`], with a span at `index`, and elements of type `T`.
unsafe fn slice<'a, T>(spans: *const Span, index: usize) -> &'a mut [T] {
    // SAFETY: the caller vouches for the span.
    unsafe {
        let span = *spans.add(index);
        std::slice::from_raw_parts_mut(span.start.cast(), span.bytes / size_of::<T>())
    }
}

/// Exports kernels, each with the types of its buffers' elements.
macro_rules! exports {
    ($($name:ident ($($span:ident: $element:ty = $index:literal),*), $first:pat, $second:pat => $body:expr;)*) => {$(
        /// # Safety
        /// As for [`Kernel`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(spans: *const Span, $first: u32, $second: u32) {
            // SAFETY: the caller vouches for the spans.
            $(let $span = unsafe { slice::<$element>(spans, $index) };)*
            $body;
        }
    )*

        /// Returns the kernel of this name in this build.
        pub fn kernel(name: &str) -> Option<Kernel> {
            match name {
                $(stringify!($name) => Some($name),)*
                _ => None,
            }
        }
    };
}

exports! {
    plain_saxpy(x: f32 = 0, y: f32 = 1), _, _ => array::saxpy(x, y);
    plain_reduce(values: f32 = 0, sum: f32 = 1), _, _ => sum[0] = array::reduce(values);
    plain_scan(values: u32 = 0), _, _ => array::scan(values);
    plain_histogram(data: u8 = 0, bins: u32 = 1), _, _ => array::histogram(data, bins);
    plain_multiply(a: f32 = 0, b: f32 = 1, c: f32 = 2), n, by_row =>
        matrix::multiply(a, b, c, n as usize, by_row != 0, |value| value);
    plain_multiply_halves(a: u16 = 0, b: u16 = 1, c: f32 = 2), n, by_row =>
        matrix::multiply(a, b, c, n as usize, by_row != 0, matrix::float_of_half);
    plain_transpose(from: f32 = 0, to: f32 = 1), n, _ => matrix::transpose(from, to, n as usize);
    plain_nbody(positions: [f32; 4] = 0, pulls: [f32; 4] = 1), _, _ => simulation::nbody(positions, pulls);
    plain_mandelbrot(out: u32 = 0), side, _ => simulation::mandelbrot(out, side as usize);
    plain_philox_pi(hits: u64 = 0), threads, rounds => hits[0] = simulation::philox_pi(threads, rounds);
    plain_black_scholes(spot: f32 = 0, strike: f32 = 1, years: f32 = 2, calls: f32 = 3, puts: f32 = 4), _, _ =>
        simulation::black_scholes(spot, strike, years, calls, puts);
}
