//! Libraries: programs that belong to no context. Each context that uses one of its kernels has the program loaded then,
//! and keeps it until the library is unloaded.

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    context::Context,
    driver,
    function::Function,
    handle::{Handle, fresh},
    jit::{self, JitError},
    module,
    status::{Answer, Status},
};

/// A program for every context.
#[derive(Debug)]
pub struct Library {
    image: Box<[u8]>,
    /// Sorted, so that enumerating twice gives the same order.
    kernels: Vec<(String, Handle)>,
    /// The module of each context that has loaded it.
    modules: Mutex<HashMap<Handle, Handle>>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct Kernel {
    pub library: Handle,
    pub name: CString,
    entry: String,
    /// Attributes set for a device, which each context of it takes over: device, attribute, value.
    settings: Mutex<Vec<(i32, u32, i32)>>,
}

/// A library's handle and the log of its loading.
#[derive(Debug)]
pub struct LoadedLibrary {
    pub handle: Handle,
    pub log: String,
}

/// Loads an image for contexts to come. It is translated once here, so that what is wrong with it is told at once.
pub fn load(image: &[u8]) -> Result<LoadedLibrary, JitError> {
    let silent = |status| JitError { status, log: String::new() };
    let driver = driver().map_err(silent)?;
    let device = driver.devices.first().ok_or_else(|| silent(Status::NoDevice))?;
    let jit::Loaded { module, log } = jit::load(device, image)?;
    let mut names = module.entries().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    names.sort_unstable();
    let handle = fresh();
    let kernels = names.into_iter().map(|name| (name, fresh())).collect::<Vec<_>>();
    for (name, kernel) in &kernels {
        let (entry, name) = (name.clone(), CString::new(name.as_str()).unwrap_or_default());
        driver.kernels.insert(*kernel, Arc::new(Kernel { library: handle, name, entry, settings: Mutex::default() }));
    }
    let library = Library { image: image.into(), kernels, modules: Mutex::default() };
    driver.libraries.insert(handle, Arc::new(library));
    Ok(LoadedLibrary { handle, log })
}

/// Ends the library, its kernels, and what contexts have loaded of it.
pub fn unload(library: Handle) -> Answer {
    let driver = driver()?;
    let removed = driver.libraries.remove(library)?;
    driver.kernels.retain(|kernel| kernel.library != library);
    let modules = std::mem::take(&mut *removed.modules());
    for (context, module) in modules {
        // A context that has ended took its module along.
        if let Ok(context) = driver.contexts.get(context) {
            context.synchronize()?;
            module::forget(module);
        }
    }
    Ok(())
}

/// The library behind a handle.
pub fn find(library: Handle) -> Answer<Arc<Library>> {
    driver()?.libraries.get(library)
}

impl Library {
    pub fn kernel(&self, name: &str) -> Answer<Handle> {
        let found = self.kernels.iter().find(|(known, _)| known == name);
        found.map(|(_, handle)| *handle).ok_or(Status::NotFound)
    }

    pub fn kernels(&self) -> impl ExactSizeIterator<Item = Handle> {
        self.kernels.iter().map(|(_, handle)| *handle)
    }

    /// The module in a context, loaded now if it is not yet.
    pub fn module(&self, context: &Arc<Context>) -> Answer<Handle> {
        let mut modules = self.modules();
        if let Some(module) = modules.get(&context.handle).filter(|module| module::is_loaded(**module)) {
            return Ok(*module);
        }
        let loaded = module::load_into(context, &self.image).map_err(|error| error.status)?;
        modules.insert(context.handle, loaded.handle);
        Ok(loaded.handle)
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<Handle, Handle>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    /// Its function in a context.
    pub fn function(&self, context: &Arc<Context>) -> Answer<Handle> {
        let module = find(self.library)?.module(context)?;
        let handle = driver()?.modules.get(module)?.function(&self.entry)?;
        let function = driver()?.functions.get(handle)?;
        let ordinal = context.device.ordinal;
        for (_, attribute, value) in self.settings().iter().filter(|(device, ..)| *device == ordinal) {
            function.set_attribute(*attribute, *value, context.device)?;
        }
        Ok(handle)
    }

    /// Sets an attribute for all contexts of a device; it counts from the next use on.
    pub fn set_attribute(&self, attribute: u32, value: i32, device: i32) {
        let mut settings = self.settings();
        settings.retain(|(known_device, known, _)| (*known_device, *known) != (device, attribute));
        settings.push((device, attribute, value));
    }

    fn settings(&self) -> MutexGuard<'_, Vec<(i32, u32, i32)>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function of a kernel in a context; a function stays what it is.
pub fn resolve(handle: Handle, context: &Arc<Context>) -> Answer<(Handle, Arc<Function>)> {
    let driver = driver()?;
    let handle = match driver.kernels.get(handle) {
        Ok(kernel) => kernel.function(context)?,
        Err(_) => handle,
    };
    Ok((handle, driver.functions.get(handle)?))
}
