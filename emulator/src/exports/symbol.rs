//! Exported functions: the macro that defines them, and the list of a file's functions.

/// The name and the address of a function.
pub(super) type Symbol = (&'static str, usize);

/// Defines exported functions. A body returns an `Answer`, and the function returns its code. Functions under
/// `per_thread` have a variant with that suffix, for programs that were built to use the calling thread's own default
/// stream.
macro_rules! exports {
    (
        $($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*
        $(
            per_thread $group:ident:
            $(
                $(#[$twin_attribute:meta])*
                fn $twin:ident($($twin_argument:ident: $twin_type:ty),* $(,)?) $twin_body:block
            )+
        )*
    ) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> i32 {
                $crate::exports::boundary::boundary(stringify!($name), move || $body)
            }
        )*

        $($(
            $(#[$twin_attribute])*
            #[unsafe(no_mangle)]
            extern "C" fn $twin($($twin_argument: $twin_type),*) -> i32 {
                $crate::exports::boundary::boundary(stringify!($twin), move || $twin_body)
            }
        )+)*

        /// Returns the functions that this file exports.
        pub(super) fn symbols() -> Vec<$crate::exports::symbol::Symbol> {
            vec![
                $((stringify!($name), $name as *const () as usize),)*
                $($(
                    (stringify!($twin), $twin as *const () as usize),
                    {
                        #[unsafe(export_name = concat!(stringify!($twin), "_", stringify!($group)))]
                        extern "C" fn twin($($twin_argument: $twin_type),*) -> i32 {
                            $crate::driver::stream::with_own_default(|| $twin($($twin_argument),*))
                        }
                        (concat!(stringify!($twin), "_", stringify!($group)), twin as *const () as usize)
                    },
                )+)*
            ]
        }
    };
}
pub(super) use exports;
