//! C functions that copy memory (`cuMemcpy*`).

use gpufleet_surface::{
    argument::In,
    copy::offset,
    structs::copy::{End, Rectangle, Volume},
};

use crate::driver::{
    array::arrays,
    context,
    copy::{Copy, Place, Return, Side},
    handle::Handle,
    status::{Answer, Status},
};

/// Handle of the legacy default stream, which calls without a stream use.
pub(super) const NO_STREAM: Handle = 0;

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

pub(super) fn cuMemcpy(to: u64, from: u64, bytes: usize) -> Answer {
    unified(to, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) -> Answer {
    to_device(to, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) -> Answer {
    to_host(to, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Answer {
    on_device(to, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyPeer(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize) -> Answer {
    check_contexts([to_context, from_context])?;
    on_device(to, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpy2D_v2(rectangle: In<Rectangle>) -> Answer {
    copy(&rectangle.get()?.into())?.submit(NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpy2DUnaligned_v2(rectangle: In<Rectangle>) -> Answer {
    copy(&rectangle.get()?.into())?.submit(NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpy3D_v2(volume: In<Volume>) -> Answer {
    copy(&volume.get()?)?.submit(NO_STREAM, Return::Done)
}

/// The contexts are not needed, because an address determines its device.
pub(super) fn cuMemcpy3DPeer(volume: In<Volume>) -> Answer {
    copy(&volume.get()?)?.submit(NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> Answer {
    unified(to, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle) -> Answer {
    to_device(to, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle) -> Answer {
    to_host(to, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Answer {
    on_device(to, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Answer {
    check_contexts([to_context, from_context])?;
    on_device(to, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: Handle) -> Answer {
    copy(&rectangle.get()?.into())?.submit(stream, Return::Early)
}

pub(super) fn cuMemcpy3DAsync_v2(volume: In<Volume>, stream: Handle) -> Answer {
    copy(&volume.get()?)?.submit(stream, Return::Early)
}

pub(super) fn cuMemcpy3DPeerAsync(volume: In<Volume>, stream: Handle) -> Answer {
    copy(&volume.get()?)?.submit(stream, Return::Early)
}

/// Checks that the contexts exist. They are not needed otherwise, because an address determines its device.
fn check_contexts(contexts: [Handle; 2]) -> Answer {
    let registry = context::contexts()?;
    let check = |context| registry.get(context).map_err(|_| Status::InvalidContext)?.check();
    contexts.into_iter().try_for_each(check)
}

fn unified(to: u64, from: u64, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((Place::unified(to)?, Place::unified(from)?)))
}

fn to_device(to: u64, from: usize, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((Place::device(to)?, Place::unified(from as u64)?)))
}

fn to_host(to: usize, from: u64, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((Place::unified(to as u64)?, Place::device(from)?)))
}

fn on_device(to: u64, from: u64, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((Place::device(to)?, Place::device(from)?)))
}

/// Copies, with the order of checks of a driver: a sticky fault comes before invalid places, and a copy of no bytes
/// needs no valid place.
pub(super) fn transfer(
    bytes: usize,
    stream: Handle,
    returns: Return,
    places: impl FnOnce() -> Answer<(Place, Place)>,
) -> Answer {
    crate::driver::stream::find(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    let (to, from) = places()?;
    Copy::linear(to, from, bytes).submit(stream, returns)
}

/// Returns the copy that a caller's structure describes.
pub(super) fn copy(volume: &Volume) -> Answer<Copy> {
    let Volume { from, to, width, height, depth } = *volume;
    let size = [width, height, depth];
    Ok(Copy { to: side(&to, size)?, from: side(&from, size)?, width, height, depth })
}

/// Describes a copy as the headers do, with its offsets included in its addresses.
pub(super) fn volume(copy: &Copy) -> Volume {
    let Copy { to, from, width, height, depth } = copy;
    Volume { from: end(from), to: end(to), width: *width, height: *height, depth: *depth }
}

/// Returns the place and pitches of an end, for a copy with rows of this width in planes of this height.
fn side(end: &End, [width, height, depth]: [usize; 3]) -> Answer<Side> {
    if end.level != 0 {
        return Err(Status::InvalidValue);
    }
    if end.kind == ARRAY {
        return arrays()?.get(end.array)?.side([end.x, end.y, end.z], [width, height, depth]);
    }
    let pitch = pitch(end.pitch, width);
    let rows = if end.height == 0 { height } else { end.height };
    let slice = pitch.checked_mul(rows).ok_or(Status::InvalidValue)?;
    let start = offset([end.x, end.y, end.z], pitch, slice).ok_or(Status::InvalidValue)?;
    Ok(Side { place: place(end.kind, end.host, end.device, start)?, pitch, slice })
}

fn end(side: &Side) -> End {
    let (kind, host, device) = match side.place {
        Place::Host(pointer) => (HOST, pointer, 0),
        Place::Device(_, address) => (DEVICE, 0, address),
    };
    let (pitch, height) = (side.pitch, side.slice.checked_div(side.pitch).unwrap_or(0));
    End { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: 0, context: 0, pitch, height }
}

/// Returns the pitch; 0 means rows without padding.
fn pitch(pitch: usize, width: usize) -> usize {
    if pitch == 0 { width } else { pitch }
}

fn place(kind: u32, host: usize, device: u64, offset: usize) -> Answer<Place> {
    let moved = |address: u64| address.checked_add(offset as u64).filter(|_| address != 0).ok_or(Status::InvalidValue);
    match kind {
        HOST => Place::unified(moved(host as u64)?),
        DEVICE => Place::device(moved(device)?),
        UNIFIED => Place::unified(moved(device)?),
        _ => Err(Status::InvalidValue),
    }
}
