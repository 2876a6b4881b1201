//! Texture, sampler and surface references: module variables that receive a handle, which the host binds to an image.

use std::sync::Arc;

use crate::module::{Reference, ReferenceKind, Storage};
use crate::ptx::error::{LoadError, LoadErrorKind};
use crate::ptx::tree::{Opaque, Variable};
use crate::texture::registry::Object;
use crate::texture::sampler::{AddressMode, Filter, Sampler};

/// Properties with the address mode of each axis.
const AXES: [&str; 3] = ["addr_mode_0", "addr_mode_1", "addr_mode_2"];

/// Creates the handle of a variable.
pub(super) fn place(variable: &Variable, opaque: &Opaque, storage: &mut Storage) -> Result<Reference, LoadError> {
    let (kind, object) = match opaque {
        Opaque::Texture => (ReferenceKind::Texture, Object::Unbound),
        Opaque::Surface => (ReferenceKind::Surface, Object::Unbound),
        Opaque::Sampler(properties) => {
            (ReferenceKind::Sampler, Object::Sampler(Arc::new(sampler(variable, properties)?)))
        }
    };
    let handle = storage.memory.textures().add(object);
    storage.handles.push(handle);
    Ok(Reference { kind, handle })
}

fn sampler(variable: &Variable, properties: &[(&str, &str)]) -> Result<Sampler, LoadError> {
    let mut sampler = Sampler::default();
    for (name, value) in properties {
        let axis = AXES.iter().position(|axis| axis == name);
        match (*name, *value, axis.zip(address_mode(value))) {
            (_, _, Some((axis, mode))) => sampler.address[axis] = mode,
            ("filter_mode", "nearest", _) => sampler.filter = Filter::Point,
            ("filter_mode", "linear", _) => sampler.filter = Filter::Linear,
            // Unnormalized coordinates can only be forced on texture references.
            ("force_unnormalized_coords", "0", _) => {}
            _ => {
                let message = format!("unsupported property `{name} = {value}` of the sampler `{}`", variable.name);
                return Err(LoadError::new(variable.line, LoadErrorKind::UnsupportedDirective, message));
            }
        }
    }
    Ok(sampler)
}

fn address_mode(name: &str) -> Option<AddressMode> {
    Some(match name {
        "wrap" => AddressMode::Wrap,
        "mirror" => AddressMode::Mirror,
        "clamp_to_edge" => AddressMode::Clamp,
        "clamp_to_border" => AddressMode::Border,
        _ => return None,
    })
}
