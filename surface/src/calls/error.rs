//! Names and meanings of result codes.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_error {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 6000 cuGetErrorName(code: i32, name: Out<*const c_char>);
            local 6000 cuGetErrorString(code: i32, meaning: Out<*const c_char>);
        }
    };
}
