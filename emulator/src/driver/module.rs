//! Loaded modules and the functions taken from them.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{
    capture,
    context::{Context, contexts},
    current,
    faults::Site,
    function::{self, Function, functions},
    handle::{Handle, Registry, fresh},
    injection,
    jit::{self, JitError},
    started,
    status::{Answer, Status},
    texture,
};
use crate::module::{Module as Program, Reference};

/// A module of a context.
#[derive(Debug)]
pub struct Module {
    pub handle: Handle,
    pub context: Handle,
    program: Program,
    /// One handle for each kernel, made when it is first asked for.
    functions: Mutex<HashMap<String, Handle>>,
}

/// A module's handle and the log of its loading.
#[derive(Debug)]
pub struct LoadedModule {
    pub handle: Handle,
    pub log: String,
}

/// The modules under their handles.
pub fn modules() -> Answer<&'static Registry<Module>> {
    static MODULES: LazyLock<Registry<Module>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*MODULES)
}

/// Loads an image into the current context. Its kernels count no more registers than the limit.
pub fn load(image: &[u8], registers_max: Option<u32>) -> Result<LoadedModule, JitError> {
    let silent = |status| JitError { status, log: String::new() };
    let context = current::context().map_err(silent)?;
    load_into(&context, image, registers_max)
}

/// Loads an image into a context.
pub fn load_into(context: &Context, image: &[u8], registers_max: Option<u32>) -> Result<LoadedModule, JitError> {
    let silent = |status| JitError { status, log: String::new() };
    capture::forbid_unsafe().map_err(silent)?;
    injection::call(context, Site::Load).map_err(silent)?;
    let jit::Loaded { module: program, log } = jit::load(context.device, image)?;
    let handle = fresh();
    let program = program.with_registers_max(registers_max);
    let module = Module { handle, context: context.handle, program, functions: Mutex::default() };
    modules().map_err(silent)?.insert(handle, Arc::new(module));
    Ok(LoadedModule { handle, log })
}

/// Ends the module and its functions, after the work in flight, which may still use its variables.
pub fn unload(module: Handle) -> Answer {
    modules()?.get(module)?;
    capture::forbid_unsafe()?;
    let synchronized = injection::wait(&*current::context()?);
    forget(module);
    synchronized
}

/// Ends the module's handle and those of its functions.
pub fn forget(module: Handle) {
    if let (Ok(functions), Ok(modules)) = (functions(), modules()) {
        functions.retain(|function| function.module != module);
        texture::reference::forget_module(module);
        // It may have gone with its context before.
        let _ = modules.remove(module);
    }
}

/// Is there still a module of this handle?
pub fn is_loaded(module: Handle) -> bool {
    modules().is_ok_and(|modules| modules.get(module).is_ok())
}

/// The module behind a handle.
pub fn find(module: Handle) -> Answer<Arc<Module>> {
    current::context()?;
    modules()?.get(module)
}

impl Module {
    /// The handle of a kernel.
    pub fn function(&self, name: &str) -> Answer<Handle> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = functions.get(name) {
            return Ok(*handle);
        }
        let entry = self.program.entry(name).ok_or(Status::NotFound)?;
        injection::call(&*contexts()?.get(self.context)?, Site::Function)?;
        let handle = fresh();
        let function = Function::new(self.context, self.handle, entry);
        function::functions()?.insert(handle, Arc::new(function));
        functions.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// The names of its kernels, sorted so that enumerating twice gives the same order.
    pub fn kernel_names(&self) -> Vec<String> {
        let mut names = self.program.entries().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        names.sort_unstable();
        names
    }

    /// A variable for a texture or a surface.
    pub fn reference(&self, name: &str) -> Option<Reference> {
        self.program.reference(name)
    }

    /// Address and bytes of a variable.
    pub fn global(&self, name: &str) -> Answer<(u64, usize)> {
        let (address, bytes) = self.program.global(name).ok_or(Status::NotFound)?;
        Ok((address, bytes as usize))
    }
}
