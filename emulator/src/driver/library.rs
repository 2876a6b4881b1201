//! Libraries: programs that belong to no context. Each context that uses one of its kernels has the program loaded then,
//! and keeps it until the library is unloaded.

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use super::{
    context::{Context, contexts},
    current, driver,
    function::{Function, functions},
    handle::{Handle, Registry, fresh},
    jit::{self, JitError},
    module::{self, modules},
    started,
    status::{Answer, Status},
};

/// A program for every context.
#[derive(Debug)]
pub struct Library {
    image: Box<[u8]>,
    registers_max: Option<u32>,
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

/// The kernels of libraries under their handles.
pub fn kernels() -> Answer<&'static Registry<Kernel>> {
    static KERNELS: LazyLock<Registry<Kernel>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*KERNELS)
}

/// The libraries under their handles.
pub fn libraries() -> Answer<&'static Registry<Library>> {
    static LIBRARIES: LazyLock<Registry<Library>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*LIBRARIES)
}

/// Loads an image for contexts to come. It is translated once here, so that what is wrong with it is told at once.
pub fn load(image: &[u8], registers_max: Option<u32>) -> Result<LoadedLibrary, JitError> {
    let silent = |status| JitError { status, log: String::new() };
    let driver = driver().map_err(silent)?;
    let device = driver.devices.first().ok_or_else(|| silent(Status::NoDevice))?;
    let jit::Loaded { module, log } = jit::load(device, image)?;
    let mut names = module.entries().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    names.sort_unstable();
    let handle = fresh();
    let kernels = names.into_iter().map(|name| (name, fresh())).collect::<Vec<_>>();
    let registry = self::kernels().map_err(silent)?;
    for (name, kernel) in &kernels {
        let (entry, name) = (name.clone(), CString::new(name.as_str()).unwrap_or_default());
        registry.insert(*kernel, Arc::new(Kernel { library: handle, name, entry, settings: Mutex::default() }));
    }
    let library = Library { image: image.into(), registers_max, kernels, modules: Mutex::default() };
    libraries().map_err(silent)?.insert(handle, Arc::new(library));
    Ok(LoadedLibrary { handle, log })
}

/// Ends the library, its kernels, and what contexts have loaded of it.
pub fn unload(library: Handle) -> Answer {
    let removed = libraries()?.remove(library)?;
    kernels()?.retain(|kernel| kernel.library != library);
    let modules = std::mem::take(&mut *removed.modules());
    let contexts = contexts()?;
    let mut result = Ok(());
    for (context, module) in modules {
        // A context that has ended took its module along.
        if let Ok(context) = contexts.get(context) {
            // The module ends also after a fault, when its kernels have ended too.
            result = result.and(context.synchronize());
            module::forget(module);
        }
    }
    result
}

/// The library behind a handle.
pub fn find(library: Handle) -> Answer<Arc<Library>> {
    libraries()?.get(library)
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
        let loaded = module::load_into(context, &self.image, self.registers_max).map_err(|error| error.status)?;
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
        let handle = modules()?.get(module)?.function(&self.entry)?;
        let function = functions()?.get(handle)?;
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
    let handle = match kernels()?.get(handle) {
        Ok(kernel) => kernel.function(context)?,
        Err(_) => handle,
    };
    Ok((handle, functions()?.get(handle)?))
}

/// The function behind a handle, which may also be that of a library's kernel.
pub fn find_function(function: Handle) -> Answer<Arc<Function>> {
    resolve(function, &current::context()?).map(|(_, function)| function)
}
