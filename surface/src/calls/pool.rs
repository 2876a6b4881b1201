//! Memory pools.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_pool {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 11020 cuMemPoolCreate(pool: New<Pool>, properties: In<PoolProperties>);
            ask 11020 cuMemPoolDestroy(pool: Gone<Pool>);
            ask 11020 cuMemPoolTrimTo(pool: Pool, bytes: usize);
            ask 11020 cuMemPoolGetAccess(flags: Out<u32>, pool: Pool, location: In<Location>);
            ask 11020 cuMemPoolSetAccess(pool: Pool, accesses: Many<Access>, count: Count);
            own 11020 cuMemPoolGetAttribute(pool: Pool, attribute: u32, value: AttributeOut);
            own 11020 cuMemPoolSetAttribute(pool: Pool, attribute: u32, value: AttributeIn);
        }
    };
}
