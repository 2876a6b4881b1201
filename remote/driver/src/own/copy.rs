//! Copies of memory. Those with the program's memory travel in pieces that fit into a frame.

use gpufleet_remote::{
    frame::PIECE_BYTES,
    kinds::{Address, Stream},
    roles::{Bytes, FromHost, ToHost},
    volume::HostVolume,
};
use gpufleet_surface::{
    argument::In,
    status::{Answer, Status},
    structs::copy::{Rectangle, Volume},
};

use crate::{rows, volumes};

/// Calls `piece` with the offset and the size of each piece; once if there is nothing to copy.
pub(super) fn pieces(bytes: Bytes, mut piece: impl FnMut(usize, Bytes) -> Answer) -> Answer {
    let mut at = 0;
    loop {
        let size = (bytes.0 - at).min(PIECE_BYTES);
        piece(at, Bytes(size))?;
        at += size;
        if at >= bytes.0 {
            return Ok(());
        }
    }
}

pub(crate) fn cuMemcpy(to: Address, from: Address, bytes: usize) -> Answer {
    match (volumes::is_device(to.0)?, volumes::is_device(from.0)?) {
        (true, true) => rows::cuMemcpyDtoD_v2(to, from, bytes),
        (true, false) => cuMemcpyHtoD_v2(to, FromHost(from.0 as usize), Bytes(bytes)),
        (false, true) => cuMemcpyDtoH_v2(ToHost(to.0 as usize), from, Bytes(bytes)),
        (false, false) => within_program(to, from, bytes),
    }
}

pub(crate) fn cuMemcpyAsync(to: Address, from: Address, bytes: usize, stream: Stream) -> Answer {
    match (volumes::is_device(to.0)?, volumes::is_device(from.0)?) {
        (true, true) => rows::cuMemcpyDtoDAsync_v2(to, from, bytes, stream),
        (true, false) => cuMemcpyHtoDAsync_v2(to, FromHost(from.0 as usize), Bytes(bytes), stream),
        (false, true) => cuMemcpyDtoHAsync_v2(ToHost(to.0 as usize), from, Bytes(bytes), stream),
        (false, false) => {
            rows::cuStreamSynchronize(stream)?;
            within_program(to, from, bytes)
        }
    }
}

pub(crate) fn cuMemcpyHtoD_v2(to: Address, from: FromHost, bytes: Bytes) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyHtoD_v2(moved(to, at), host(from, at), bytes))
}

pub(crate) fn cuMemcpyDtoH_v2(to: ToHost, from: Address, bytes: Bytes) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyDtoH_v2(ToHost(to.0.wrapping_add(at)), moved(from, at), bytes))
}

pub(crate) fn cuMemcpyHtoDAsync_v2(to: Address, from: FromHost, bytes: Bytes, stream: Stream) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyHtoDAsync_v2(moved(to, at), host(from, at), bytes, stream))
}

pub(crate) fn cuMemcpyDtoHAsync_v2(to: ToHost, from: Address, bytes: Bytes, stream: Stream) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyDtoHAsync_v2(ToHost(to.0.wrapping_add(at)), moved(from, at), bytes, stream))
}

pub(crate) fn cuMemcpy2D_v2(rectangle: In<Rectangle>) -> Answer {
    volume(rectangle.get()?.into())
}

pub(crate) fn cuMemcpy2DUnaligned_v2(rectangle: In<Rectangle>) -> Answer {
    volume(rectangle.get()?.into())
}

pub(crate) fn cuMemcpy3D_v2(volume: HostVolume) -> Answer {
    self::volume(volume.0.get()?)
}

/// The session has one device, so its contexts make no difference.
pub(crate) fn cuMemcpy3DPeer(volume: In<Volume>) -> Answer {
    self::volume(volume.get()?)
}

pub(crate) fn cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: Stream) -> Answer {
    volume_async(rectangle.get()?.into(), stream)
}

pub(crate) fn cuMemcpy3DAsync_v2(volume: HostVolume, stream: Stream) -> Answer {
    volume_async(volume.0.get()?, stream)
}

pub(crate) fn cuMemcpy3DPeerAsync(volume: In<Volume>, stream: Stream) -> Answer {
    volume_async(volume.get()?, stream)
}

fn volume(volume: Volume) -> Answer {
    volumes::copy(volume, &mut |piece| rows::cuMemcpy3D_v2(argument(piece)))
}

fn volume_async(volume: Volume, stream: Stream) -> Answer {
    volumes::copy(volume, &mut |piece| rows::cuMemcpy3DAsync_v2(argument(piece), stream))
}

fn argument(volume: &Volume) -> HostVolume {
    // SAFETY: the structure lives until the call has ended.
    HostVolume(unsafe { In::from_pointer(volume) })
}

fn moved(address: Address, bytes: usize) -> Address {
    Address(address.0.wrapping_add(bytes as u64))
}

/// Null stays null.
fn host(from: FromHost, at: usize) -> FromHost {
    FromHost(if from.0 == 0 { 0 } else { from.0 + at })
}

fn within_program(to: Address, from: Address, bytes: usize) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    if to.0 == 0 || from.0 == 0 {
        return Err(Status::InvalidValue);
    }
    let (to, from) = (to.0 as usize, from.0 as usize);
    // SAFETY: the program vouches for its memory, which may overlap.
    unsafe {
        std::ptr::copy::<u8>(std::ptr::with_exposed_provenance(from), std::ptr::with_exposed_provenance_mut(to), bytes);
    }
    Ok(())
}
