//! The linker.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_link {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 6050 cuLinkCreate_v2(
                count: u32, options: In<u32>, values: InOut<usize>, state: Out<Link>
            ) old cuLinkCreate;
            ask 6050 cuLinkAddData_v2(
                state: Link, kind: u32, data: In<u8>, bytes: usize, name: Text, count: u32, options: In<u32>,
                values: In<usize>
            ) old cuLinkAddData;
            ask 6050 cuLinkAddFile_v2(
                state: Link, kind: u32, path: Text, count: u32, options: In<u32>, values: In<usize>
            ) old cuLinkAddFile;
            ask 5050 cuLinkComplete(state: Link, image: Out<*const u8>, bytes: Out<usize>);
            post 5050 cuLinkDestroy(state: Link);
        }
    };
}
