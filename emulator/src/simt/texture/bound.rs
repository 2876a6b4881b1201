//! The texture and surface objects that a thread of a launch has looked up.

use crate::fault::FaultKind;
use crate::memory::Memory;
use crate::texture::Texture;
use crate::texture::registry::{Object, was_given};

/// Maximum number of handles that a thread of a launch remembers; most kernels have one or two.
const REMEMBERED_MAX: usize = 16;

/// The objects that were looked up.
#[derive(Debug, Default)]
pub struct Bound {
    objects: Vec<(u64, Object)>,
    /// Textures combined with the sampler of another handle.
    sampled: Vec<(u64, u64, Texture)>,
}

/// A wrong use of a texture or a surface by a lane.
#[derive(Debug)]
pub struct Misuse {
    pub lane: usize,
    pub kind: FaultKind,
    pub what: String,
    pub reason: String,
}

pub type Checked<T> = Result<T, Misuse>;

impl Bound {
    /// Returns the texture of a fetch, with the sampler of another handle if the fetch names one.
    pub fn sampled(&mut self, handle: u64, sampler: Option<u64>, lane: usize, memory: &Memory) -> Checked<&Texture> {
        let Some(sampler) = sampler.filter(|sampler| *sampler != handle) else {
            return self.texture(handle, lane, memory);
        };
        let known = self.sampled.iter().position(|(one, other, _)| (*one, *other) == (handle, sampler));
        let place = match known {
            Some(place) => place,
            None => {
                let found = match self.find(sampler, lane, memory)? {
                    Object::Sampler(found) => **found,
                    Object::Texture(found) => found.sampler,
                    Object::Surface(_) | Object::Unbound => return Err(wrong_kind("sampler", sampler, lane)),
                };
                let texture = self.texture(handle, lane, memory)?;
                let texture = Texture { image: texture.image.clone(), sampler: texture.sampler.with(&found) };
                if self.sampled.len() == REMEMBERED_MAX {
                    self.sampled.clear();
                }
                self.sampled.push((handle, sampler, texture));
                self.sampled.len() - 1
            }
        };
        Ok(&self.sampled[place].2)
    }

    fn texture(&mut self, handle: u64, lane: usize, memory: &Memory) -> Checked<&Texture> {
        match self.find(handle, lane, memory)? {
            Object::Texture(texture) => Ok(texture),
            Object::Surface(_) | Object::Sampler(_) | Object::Unbound => Err(wrong_kind("texture", handle, lane)),
        }
    }

    /// Returns the object behind a handle, after checking that its memory is live.
    pub fn find(&mut self, handle: u64, lane: usize, memory: &Memory) -> Checked<&Object> {
        if let Some(place) = self.objects.iter().position(|(known, _)| *known == handle) {
            return Ok(&self.objects[place].1);
        }
        let illegal = |reason: String| Misuse {
            lane,
            kind: FaultKind::IllegalAddress,
            what: format!("illegal access by the texture or surface handle {handle:#x}"),
            reason,
        };
        let object = memory.textures().get(handle).ok_or_else(|| {
            illegal(match was_given(handle) {
                true => "the object was destroyed, or is another device's".to_owned(),
                false => "no texture or surface object has this handle".to_owned(),
            })
        })?;
        let image = match &object {
            Object::Texture(texture) => Some(&texture.image),
            Object::Surface(image) => Some(&**image),
            Object::Sampler(_) => None,
            Object::Unbound => return Err(illegal("the module's reference was bound to nothing".to_owned())),
        };
        if let Some(image) = image {
            let (address, bytes) = image.range();
            if let Err(error) = memory.check(address, bytes) {
                return Err(illegal(format!("its memory was freed: {}", error.nearest)));
            }
        }
        if self.objects.len() == REMEMBERED_MAX {
            self.objects.clear();
        }
        self.objects.push((handle, object));
        Ok(&self.objects[self.objects.len() - 1].1)
    }
}

pub fn wrong_kind(wanted: &str, handle: u64, lane: usize) -> Misuse {
    let what = format!("illegal access by the texture or surface handle {handle:#x}");
    Misuse { lane, kind: FaultKind::IllegalAddress, what, reason: format!("the handle is not that of a {wanted}") }
}
