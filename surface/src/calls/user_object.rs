//! User objects, which live as long as graphs need them.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_user_object {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 11030 cuUserObjectCreate(
                object: New<UserObject>, data: HostData, destroy: Option<HostFunction>, references: u32, flags: u32
            );
            ask 11030 cuUserObjectRetain(object: UserObject, count: u32);
            ask 11030 cuUserObjectRelease(object: UserObject, count: u32);
            ask 11030 cuGraphRetainUserObject(graph: Graph, object: UserObject, count: u32, flags: u32);
            ask 11030 cuGraphReleaseUserObject(graph: Graph, object: UserObject, count: u32);
        }
    };
}
