//! The linker.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_link {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            own 6050 cuLinkCreate_v2(
                count: JitCount, options: JitKeys, values: JitValues, state: Out<Link>
            ) old cuLinkCreate;
            own 6050 cuLinkAddData_v2(
                state: Link, kind: u32, data: Given, bytes: Bytes, name: Text, count: JitCount, options: JitKeys, values: JitInputs
            ) old cuLinkAddData;
            local 6050 cuLinkAddFile_v2(
                state: Link, kind: u32, path: Text, count: JitCount, options: JitKeys, values: JitInputs
            ) old cuLinkAddFile;
            own 5050 cuLinkComplete(state: Link, image: LinkedImage, bytes: LinkedBytes);
            own 5050 cuLinkDestroy(state: Gone<Link>);
        }
    };
}
