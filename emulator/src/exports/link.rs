//! C functions of the linker (`cuLink*`). It takes PTX texts in any order and resolves their names when all are there.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpufleet_surface::argument::{In, Out, Text};

use super::module::{JitOptions, jit_options, write_logs};
use crate::driver::{
    capture, current,
    handle::{Handle, fresh},
    jit::{self, JitError},
    link::{self, Input},
    status::{Answer, Status},
};

/// Kinds of input (`CU_JIT_INPUT_*`): machine code, PTX, fat binary; then objects, archives and NVVM code.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FAT_BINARY: u32 = 2;
const LIBRARY: u32 = 4;

/// Start of an archive, and the member that identifies `libcudadevrt.a`. That archive is machine code, so the linker
/// uses a PTX text of its own in its place.
const ARCHIVE: &[u8] = b"!<arch>\n";
const DEVICE_RUNTIME_MEMBER: &[u8] = b"cuda_device_runtime.o";
const DEVICE_RUNTIME: &[u8] = include_bytes!("device_runtime.ptx");

/// A linking in progress.
struct Linking {
    options: JitOptions,
    inputs: Vec<Input>,
    /// The result, with the NUL at its end that an image needs.
    image: Option<Box<[u8]>>,
}

static LINKINGS: Mutex<Option<HashMap<Handle, Linking>>> = Mutex::new(None);

pub(super) fn cuLinkCreate_v2(count: u32, options: In<u32>, values: Out<usize>, state: Out<Handle>) -> Answer {
    current::context()?;
    let options = jit_options(count as usize, options, values)?;
    state.fill(|| {
        let handle = fresh();
        linkings().get_or_insert_default().insert(handle, Linking { options, inputs: Vec::new(), image: None });
        Ok(handle)
    })
}

pub(super) fn cuLinkAddData_v2(
    state: Handle,
    kind: u32,
    data: In<u8>,
    bytes: usize,
    name: Text,
    count: u32,
    options: In<u32>,
    values: In<usize>,
) -> Answer {
    let _ = (count, options, values);
    // The name may be null.
    let name = name.bytes().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    add(state, kind, name, data.bytes(bytes)?.to_vec())
}

pub(super) fn cuLinkAddFile_v2(
    state: Handle,
    kind: u32,
    path: Text,
    count: u32,
    options: In<u32>,
    values: In<usize>,
) -> Answer {
    let _ = (count, options, values);
    let path = Path::new(OsStr::from_bytes(path.bytes()?));
    add(state, kind, path.display().to_string(), jit::read(path)?)
}

/// The result belongs to the linking and is freed with it.
pub(super) fn cuLinkComplete(state: Handle, image: Out<*const u8>, bytes: Out<usize>) -> Answer {
    let device = current::context()?.device;
    capture::forbid_unsafe()?;
    with(state, |linking| {
        if linking.inputs.is_empty() {
            return Err(Status::InvalidValue);
        }
        let mut linked = match link::link(device, &linking.inputs, linking.options.registers_max) {
            Ok((linked, log)) => write_logs(&linking.options, &log, "").map(|()| linked)?,
            Err(JitError { status, log }) => return write_logs(&linking.options, "", &log).and(Err(status)),
        };
        linked.push(0);
        let linked = linking.image.insert(linked.into_boxed_slice());
        image.fill(|| Ok(linked.as_ptr()))?;
        bytes.set(linked.len());
        Ok(())
    })
}

pub(super) fn cuLinkDestroy(state: Handle) -> Answer {
    linkings().as_mut().and_then(|all| all.remove(&state)).map(drop).ok_or(Status::InvalidHandle)
}

fn add(state: Handle, kind: u32, name: String, mut image: Vec<u8>) -> Answer {
    let device = current::context()?.device;
    capture::forbid_unsafe()?;
    with(state, |linking| {
        let name = if name.is_empty() { format!("input {}", linking.inputs.len() + 1) } else { name };
        match kind {
            PTX => {}
            LIBRARY if is_device_runtime(&image) => image = DEVICE_RUNTIME.to_vec(),
            FAT_BINARY => match link::text_of(device, &image) {
                Ok(text) => image = text.into_bytes(),
                Err(JitError { status, log }) => return write_logs(&linking.options, "", &log).and(Err(status)),
            },
            CUBIN => return Err(Status::NoBinaryForGpu),
            _ => return Err(Status::NotSupported),
        }
        // A text ends at its NUL, because the result is loaded by its address only.
        let text_end = image.iter().position(|byte| *byte == 0).unwrap_or(image.len());
        image.truncate(text_end);
        if let Err(JitError { status, log }) = link::check(device, &image) {
            return write_logs(&linking.options, "", &log).and(Err(status));
        }
        linking.inputs.push(Input { name, ptx: image });
        Ok(())
    })
}

fn is_device_runtime(image: &[u8]) -> bool {
    image.starts_with(ARCHIVE) && image.windows(DEVICE_RUNTIME_MEMBER.len()).any(|bytes| bytes == DEVICE_RUNTIME_MEMBER)
}

fn with(state: Handle, work: impl FnOnce(&mut Linking) -> Answer) -> Answer {
    let mut all = linkings();
    work(all.as_mut().and_then(|all| all.get_mut(&state)).ok_or(Status::InvalidHandle)?)
}

fn linkings() -> MutexGuard<'static, Option<HashMap<Handle, Linking>>> {
    LINKINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
