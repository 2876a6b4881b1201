//! The end of a context and of all objects that belong to it.

use super::{
    array,
    context::{Context, contexts},
    driver,
    event::events,
    function::functions,
    handle::Handle,
    module::modules,
    status::Answer,
    stream::object::streams,
    texture::{self, reference},
};

/// Ends the context: cancels kernels, and frees objects and memory.
pub fn destroy(context: &Context) -> Answer {
    context.end()?;
    forget_objects(context.handle)?;
    let driver = driver()?;
    driver.host.free_all_of(context.handle, &driver.devices);
    context.device.allocations.free_all_of(context.handle, &context.device.memory);
    contexts()?.remove(context.handle)?;
    // All contexts of a device share its heap here, so only the last one clears it.
    if contexts()?.find(|other| std::ptr::eq(other.device, context.device)).is_none() {
        context.device.memory.clear_heap();
    }
    Ok(())
}

fn forget_objects(context: Handle) -> Answer {
    functions()?.retain(|function| function.context != context);
    modules()?.retain(|module| module.context != context);
    events()?.retain(|event| event.context != context);
    streams()?.retain(|stream| stream.context != context);
    texture::forget_all_of(context)?;
    reference::forget_all_of(context)?;
    array::forget_all_of(context)
}
