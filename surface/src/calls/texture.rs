//! Texture and surface objects.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_texture {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 5000 cuTexObjectCreate(
                object: Out<TextureObject>, resource: In<ResourceDescription>, sampling: In<Sampling>,
                view: In<ViewDescription>
            );
            post 5000 cuTexObjectDestroy(object: TextureObject);
            ask 5000 cuTexObjectGetResourceDesc(resource: Out<ResourceDescription>, object: TextureObject);
            ask 5000 cuTexObjectGetTextureDesc(sampling: Out<Sampling>, object: TextureObject);
            ask 5000 cuTexObjectGetResourceViewDesc(view: Out<ViewDescription>, object: TextureObject);
            ask 5000 cuSurfObjectCreate(object: Out<SurfaceObject>, resource: In<ResourceDescription>);
            post 5000 cuSurfObjectDestroy(object: SurfaceObject);
            ask 5000 cuSurfObjectGetResourceDesc(resource: Out<ResourceDescription>, object: SurfaceObject);
        }
    };
}
