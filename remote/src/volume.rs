//! Copies of volumes, and those of which one side is in the program's memory.

use gpufleet_surface::{
    argument::In,
    copy::{extent, offset},
    status::{Answer, Status},
    structs::copy::{End, Volume},
};

use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    frame::PIECE_BYTES,
    kinds::Kind,
    scope::Scope,
    value::Value,
};

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`, `CU_MEMORYTYPE_ARRAY` and `CU_MEMORYTYPE_UNIFIED`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

impl Value for End {
    const BYTES: usize = size_of::<Self>();

    fn put(&self, to: &mut Vec<u8>) {
        let Self { x, y, z, level, kind, host: _, device, array, context: _, pitch, height } = *self;
        let start = to.len();
        [x, y, z, level, pitch, height, array].iter().for_each(|size| size.put(to));
        device.put(to);
        kind.put(to);
        to.resize(start + Self::BYTES, 0);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut reader = Reader::new(from.take(Self::BYTES)?);
        let [x, y, z, level, pitch, height, array] = <[usize; 7]>::take(&mut reader)?;
        let (device, kind) = (reader.u64()?, reader.u32()?);
        Ok(Self { x, y, z, level, kind, host: 0, device, array, context: 0, pitch, height })
    }

    fn to_program(&mut self, scope: &mut Scope<'_>) {
        if self.kind == ARRAY {
            self.array = scope.program_handle(Kind::Array, self.array as u64) as usize;
        }
    }
}

/// Replaces a handle by the driver's, and checks that all of the copy is in memory of the session. The size is that of
/// the copy: bytes of a row, rows and planes.
fn end_to_driver(end: &mut End, size: [usize; 3], scope: &mut Scope<'_>) -> Answer {
    match end.kind {
        // The program's memory is not there when a graph runs.
        HOST => Err(Status::NotSupported),
        ARRAY => {
            end.array = scope.driver_handle(Kind::Array, end.array as u64)? as usize;
            Ok(())
        }
        DEVICE | UNIFIED => {
            // The driver must not take the address for one of its process.
            end.kind = DEVICE;
            if size.contains(&0) {
                end.device = scope.driver_address(end.device);
                return Ok(());
            }
            let (start, bytes) = span(end, size).ok_or(Status::InvalidValue)?;
            if scope.objects().owns_all(start, bytes) { Ok(()) } else { Err(Status::InvalidValue) }
        }
        _ => Err(Status::InvalidValue),
    }
}

/// Returns the first address of a copy, and the bytes to the last.
fn span(end: &End, [width, height, depth]: [usize; 3]) -> Option<(u64, u64)> {
    let pitch = if end.pitch == 0 { width } else { end.pitch };
    let slice = pitch.checked_mul(if end.height == 0 { height } else { end.height })?;
    let offset = offset([end.x, end.y, end.z], pitch, slice)?;
    let bytes = extent([width, height, depth], pitch, slice)?;
    Some((end.device.checked_add(offset as u64)?, bytes as u64))
}

impl Value for Volume {
    const BYTES: usize = 2 * End::BYTES + 24;

    fn put(&self, to: &mut Vec<u8>) {
        self.from.put(to);
        self.to.put(to);
        [self.width, self.height, self.depth].put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [source, target] = <[End; 2]>::take(from)?;
        let [width, height, depth] = <[usize; 3]>::take(from)?;
        Ok(Self { from: source, to: target, width, height, depth })
    }

    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        let size = [self.width, self.height, self.depth];
        end_to_driver(&mut self.from, size, scope)?;
        end_to_driver(&mut self.to, size, scope)
    }

    fn to_program(&mut self, scope: &mut Scope<'_>) {
        self.from.to_program(scope);
        self.to.to_program(scope);
    }
}

/// A copy of which one side may be in the program's memory. The bytes travel with the call, without padding.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct HostVolume(pub In<Volume>);

/// A copy in the session, with the memory of the side that the program has.
#[derive(Debug)]
pub struct HeldVolume {
    volume: Volume,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl HeldVolume {
    /// Makes an end the whole of this memory.
    fn point(end: &mut End, memory: &mut Option<Vec<u8>>, [width, height]: [usize; 2]) {
        if let Some(memory) = memory {
            let host = memory.as_mut_ptr().expose_provenance();
            *end = End { x: 0, y: 0, z: 0, level: 0, kind: HOST, host, pitch: width, height, ..*end };
        }
    }
}

/// Returns the bytes of a copy.
fn volume_bytes(volume: &Volume) -> Option<usize> {
    volume.width.checked_mul(volume.height)?.checked_mul(volume.depth)
}

/// Calls `row` with the address of each row of an end in the program's memory.
fn rows(end: &End, volume: &Volume, mut row: impl FnMut(usize)) {
    let pitch = if end.pitch == 0 { volume.width } else { end.pitch };
    let slice = pitch * if end.height == 0 { volume.height } else { end.height };
    for z in 0..volume.depth {
        for y in 0..volume.height {
            row(end.host + (end.z + z) * slice + (end.y + y) * pitch + end.x);
        }
    }
}

impl Argument for HostVolume {
    type Held = Option<HeldVolume>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        if self.0.is_null() {
            return Ok(());
        }
        let volume = self.0.get()?;
        let bytes = volume_bytes(&volume).ok_or(Status::InvalidValue)?;
        volume.put(to);
        if volume.from.kind == HOST {
            to.u64(bytes as u64);
            let mut answer = Ok(());
            rows(&volume.from, &volume, |row| match In::<u8>::from_address(row).bytes(volume.width) {
                Ok(bytes) => to.extend_from_slice(bytes),
                Err(status) => answer = Err(status),
            });
            return answer;
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        if !from.flag()? {
            return Ok(None);
        }
        let mut volume = Volume::take(from)?;
        let bytes = volume_bytes(&volume).ok_or(Malformed)?;
        let mut held = HeldVolume { volume, from: None, to: None };
        let size = [volume.width, volume.height, volume.depth];
        if volume.from.kind == HOST {
            scope.reads_memory = true;
            held.from = Some(from.bytes().map_err(Fault::from)?.to_vec());
            if held.from.as_ref().is_some_and(|memory| memory.len() != bytes) {
                return Err(Fault::Malformed);
            }
        } else {
            end_to_driver(&mut volume.from, size, scope)?;
        }
        if volume.to.kind == HOST {
            if bytes > PIECE_BYTES {
                return Err(Fault::Malformed);
            }
            scope.returns_memory = true;
            held.to = Some(vec![0; bytes]);
        } else {
            end_to_driver(&mut volume.to, size, scope)?;
        }
        let rows = [volume.width, volume.height];
        HeldVolume::point(&mut volume.from, &mut held.from, rows);
        HeldVolume::point(&mut volume.to, &mut held.to, rows);
        held.volume = volume;
        Ok(Some(held))
    }

    fn lend(held: &mut Self::Held) -> Self {
        let volume = held.as_ref().map_or(std::ptr::null(), |held| std::ptr::from_ref(&held.volume));
        // SAFETY: the session keeps the structure until the call has ended.
        Self(unsafe { In::from_pointer(volume) })
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        let Some(held) = held else { return };
        scope.buffers.extend(held.from);
        if let Some(memory) = held.to.filter(|_| scope.ok) {
            to.extend(memory);
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        let Ok(volume) = self.0.get() else { return Ok(()) };
        if !sizes.ok || volume.to.kind != HOST {
            return Ok(());
        }
        let mut memory = from.take(volume_bytes(&volume).ok_or(Malformed)?)?;
        rows(&volume.to, &volume, |row| {
            let (bytes, rest) = memory.split_at(volume.width);
            memory = rest;
            // SAFETY: the program vouches for the rows that it described.
            unsafe {
                std::ptr::copy(bytes.as_ptr(), std::ptr::with_exposed_provenance_mut::<u8>(row), bytes.len());
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_surface::structs::copy::{End, Volume};

    use super::rows;
    use crate::value::Value;

    #[test]
    fn rows_of_the_program_are_where_it_said() {
        let mut volume = Volume::zero();
        (volume.width, volume.height, volume.depth) = (3, 2, 2);
        let end = End { x: 1, y: 1, z: 0, host: 1000, pitch: 10, height: 4, ..volume.from };
        let mut found = Vec::new();
        rows(&end, &volume, |row| found.push(row));
        assert_eq!(found, [1011, 1021, 1051, 1061]);
    }
}
