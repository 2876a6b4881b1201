//! Texture and surface references: module variables that the host binds to memory, as programs did before texture
//! objects existed. Every change creates a new texture behind the variable's handle.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gpufleet_surface::structs::texture::Sampling;

use super::{resource::Resource, sampling};
use crate::driver::{
    context::{Context, contexts},
    handle::{Handle, Registry, fresh},
    injection, started,
    status::{Answer, Status},
};
use crate::memory::ALLOCATION_ALIGN;
use crate::module::{Reference as Variable, ReferenceKind};
use crate::texture::{
    format::{Channel, Format},
    registry::Object,
};

/// Format of linear memory until the program sets one.
const BYTES: Format = Format { channel: Channel::U8, channels: 1 };

/// A module variable and its binding.
#[derive(Debug)]
pub struct Reference {
    pub context: Handle,
    pub module: Handle,
    name: String,
    variable: Variable,
    binding: Mutex<Binding>,
}

/// The binding of a reference: what it reads, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Binding {
    /// Linear memory is read in the binding's format, which may be set later.
    pub resource: Option<Resource>,
    /// Format of memory that has none of its own.
    pub format: Option<Format>,
    pub sampling: Sampling,
}

/// Returns the registry of references.
pub fn references() -> Answer<&'static Registry<Reference>> {
    static REFERENCES: LazyLock<Registry<Reference>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*REFERENCES)
}

/// Returns the handle of a module's variable; the first call for a variable creates it.
pub fn of_variable(context: Handle, module: Handle, name: &str, variable: Variable) -> Answer<Handle> {
    if let Some(known) = references()?.find(|known| known.module == module && known.name == name) {
        return Ok(known);
    }
    let (handle, name, binding) = (fresh(), name.to_owned(), Mutex::default());
    let reference = Reference { context, module, name, variable, binding };
    references()?.insert(handle, Arc::new(reference));
    Ok(handle)
}

/// Returns the reference behind a handle.
pub fn find(handle: Handle) -> Answer<Arc<Reference>> {
    references()?.get(handle).map_err(|_| Status::InvalidValue)
}

/// Removes the references of a context that ends.
pub fn forget_all_of(context: Handle) -> Answer {
    references()?.retain(|reference| reference.context != context);
    Ok(())
}

/// Removes the references of a module that ends.
pub fn forget_module(module: Handle) {
    if let Ok(references) = references() {
        references.retain(|reference| reference.module != module);
    }
}

impl Reference {
    pub fn binding(&self) -> Binding {
        *self.lock()
    }

    /// Changes the binding. Waits for kernels in flight, which use the binding of their launch.
    pub fn change(&self, change: impl FnOnce(&mut Binding) -> Answer) -> Answer {
        let context = contexts()?.get(self.context)?;
        injection::wait(&context)?;
        let mut binding = self.lock();
        let mut changed = *binding;
        change(&mut changed)?;
        let object = self.object(&context, &changed)?;
        context.device.memory.textures().bind(self.variable.handle, object);
        *binding = changed;
        Ok(())
    }

    fn object(&self, context: &Arc<Context>, binding: &Binding) -> Answer<Object> {
        let Some(resource) = binding.formatted() else { return Ok(Object::Unbound) };
        if self.variable.kind == ReferenceKind::Surface {
            return Ok(Object::Surface(Arc::new(resource.surface()?)));
        }
        let image = resource.image(context)?;
        // Parts are set one after the other; until they fit together, the reference stays unbound.
        Ok(sampling::texture(&binding.sampling, image)
            .map_or(Object::Unbound, |texture| Object::Texture(Arc::new(texture))))
    }

    fn lock(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Binding {
    /// Binds linear memory; returns the offset of the address from the start of the bound range.
    pub fn bind_linear(&mut self, address: u64, bytes: u64) -> usize {
        let (offset, format) = (address % ALLOCATION_ALIGN, self.format.unwrap_or(BYTES));
        let bytes = bytes.saturating_add(offset);
        self.resource = Some(Resource::Linear { address: address - offset, format, bytes });
        offset as usize
    }

    /// Returns the resource in its final format; `None` while that is unknown.
    fn formatted(&self) -> Option<Resource> {
        match (self.resource?, self.format) {
            (Resource::Linear { address, bytes, .. }, Some(format)) => {
                Some(Resource::Linear { address, format, bytes })
            }
            (Resource::Linear { .. }, None) => None,
            (Resource::Pitched { address, width, height, pitch, format }, new) => {
                let format = new.unwrap_or(format);
                Some(Resource::Pitched { address, format, width, height, pitch })
            }
            (array, _) => Some(array),
        }
    }
}
