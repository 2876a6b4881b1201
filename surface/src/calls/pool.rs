//! Memory pools.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_pool {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 11020 cuMemPoolCreate(pool: New<Pool>, properties: In<PoolProperties>);
            post 11020 cuMemPoolDestroy(pool: Pool);
            post 11020 cuMemPoolTrimTo(pool: Pool, bytes: usize);
            ask 11020 cuMemPoolGetAccess(flags: Out<u32>, pool: Pool, location: In<Location>);
            post 11020 cuMemPoolSetAccess(pool: Pool, accesses: In<Access>, count: usize);
            ask 11020 cuMemPoolGetAttribute(pool: Pool, attribute: u32, value: Out<c_void>);
            post 11020 cuMemPoolSetAttribute(pool: Pool, attribute: u32, value: In<c_void>);
        }
    };
}
