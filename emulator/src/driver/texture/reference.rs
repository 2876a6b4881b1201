//! Texture and surface references: variables of a module that the host binds to memory, as programs did before there
//! were objects. Every change makes a new texture behind the variable's handle.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::{resource::Resource, sampling::Sampling, texture};
use crate::driver::{
    context::{Context, contexts},
    handle::{Handle, Registry, fresh},
    injection, module, started,
    status::{Answer, Status},
};
use crate::memory::ALLOCATION_ALIGN;
use crate::module::{Reference as Variable, ReferenceKind};
use crate::texture::{
    format::{Channel, Format},
    registry::Object,
};

/// Stands for the format of linear memory until the program sets one.
const BYTES: Format = Format { channel: Channel::U8, channels: 1 };

/// A variable of a module with what it is bound to.
#[derive(Debug)]
pub struct Reference {
    pub context: Handle,
    pub module: Handle,
    name: String,
    variable: Variable,
    binding: Mutex<Binding>,
}

/// What a reference reads, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Binding {
    /// Linear memory is read in the binding's format, which may be set after it.
    pub resource: Option<Resource>,
    /// The format of memory that has none of its own.
    pub format: Option<Format>,
    pub sampling: Sampling,
}

/// The references under their handles.
pub fn references() -> Answer<&'static Registry<Reference>> {
    static REFERENCES: LazyLock<Registry<Reference>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*REFERENCES)
}

/// `cuModuleGetTexRef` and `cuModuleGetSurfRef`: the same handle every time.
pub fn of_module(module: Handle, name: &str, kind: ReferenceKind) -> Answer<Handle> {
    let found = module::find(module)?;
    let variable = found.reference(name).filter(|variable| variable.kind == kind).ok_or(Status::NotFound)?;
    if let Some(known) = references()?.find(|known| known.module == module && known.name == name) {
        return Ok(known);
    }
    let (handle, name, binding) = (fresh(), name.to_owned(), Mutex::default());
    let reference = Reference { context: found.context, module, name, variable, binding };
    references()?.insert(handle, Arc::new(reference));
    Ok(handle)
}

/// The reference behind a handle.
pub fn find(handle: Handle) -> Answer<Arc<Reference>> {
    references()?.get(handle).map_err(|_| Status::InvalidValue)
}

pub fn forget_all_of(context: Handle) -> Answer {
    references()?.retain(|reference| reference.context != context);
    Ok(())
}

/// The references of a module end with it.
pub fn forget_module(module: Handle) {
    if let Ok(references) = references() {
        references.retain(|reference| reference.module != module);
    }
}

impl Reference {
    pub fn binding(&self) -> Binding {
        *self.lock()
    }

    /// Changes the binding. Kernels in flight go by what was bound when they were launched, so they end first.
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
        // Parts are set one after the other: until they fit together, there is nothing to read.
        Ok(texture(image, &binding.sampling).map_or(Object::Unbound, |texture| Object::Texture(Arc::new(texture))))
    }

    fn lock(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Binding {
    /// Binds linear memory; answers how far behind the bound start the address lies.
    pub fn bind_linear(&mut self, address: u64, bytes: u64) -> usize {
        let (offset, format) = (address % ALLOCATION_ALIGN, self.format.unwrap_or(BYTES));
        let bytes = bytes.saturating_add(offset);
        self.resource = Some(Resource::Linear { address: address - offset, format, bytes });
        offset as usize
    }

    /// The resource in the format that counts; nothing as long as that is not known.
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
