//! Functions by their names in the C headers.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_proc_address {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 11030 cuGetProcAddress(name: Text, address: Out<usize>, version: i32, flags: u64);
            local 12000 cuGetProcAddress_v2(
                name: Text, address: Out<usize>, version: i32, flags: u64, status: Out<u32>
            );
            refuse 3000 cuGetExportTable(table: Out<usize>, id: In<[u8; 16]>);
        }
    };
}
