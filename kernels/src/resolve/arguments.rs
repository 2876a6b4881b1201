//! Checks the task's scalars.

use std::collections::BTreeMap;

use gpufleet_schema::{Dtype, Number};

use super::{Problem, ResolveError};
use crate::{catalog::Kernel, manifest::ScalarSpec, spelling};

/// The kernel's scalars by name. Each fits its dtype.
pub(super) type Scalars = BTreeMap<String, (Dtype, Number)>;

pub(super) fn take(kernel: &Kernel, mut given: BTreeMap<String, Number>) -> Result<Scalars, ResolveError> {
    let mut scalars = Scalars::new();
    for spec in &kernel.scalars {
        let field = || format!("arguments.{}", spec.name);
        let number = given
            .remove(&spec.name)
            .or(spec.default)
            .ok_or_else(|| ResolveError::new(field(), Problem::Missing { signature: kernel.signature() }))?;
        check_fit(spec, number).map_err(|problem| ResolveError::new(field(), problem))?;
        scalars.insert(spec.name.clone(), (spec.dtype, number));
    }
    match given.into_keys().next() {
        Some(name) => Err(surplus(kernel, &name)),
        None => Ok(scalars),
    }
}

fn surplus(kernel: &Kernel, name: &str) -> ResolveError {
    let closest = spelling::closest(name, kernel.scalars.iter().map(|scalar| scalar.name.as_str()));
    ResolveError::new(
        format!("arguments.{name}"),
        Problem::Surplus { what: "argument", closest: closest.map(str::to_owned), signature: kernel.signature() },
    )
}

fn check_fit(spec: &ScalarSpec, number: Number) -> Result<(), Problem> {
    Ok(number.write(spec.dtype, &mut Vec::with_capacity(spec.dtype.size()))?)
}
