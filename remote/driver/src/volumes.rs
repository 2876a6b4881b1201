//! Copies of rectangles and volumes: which side is in the program's memory, and pieces that fit into a frame.

use gpufleet_remote::{
    calls::{OWNED, index},
    codec::Put,
    frame::PIECE_BYTES,
};
use gpufleet_surface::{
    copy::{extent, offset},
    status::{Answer, Status},
    structs::copy::{End, Volume},
};

use crate::{host_memory, link::ask};

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_UNIFIED`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

/// Reports whether an address is in the session's device memory. Any other is the program's own.
pub(crate) fn is_device(address: u64) -> Answer<bool> {
    if host_memory::find(address as usize).is_some() {
        return Ok(false);
    }
    let mut is_owned = false;
    let send = |to: &mut Vec<u8>| {
        to.u64(address);
        Ok(())
    };
    ask(index(OWNED), send, |_, from| {
        is_owned = from.flag()?;
        Ok(())
    })?;
    Ok(is_owned)
}

/// Copies a volume, piece by piece if a side is in the program's memory.
pub(crate) fn copy(mut volume: Volume, piece: &mut dyn FnMut(&Volume) -> Answer) -> Answer {
    // Defaults depend on the size of the whole.
    for end in [&mut volume.from, &mut volume.to] {
        resolve(end)?;
        if end.kind == HOST || end.kind == DEVICE {
            end.pitch = if end.pitch == 0 { volume.width } else { end.pitch };
            end.height = if end.height == 0 { volume.height } else { end.height };
        }
    }
    for end in [&volume.from, &volume.to] {
        if end.kind == HOST {
            check_rows(end, [volume.width, volume.height, volume.depth])?;
        }
    }
    match [volume.from.kind, volume.to.kind] {
        [HOST, HOST] => Err(Status::NotSupported),
        kinds if kinds.contains(&HOST) => split(volume, piece),
        _ => piece(&volume),
    }
}

/// Checks that the rows of an end have addresses and do not overlap.
fn check_rows(end: &End, size: [usize; 3]) -> Answer {
    let slice = end.pitch.checked_mul(end.height).ok_or(Status::InvalidValue)?;
    let start = offset([end.x, end.y, end.z], end.pitch, slice).and_then(|offset| end.host.checked_add(offset));
    let end = start.zip(extent(size, end.pitch, slice)).and_then(|(start, bytes)| start.checked_add(bytes));
    end.map(drop).ok_or(Status::InvalidValue)
}

/// Says on which side a unified address is.
fn resolve(end: &mut End) -> Answer {
    if end.kind == UNIFIED {
        if is_device(end.device)? {
            end.kind = DEVICE;
        } else {
            (end.kind, end.host) = (HOST, end.device as usize);
        }
    }
    if end.kind == HOST && end.host == 0 { Err(Status::InvalidValue) } else { Ok(()) }
}

/// Halves a volume along its longest way until the pieces fit.
fn split(volume: Volume, piece: &mut dyn FnMut(&Volume) -> Answer) -> Answer {
    let Volume { from, to, width, height, depth } = volume;
    let bytes = width.checked_mul(height).and_then(|plane| plane.checked_mul(depth)).ok_or(Status::InvalidValue)?;
    if bytes <= PIECE_BYTES {
        return piece(&volume);
    }
    let moved = |end: End, [x, y, z]: [usize; 3]| End { x: end.x + x, y: end.y + y, z: end.z + z, ..end };
    let (first, second, offset) = if depth > 1 {
        let half = depth / 2;
        (Volume { depth: half, ..volume }, Volume { depth: depth - half, ..volume }, [0, 0, half])
    } else if height > 1 {
        let half = height / 2;
        (Volume { height: half, ..volume }, Volume { height: height - half, ..volume }, [0, half, 0])
    } else {
        // Rows of arrays are cut between elements, whose size is a power of two up to 16.
        let half = width / 2 / 16 * 16;
        (Volume { width: half, ..volume }, Volume { width: width - half, ..volume }, [half, 0, 0])
    };
    split(first, piece)?;
    split(Volume { from: moved(from, offset), to: moved(to, offset), ..second }, piece)
}
