//! Loaded modules, and the functions that callers take from them.

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
    texture::reference,
};
use crate::module::{Module as Program, ReferenceKind};

/// A module of a context.
#[derive(Debug)]
pub struct Module {
    pub handle: Handle,
    pub context: Handle,
    program: Program,
    /// Handles of the kernels; each is created when the kernel is first asked for.
    functions: Mutex<HashMap<String, Handle>>,
}

/// A module's handle and the log of its loading.
#[derive(Debug)]
pub struct LoadedModule {
    pub handle: Handle,
    pub log: String,
}

/// Returns the registry of modules.
pub fn modules() -> Answer<&'static Registry<Module>> {
    static MODULES: LazyLock<Registry<Module>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*MODULES)
}

/// Loads an image into the current context. `registers_max` limits the register count of each kernel.
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

/// Unloads the module and its functions, after the work in flight, which may still use its variables.
pub fn unload(module: Handle) -> Answer {
    modules()?.get(module)?;
    capture::forbid_unsafe()?;
    let synchronized = injection::wait(&*current::context()?);
    forget(module);
    synchronized
}

/// Removes the module's handle and those of its functions.
pub fn forget(module: Handle) {
    if let (Ok(functions), Ok(modules)) = (functions(), modules()) {
        functions.retain(|function| function.module != module);
        reference::forget_module(module);
        // It may have ended with its context before.
        let _ = modules.remove(module);
    }
}

/// Reports whether the handle belongs to a loaded module.
pub fn is_loaded(module: Handle) -> bool {
    modules().is_ok_and(|modules| modules.get(module).is_ok())
}

/// Returns the module behind a handle.
pub fn find(module: Handle) -> Answer<Arc<Module>> {
    current::context()?;
    modules()?.get(module)
}

impl Module {
    /// Returns the handle of a kernel.
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

    /// Returns the names of the kernels, sorted so that repeated enumeration gives the same order.
    pub fn kernel_names(&self) -> Vec<String> {
        let mut names = self.program.entries().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        names.sort_unstable();
        names
    }

    /// Returns the handle of a texture or surface reference.
    pub fn reference(&self, name: &str, kind: ReferenceKind) -> Answer<Handle> {
        let variable = self.program.reference(name).filter(|variable| variable.kind == kind).ok_or(Status::NotFound)?;
        reference::of_variable(self.context, self.handle, name, variable)
    }

    /// Returns address and bytes of a variable.
    pub fn global(&self, name: &str) -> Answer<(u64, usize)> {
        let (address, bytes) = self.program.global(name).ok_or(Status::NotFound)?;
        Ok((address, bytes as usize))
    }
}
