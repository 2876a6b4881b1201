//! Turns a task that names a catalog kernel into its plain form.
//!
//! The task's shapes and unsigned scalars give the manifest's symbols their values. The values determine outputs,
//! scratch buffers, grids and the kernel's parameters. Every field of the task is compared with the manifest, and every
//! error names the invalid field.

use gpufleet_schema::{Program, Task};

use crate::catalog::{Kernel, catalog};

mod arguments;
mod buffers;
mod error;
mod launches;
mod symbols;

pub use error::{Problem, ResolveError};

use symbols::Symbols;

/// Turns a catalog task into its plain form. The result has all buffers in the manifest's order (outputs and scratch
/// buffers are added as zeros), launches and outputs, and no arguments. The program is still the catalog kernel. Tasks
/// with other programs are returned unchanged.
///
/// `outputs` may name some of the kernel's outputs. If it is empty, the kernel returns all of them.
pub fn resolve<'a>(task: Task<'a>) -> Result<Task<'a>, ResolveError> {
    match &task.program {
        Program::Catalog(name) => {
            let kernel = catalog().get(name).ok_or_else(|| unknown(name))?;
            resolve_as(kernel, task)
        }
        Program::Source { .. } | Program::Ptx(_) | Program::Cubin(_) | Program::Session { .. } | Program::Host(_) => {
            Ok(task)
        }
    }
}

fn unknown(name: &str) -> ResolveError {
    let closest = catalog().closest(name).map(str::to_owned);
    ResolveError::new("program.catalog", Problem::UnknownKernel { kernel: name.to_owned(), closest })
}

fn resolve_as<'a>(kernel: &Kernel, mut task: Task<'a>) -> Result<Task<'a>, ResolveError> {
    if !task.launches.is_empty() {
        return Err(ResolveError::new("launches", Problem::LaunchesGiven));
    }
    let scalars = arguments::take(kernel, std::mem::take(&mut task.arguments))?;
    let mut symbols = Symbols::of_scalars(kernel, &scalars);
    let given = buffers::take(kernel, std::mem::take(&mut task.buffers))?;
    buffers::bind(kernel, &given, &mut symbols)?;
    symbols.check_constraints(kernel)?;
    task.buffers = buffers::complete(kernel, given, &symbols)?;
    task.launches = launches::plan(kernel, &scalars, &symbols)?;
    task.outputs = buffers::outputs(kernel, task.outputs)?;
    Ok(task)
}

#[cfg(test)]
mod tests;
