//! Libraries (`cuLibraryLoadData`): programs that belong to no context. A context loads the program when it first uses
//! one of its kernels, and keeps it until the library is unloaded.

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

/// A program for all contexts.
#[derive(Debug)]
pub struct Library {
    image: Box<[u8]>,
    registers_max: Option<u32>,
    /// Kernels by name, sorted so that repeated enumeration gives the same order.
    kernels: Vec<(String, Handle)>,
    /// The module of each context that has loaded the program.
    modules: Mutex<HashMap<Handle, Handle>>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct Kernel {
    pub library: Handle,
    pub name: CString,
    entry: String,
    /// Attributes set for a device (device, attribute, value), which functions in its contexts take over.
    settings: Mutex<Vec<(i32, u32, i32)>>,
}

/// A library's handle and the log of its loading.
#[derive(Debug)]
pub struct LoadedLibrary {
    pub handle: Handle,
    pub log: String,
}

/// Returns the registry of library kernels.
pub fn kernels() -> Answer<&'static Registry<Kernel>> {
    static KERNELS: LazyLock<Registry<Kernel>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*KERNELS)
}

/// Returns the registry of libraries.
pub fn libraries() -> Answer<&'static Registry<Library>> {
    static LIBRARIES: LazyLock<Registry<Library>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*LIBRARIES)
}

/// Loads an image for later contexts. The image is compiled once here, so that its errors are reported immediately.
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

/// Unloads the library, its kernels, and the modules that contexts loaded from it.
pub fn unload(library: Handle) -> Answer {
    let removed = libraries()?.remove(library)?;
    kernels()?.retain(|kernel| kernel.library != library);
    let modules = std::mem::take(&mut *removed.modules());
    let contexts = contexts()?;
    let mut result = Ok(());
    for (context, module) in modules {
        // A context that has ended has freed its module.
        if let Ok(context) = contexts.get(context) {
            // The module is unloaded even after a fault, when its kernels have ended too.
            result = result.and(context.synchronize());
            module::forget(module);
        }
    }
    result
}

/// Returns the library behind a handle.
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

    /// Returns the library's module in a context; loads it at the first use.
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
    /// Returns the kernel's function in a context.
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

    /// Sets an attribute for all contexts of a device, from the next use on.
    pub fn set_attribute(&self, attribute: u32, value: i32, device: i32) {
        let mut settings = self.settings();
        settings.retain(|(known_device, known, _)| (*known_device, *known) != (device, attribute));
        settings.push((device, attribute, value));
    }

    fn settings(&self) -> MutexGuard<'_, Vec<(i32, u32, i32)>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the function of a library kernel in a context; the handle of a function returns that function.
pub fn resolve(handle: Handle, context: &Arc<Context>) -> Answer<(Handle, Arc<Function>)> {
    let handle = match kernels()?.get(handle) {
        Ok(kernel) => kernel.function(context)?,
        Err(_) => handle,
    };
    Ok((handle, functions()?.get(handle)?))
}

/// Returns the function behind a handle, which may be that of a library kernel.
pub fn find_function(function: Handle) -> Answer<Arc<Function>> {
    resolve(function, &current::context()?).map(|(_, function)| function)
}
