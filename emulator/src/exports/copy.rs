//! C functions that copy memory (`cuMemcpy*`).

use gpufleet_surface::argument::In;

use super::exports;
use crate::driver::{
    array::arrays,
    context,
    copy::{Copy, Place, Return, Side},
    handle::Handle,
    status::{Answer, Status},
};

/// Handle of the legacy default stream, which calls without a stream use.
pub(super) const NO_STREAM: Handle = 0;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rectangle {
    from_x: usize,
    from_y: usize,
    from_kind: u32,
    from_host: usize,
    from_device: u64,
    from_array: usize,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: u32,
    to_host: usize,
    to_device: u64,
    to_array: usize,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// One end of `CUDA_MEMCPY3D`, and of `CUDA_MEMCPY3D_PEER`, which has a context in the reserved field.
#[repr(C)]
#[derive(Clone, Copy)]
struct End {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: usize,
    device: u64,
    array: usize,
    context: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Volume {
    from: End,
    to: End,
    width: usize,
    height: usize,
    depth: usize,
}

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

exports! {
    per_thread ptds:

    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        unified(to, from, bytes, NO_STREAM, Return::Done)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) {
        to_device(to, from, bytes, NO_STREAM, Return::Done)
    }

    fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) {
        to_host(to, from, bytes, NO_STREAM, Return::Done)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        on_device(to, from, bytes, NO_STREAM, Return::Done)
    }

    fn cuMemcpyPeer(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize) {
        check_contexts([to_context, from_context])?;
        on_device(to, from, bytes, NO_STREAM, Return::Done)
    }

    fn cuMemcpy2D_v2(rectangle: In<Rectangle>) {
        rectangle.get()?.copy()?.submit(NO_STREAM, Return::Done)
    }

    fn cuMemcpy2DUnaligned_v2(rectangle: In<Rectangle>) {
        rectangle.get()?.copy()?.submit(NO_STREAM, Return::Done)
    }

    fn cuMemcpy3D_v2(volume: In<Volume>) {
        volume.get()?.copy()?.submit(NO_STREAM, Return::Done)
    }

    /// The contexts are not needed, because an address determines its device.
    fn cuMemcpy3DPeer(volume: In<Volume>) {
        volume.get()?.copy()?.submit(NO_STREAM, Return::Done)
    }

    per_thread ptsz:

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) {
        unified(to, from, bytes, stream, Return::Early)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle) {
        to_device(to, from, bytes, stream, Return::Early)
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle) {
        to_host(to, from, bytes, stream, Return::Early)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        on_device(to, from, bytes, stream, Return::Early)
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        to_context: Handle,
        from: u64,
        from_context: Handle,
        bytes: usize,
        stream: Handle,
    ) {
        check_contexts([to_context, from_context])?;
        on_device(to, from, bytes, stream, Return::Early)
    }

    fn cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: Handle) {
        rectangle.get()?.copy()?.submit(stream, Return::Early)
    }

    fn cuMemcpy3DAsync_v2(volume: In<Volume>, stream: Handle) {
        volume.get()?.copy()?.submit(stream, Return::Early)
    }

    fn cuMemcpy3DPeerAsync(volume: In<Volume>, stream: Handle) {
        volume.get()?.copy()?.submit(stream, Return::Early)
    }
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

impl Rectangle {
    fn copy(&self) -> Answer<Copy> {
        let (width, height) = (self.width, self.height);
        let end = |x, y, kind, host, device, array, pitch| End {
            x,
            y,
            z: 0,
            level: 0,
            kind,
            host,
            device,
            array,
            context: 0,
            pitch,
            height: 0,
        };
        let to = end(self.to_x, self.to_y, self.to_kind, self.to_host, self.to_device, self.to_array, self.to_pitch);
        let from = end(
            self.from_x,
            self.from_y,
            self.from_kind,
            self.from_host,
            self.from_device,
            self.from_array,
            self.from_pitch,
        );
        Volume { from, to, width, height, depth: 1 }.copy()
    }
}

impl End {
    /// Returns the place and pitches of this end, for a copy with rows of this width in planes of this height.
    fn side(&self, [width, height, depth]: [usize; 3]) -> Answer<Side> {
        if self.level != 0 {
            return Err(Status::InvalidValue);
        }
        if self.kind == ARRAY {
            return arrays()?.get(self.array)?.side([self.x, self.y, self.z], [width, height, depth]);
        }
        let pitch = pitch(self.pitch, width);
        let rows = if self.height == 0 { height } else { self.height };
        let slice = pitch.checked_mul(rows).ok_or(Status::InvalidValue)?;
        let start = offset([self.x, self.y, self.z], pitch, slice)?;
        Ok(Side { place: place(self.kind, self.host, self.device, start)?, pitch, slice })
    }

    fn of(side: &Side) -> Self {
        let (kind, host, device) = match side.place {
            Place::Host(pointer) => (HOST, pointer, 0),
            Place::Device(_, address) => (DEVICE, 0, address),
        };
        let (pitch, height) = (side.pitch, side.slice.checked_div(side.pitch).unwrap_or(0));
        Self { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: 0, context: 0, pitch, height }
    }
}

impl Volume {
    pub(super) fn copy(&self) -> Answer<Copy> {
        let Self { from, to, width, height, depth } = *self;
        let size = [width, height, depth];
        Ok(Copy { to: to.side(size)?, from: from.side(size)?, width, height, depth })
    }

    /// Describes a copy as the headers do, with its offsets included in its addresses.
    pub(super) fn of(copy: &Copy) -> Self {
        let Copy { to, from, width, height, depth } = copy;
        Self { from: End::of(from), to: End::of(to), width: *width, height: *height, depth: *depth }
    }
}

/// Returns the pitch; 0 means rows without padding.
fn pitch(pitch: usize, width: usize) -> usize {
    if pitch == 0 { width } else { pitch }
}

fn offset([x, y, z]: [usize; 3], pitch: usize, slice: usize) -> Answer<usize> {
    let (rows, planes) = (y.checked_mul(pitch), z.checked_mul(slice));
    let sum = |rows: usize, planes: usize| rows.checked_add(planes)?.checked_add(x);
    rows.zip(planes).and_then(|(rows, planes)| sum(rows, planes)).ok_or(Status::InvalidValue)
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
