//! Checks the task's buffers, adds the missing ones, and selects the outputs.

use std::collections::BTreeMap;

use gpufleet_schema::{Buffer, Data, bounds::BUFFER_BYTES_MAX};

use super::{Problem, ResolveError, Symbols};
use crate::{
    catalog::Kernel,
    manifest::{BufferSpec, Role},
    spelling,
};

/// The task's buffers by name. Each has the dtype and the number of dimensions that the kernel requires.
pub(super) type Given<'a> = BTreeMap<String, Buffer<'a>>;

pub(super) fn take<'a>(kernel: &Kernel, buffers: Vec<Buffer<'a>>) -> Result<Given<'a>, ResolveError> {
    let mut given = Given::new();
    for buffer in buffers {
        let spec = kernel.buffer(&buffer.name).ok_or_else(|| surplus(kernel, &buffer.name))?;
        check_form(spec, &buffer)?;
        let name = buffer.name.clone();
        if given.insert(name.clone(), buffer).is_some() {
            return Err(ResolveError::new(format!("buffers.{name}"), Problem::Twice));
        }
    }
    match kernel.buffers.iter().find(|spec| spec.role.is_given() && !given.contains_key(&spec.name)) {
        Some(spec) => {
            Err(ResolveError::new(format!("buffers.{}", spec.name), Problem::Missing { signature: kernel.signature() }))
        }
        None => Ok(given),
    }
}

fn surplus(kernel: &Kernel, name: &str) -> ResolveError {
    let closest = spelling::closest(name, kernel.buffers.iter().map(|buffer| buffer.name.as_str()));
    ResolveError::new(
        format!("buffers.{name}"),
        Problem::Surplus { what: "buffer", closest: closest.map(str::to_owned), signature: kernel.signature() },
    )
}

fn check_form(spec: &BufferSpec, buffer: &Buffer<'_>) -> Result<(), ResolveError> {
    let fail = |part: &str, problem| Err(ResolveError::new(format!("buffers.{}.{part}", spec.name), problem));
    if buffer.dtype != spec.dtype {
        return fail("dtype", Problem::WrongDtype { want: spec.dtype, got: buffer.dtype });
    }
    if buffer.shape.len() != spec.shape.len() {
        return fail("shape", Problem::WrongRank { want: spec.form(), got: buffer.shape.clone() });
    }
    if buffer.shape.contains(&0) {
        return fail("shape", Problem::Empty { got: buffer.shape.clone() });
    }
    if !spec.role.is_given() && buffer.data != Data::Zeros {
        return fail("data", Problem::OutputHasContents);
    }
    if buffer.share && spec.role != Role::In {
        return fail("share", Problem::SharesWhatItWrites);
    }
    Ok(())
}

/// Binds the symbols in the shapes of `in` and `inout` buffers.
pub(super) fn bind(kernel: &Kernel, given: &Given<'_>, symbols: &mut Symbols) -> Result<(), ResolveError> {
    for spec in kernel.buffers.iter().filter(|spec| spec.role.is_given()) {
        let Some(buffer) = given.get(&spec.name) else { continue };
        let field = format!("buffers.{}.shape", spec.name);
        for (extent, value) in spec.shape.iter().zip(&buffer.shape) {
            if let Some(symbol) = extent.symbol() {
                symbols.bind(symbol, *value, &field, &buffer.shape)?;
            }
        }
    }
    Ok(())
}

/// Returns all of the kernel's buffers, in the manifest's order.
pub(super) fn complete<'a>(
    kernel: &Kernel,
    mut given: Given<'a>,
    symbols: &Symbols,
) -> Result<Vec<Buffer<'a>>, ResolveError> {
    let mut total_bytes = 0_u64;
    let mut complete = |spec: &BufferSpec| {
        let field = format!("buffers.{}.shape", spec.name);
        let shape = shape(spec, symbols).map_err(|problem| ResolveError::new(&field, problem))?;
        let buffer = match given.remove(&spec.name) {
            Some(buffer) if buffer.shape == shape => Buffer { share: shares(spec, &buffer), ..buffer },
            Some(buffer) => {
                let problem = Problem::WrongExtent { want: shape, got: buffer.shape, rule: spec.form() };
                return Err(ResolveError::new(field, problem));
            }
            None => Buffer::new(spec.name.clone(), spec.dtype, shape, Data::Zeros),
        };
        match buffer.bytes().and_then(|bytes| total_bytes.checked_add(bytes)) {
            Some(total @ 0..=BUFFER_BYTES_MAX) => total_bytes = total,
            _ => {
                let problem = Problem::TooLarge { form: spec.form(), shape: buffer.shape };
                return Err(ResolveError::new(field, problem));
            }
        }
        Ok(buffer)
    };
    kernel.buffers.iter().map(&mut complete).collect()
}

/// Returns whether jobs share the buffer on the device. The manifest says which inputs the kernel only reads, so the
/// task need not.
fn shares(spec: &BufferSpec, buffer: &Buffer<'_>) -> bool {
    spec.role == Role::In && buffer.blob().is_some()
}

fn shape(spec: &BufferSpec, symbols: &Symbols) -> Result<Vec<u64>, Problem> {
    let shape = spec.shape.iter().map(|extent| symbols.evaluate(extent)).collect::<Result<Vec<_>, _>>()?;
    if shape.contains(&0) {
        return Err(Problem::Empty { got: shape });
    }
    Ok(shape)
}

/// Returns the outputs that the task names, or all of them if it names none.
pub(super) fn outputs(kernel: &Kernel, asked: Vec<String>) -> Result<Vec<String>, ResolveError> {
    if asked.is_empty() {
        return Ok(kernel.outputs().map(|spec| spec.name.clone()).collect());
    }
    for (index, name) in asked.iter().enumerate() {
        let fail = |problem| Err(ResolveError::new(format!("outputs[{index}]"), problem));
        if asked[..index].contains(name) {
            return fail(Problem::OutputTwice);
        }
        if !kernel.buffer(name).is_some_and(|spec| spec.role.is_returned()) {
            let closest = spelling::closest(name, kernel.outputs().map(|spec| spec.name.as_str()));
            return fail(Problem::NoOutput {
                name: name.clone(),
                closest: closest.map(str::to_owned),
                signature: kernel.signature(),
            });
        }
    }
    Ok(asked)
}
