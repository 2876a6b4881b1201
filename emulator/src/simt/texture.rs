//! Texture fetches, surface accesses and queries of a warp, lane by lane.
//!
//! Each thread of a launch looks a handle up only once. The result stays valid, because work in flight ends before the
//! host frees memory.

pub mod bound;

use self::bound::{Checked, Misuse, wrong_kind};
use super::access::View;
use super::reduction;
use crate::fault::FaultKind;
use crate::ops::lanes::{FULL, LANES, store_mask};
use crate::program::texture::{Fetch, FetchLevel, Outside, Property, Query, SurfaceAccess, SurfaceAction, Texturing};
use crate::texture::format::Format;
use crate::texture::image::{Image, Level};
use crate::texture::registry::Object;
use crate::texture::sampler::{AddressMode, Filter, Sampler};
use crate::texture::{Coordinates, Geometry, LevelChoice, Place};

/// Reads a word of a plane in the frame.
///
/// # Safety
/// The slot is a plane of the frame.
unsafe fn word(frame: *mut u8, slot: u32, lane: usize) -> u32 {
    // SAFETY: the caller vouches for the slot.
    unsafe { *frame.add(slot as usize).cast::<u32>().add(lane) }
}

/// # Safety
/// As for [`word`].
unsafe fn set_word(frame: *mut u8, slot: u32, lane: usize, value: u32) {
    // SAFETY: the caller vouches for the slot.
    unsafe { *frame.add(slot as usize).cast::<u32>().add(lane) = value };
}

/// # Safety
/// As for [`word`], of a plane of 64 bits.
unsafe fn double(frame: *mut u8, slot: u32, lane: usize) -> u64 {
    // SAFETY: the caller vouches for the slot.
    unsafe { *frame.add(slot as usize).cast::<u64>().add(lane) }
}

/// # Safety
/// The slots are planes of the frame, of the widths that lowering gave them.
pub unsafe fn run(operation: &Texturing, frame: *mut u8, mask: u32, view: &mut View) -> Checked<()> {
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        // SAFETY: passed on to the caller.
        unsafe {
            match operation {
                Texturing::Fetch(fetch) => fetch_lane(fetch, frame, lane, view)?,
                Texturing::Surface(access) => access_lane(access, frame, lane, view)?,
                Texturing::Query(query) => query_lane(query, frame, lane, view)?,
            }
        }
    }
    if let Texturing::Fetch(fetch) = operation
        && let Some(resident) = fetch.resident
    {
        // SAFETY: the slot is a predicate of the frame.
        unsafe { store_mask(frame, resident, FULL, mask) };
    }
    Ok(())
}

/// # Safety
/// As for [`run`].
unsafe fn fetch_lane(fetch: &Fetch, frame: *mut u8, lane: usize, view: &mut View) -> Checked<()> {
    // SAFETY: passed on to the caller; the texture's memory was found to be live.
    unsafe {
        let handle = double(frame, fetch.texture, lane);
        let sampler = fetch.sampler.map(|slot| double(frame, slot, lane));
        let texture = view.textures.sampled(handle, sampler, lane, view.memory)?;
        if !texture.image.fits(fetch.geometry) {
            return Err(wrong_shape("texture", handle, &texture.image, fetch.geometry, lane));
        }
        let at = |slots: &[u32], axis: usize| slots.get(axis).map_or(0, |slot| word(frame, *slot, lane));
        let float = |slots: &[u32], axis: usize| f64::from(f32::from_bits(at(slots, axis)));
        let place = if fetch.by_texel {
            Place::Texel(std::array::from_fn(|axis| at(&fetch.coordinates, axis).cast_signed()))
        } else {
            Place::Point(std::array::from_fn(|axis| float(&fetch.coordinates, axis)))
        };
        let coordinates = Coordinates {
            place,
            layer: fetch.layer.map_or(0, |slot| word(frame, slot, lane)).into(),
            offset: std::array::from_fn(|axis| at(&fetch.offsets, axis).cast_signed()),
        };
        let values = match fetch.gathered {
            Some(component) => texture.gather(fetch.geometry, &coordinates, component.into()),
            None => {
                let choice = match &fetch.level {
                    FetchLevel::Base => LevelChoice::Base,
                    FetchLevel::Level(slot) if fetch.by_texel => {
                        LevelChoice::Level(word(frame, *slot, lane).cast_signed() as f32)
                    }
                    FetchLevel::Level(slot) => LevelChoice::Level(f32::from_bits(word(frame, *slot, lane))),
                    FetchLevel::Gradients(steps) => {
                        LevelChoice::Gradients([0, 1].map(|step| std::array::from_fn(|axis| float(&steps[step], axis))))
                    }
                };
                texture.fetch(fetch.geometry, &coordinates, choice)
            }
        };
        for (slot, value) in fetch.d.iter().zip(values) {
            set_word(frame, *slot, lane, value);
        }
    }
    Ok(())
}

/// # Safety
/// As for [`run`].
unsafe fn access_lane(access: &SurfaceAccess, frame: *mut u8, lane: usize, view: &mut View) -> Checked<()> {
    // SAFETY: passed on to the caller; the surface's memory was found to be live, and the place is inside of it.
    unsafe {
        let handle = double(frame, access.surface, lane);
        let Object::Surface(image) = view.textures.find(handle, lane, view.memory)? else {
            return Err(wrong_kind("surface", handle, lane));
        };
        if !image.fits_surface(access.geometry) {
            return Err(wrong_shape("surface", handle, image, access.geometry, lane));
        }
        let signed = |slot: u32| i64::from(word(frame, slot, lane).cast_signed());
        let mut at = [0i64; 3];
        for (at, slot) in at.iter_mut().zip(&access.coordinates) {
            *at = signed(*slot);
        }
        if let Some(layer) = access.layer {
            at[2] = signed(layer);
        }
        let level = &image.levels[0];
        let Some(place) = surface_place(access, image, level, at, lane)? else {
            if matches!(access.action, SurfaceAction::Load(_)) {
                access.values.iter().for_each(|slot| put(access.action, frame, *slot, lane, 0));
            }
            return Ok(());
        };
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(place as usize);
        match access.action {
            SurfaceAction::Load(bytes) => {
                for (index, slot) in access.values.iter().enumerate() {
                    let mut element = [0u8; 8];
                    let bytes = bytes as usize;
                    std::ptr::copy_nonoverlapping(pointer.add(index * bytes), element.as_mut_ptr(), bytes);
                    put(access.action, frame, *slot, lane, u64::from_le_bytes(element));
                }
            }
            SurfaceAction::Store(bytes) => {
                for (index, slot) in access.values.iter().enumerate() {
                    let value = if bytes == 8 { double(frame, *slot, lane) } else { word(frame, *slot, lane).into() };
                    let bytes = bytes as usize;
                    std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), pointer.add(index * bytes), bytes);
                }
            }
            SurfaceAction::StoreTexel => {
                let mut values = [0; 4];
                for (value, slot) in values.iter_mut().zip(&access.values) {
                    *value = word(frame, *slot, lane);
                }
                let stored = image.format.stored(values);
                std::ptr::copy_nonoverlapping(stored.as_ptr(), pointer, image.format.texel_bytes() as usize);
            }
            SurfaceAction::Reduce { function, ty, by_texel } => {
                let texel = if by_texel { reduction::texel_type(image.format) } else { Some(ty) };
                let ty = texel.ok_or_else(|| no_integers(handle, image, lane))?;
                let slot = access.values[0];
                let value = if ty.bytes() == 8 { double(frame, slot, lane) } else { word(frame, slot, lane).into() };
                reduction::run(function, ty, pointer, value);
            }
        }
    }
    Ok(())
}

/// # Safety
/// As for [`run`].
unsafe fn put(action: SurfaceAction, frame: *mut u8, slot: u32, lane: usize, value: u64) {
    // SAFETY: passed on to the caller; elements of 8 bytes have planes of 64 bits.
    unsafe {
        if action == SurfaceAction::Load(8) {
            *frame.add(slot as usize).cast::<u64>().add(lane) = value;
        } else {
            set_word(frame, slot, lane, value as u32);
        }
    }
}

/// Returns the address of a surface access; `None` if it is outside and has no effect.
fn surface_place(
    access: &SurfaceAccess,
    image: &Image,
    level: &Level,
    at: [i64; 3],
    lane: usize,
) -> Checked<Option<u64>> {
    let texel = i64::from(image.format.texel_bytes());
    // Bytes of the access, and bytes per step of the first coordinate.
    let (bytes, step) = match access.action {
        SurfaceAction::Load(size) | SurfaceAction::Store(size) => (i64::from(size) * access.values.len() as i64, 1),
        SurfaceAction::StoreTexel | SurfaceAction::Reduce { by_texel: true, .. } => (texel, texel),
        SurfaceAction::Reduce { ty, .. } => (ty.bytes().into(), 1),
    };
    let (row, [x, y, z]) = (level.width as i64 * texel, [at[0] * step, at[1], at[2]]);
    let last = [row - bytes, level.height as i64 - 1, level.depth as i64 - 1];
    let inside = [x, y, z].iter().zip(last).all(|(at, last)| (0..=last).contains(at));
    let describe = || {
        let layer = access.layer.map(|_| z);
        let places = [x, y, z].into_iter().take(access.geometry.axes()).chain(layer).map(|at| at.to_string());
        format!("access of {bytes} bytes at ({}) of a surface", places.collect::<Vec<_>>().join(", "))
    };
    if x % bytes != 0 {
        return Err(Misuse {
            lane,
            kind: FaultKind::MisalignedAddress,
            what: format!("misaligned {}", describe()),
            reason: format!("the first coordinate counts bytes and is no multiple of {bytes}"),
        });
    }
    if !inside && (access.outside == Outside::Trap || last[0] < 0) {
        return Err(Misuse {
            lane,
            kind: FaultKind::IllegalAddress,
            what: format!("illegal {}", describe()),
            reason: format!("the surface has {}, in rows of {row} bytes", image.shape()),
        });
    }
    if !inside && access.outside == Outside::Zero {
        return Ok(None);
    }
    let clamped = |at: i64, last: i64| at.clamp(0, last) as u64;
    let [x, y, z] = [clamped(x, last[0] / bytes * bytes), clamped(y, last[1]), clamped(z, last[2])];
    Ok(Some(level.texel([x, y, z], 1)))
}

/// # Safety
/// As for [`run`].
unsafe fn query_lane(query: &Query, frame: *mut u8, lane: usize, view: &mut View) -> Checked<()> {
    // SAFETY: passed on to the caller.
    unsafe {
        let handle = double(frame, query.handle, lane);
        let object = view.textures.find(handle, lane, view.memory)?;
        let value = match (object, query.is_surface) {
            (Object::Texture(texture), false) => {
                let level = query.level.map_or(0, |slot| word(frame, slot, lane));
                property(query.property, &texture.image, &texture.sampler, level)
            }
            (Object::Surface(image), true) => property(query.property, image, &Sampler::default(), 0),
            (Object::Sampler(sampler), false) if sampler_property(query.property, sampler).is_some() => {
                sampler_property(query.property, sampler).unwrap_or_default()
            }
            _ => return Err(wrong_kind(if query.is_surface { "surface" } else { "texture" }, handle, lane)),
        };
        set_word(frame, query.d, lane, value);
    }
    Ok(())
}

fn property(property: Property, image: &Image, sampler: &Sampler, level: u32) -> u32 {
    // A level that the image does not have has no texels.
    let extent = (level < image.levels.len() as u32).then(|| image.extent.level(level));
    let size = |of: fn(&crate::texture::image::Extent) -> u64| extent.as_ref().map_or(0, of) as u32;
    match property {
        Property::Width => size(|extent| extent.width),
        Property::Height => size(|extent| extent.height),
        Property::Depth => size(|extent| if extent.is_layered || extent.is_cube { 0 } else { extent.depth }),
        Property::ArraySize => size(|extent| match (extent.is_layered, extent.is_cube) {
            (true, true) => extent.depth / 6,
            (true, false) => extent.depth,
            (false, _) => 0,
        }),
        Property::Levels => image.levels.len() as u32,
        _ => sampler_property(property, sampler).unwrap_or_default(),
    }
}

/// Returns the number of a sampler property's value, in the order in which PTX lists the names.
fn sampler_property(property: Property, sampler: &Sampler) -> Option<u32> {
    Some(match property {
        Property::IsNormalized => sampler.is_normalized.into(),
        Property::ForcesUnnormalized => 0,
        Property::Filter => (sampler.filter == Filter::Linear).into(),
        Property::AddressMode(axis) => match sampler.address[axis as usize] {
            AddressMode::Wrap => 0,
            AddressMode::Mirror => 1,
            AddressMode::Clamp => 3,
            AddressMode::Border => 4,
        },
        _ => return None,
    })
}

fn no_integers(handle: u64, image: &Image, lane: usize) -> Misuse {
    let what = format!("illegal access by the surface handle {handle:#x}");
    let Format { channel, channels } = image.format;
    let reason =
        format!("its texels have {channels} channels of {channel:?}, and a reduction needs one of 32-bit integers");
    Misuse { lane, kind: FaultKind::IllegalAddress, what, reason }
}

fn wrong_shape(noun: &str, handle: u64, image: &Image, geometry: Geometry, lane: usize) -> Misuse {
    let what = format!("illegal access by the {noun} handle {handle:#x}");
    let reason =
        format!("the {noun} has {}, which an instruction with `.{}` can't read", image.shape(), geometry.name());
    Misuse { lane, kind: FaultKind::IllegalAddress, what, reason }
}
