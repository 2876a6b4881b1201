//! Start, driver version and profiler control.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_start {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 2000 cuInit(flags: u32);
            local 2020 cuDriverGetVersion(version: Out<i32>);
            local 4000 cuProfilerStart();
            local 4000 cuProfilerStop();
        }
    };
}
