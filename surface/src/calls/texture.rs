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
            ask 5000 cuTexObjectDestroy(object: Gone<TextureObject>);
            ask 5000 cuTexObjectGetResourceDesc(resource: Out<ResourceDescription>, object: TextureObject);
            ask 5000 cuTexObjectGetTextureDesc(sampling: Out<Sampling>, object: TextureObject);
            ask 5000 cuTexObjectGetResourceViewDesc(view: Out<ViewDescription>, object: TextureObject);
            ask 5000 cuSurfObjectCreate(object: Out<SurfaceObject>, resource: In<ResourceDescription>);
            ask 5000 cuSurfObjectDestroy(object: Gone<SurfaceObject>);
            ask 5000 cuSurfObjectGetResourceDesc(resource: Out<ResourceDescription>, object: SurfaceObject);
        }
    };
}
