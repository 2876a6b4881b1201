//! The linker: one program of PTX goes through it as it is. Linking several would need their symbols resolved against
//! each other, which the emulator does not do.

use std::{
    collections::HashMap,
    ffi::{OsStr, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    call::{In, Out, Text},
    exports,
    module::{Logs, logs, write_logs},
};
use crate::driver::{
    capture, current,
    handle::{Handle, fresh},
    jit::{self, JitError},
    status::{Answer, Status},
};

/// `CU_JIT_INPUT_*`: machine code, PTX, both; then objects, archives and NVVM's code.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FAT_BINARY: u32 = 2;

/// A linking under way.
struct Linking {
    logs: Logs,
    /// The program, with the NUL at its end that an image has.
    image: Option<Box<[u8]>>,
}

static LINKINGS: Mutex<Option<HashMap<Handle, Linking>>> = Mutex::new(None);

exports! {
    fn cuLinkCreate_v2(count: u32, options: In<u32>, values: Out<usize>, state: Out<Handle>) {
        current::context()?;
        let logs = logs(count as usize, options, values)?;
        state.fill(|| {
            let handle = fresh();
            linkings().get_or_insert_default().insert(handle, Linking { logs, image: None });
            Ok(handle)
        })
    }

    fn cuLinkAddData_v2(
        state: Handle,
        kind: u32,
        data: In<u8>,
        bytes: usize,
        name: In<c_void>,
        count: u32,
        options: In<u32>,
        values: In<usize>,
    ) {
        let _ = (name, count, options, values);
        let image = (0..bytes).map(|index| data.at(index)).collect::<Answer<Vec<_>>>()?;
        add(state, kind, image)
    }

    fn cuLinkAddFile_v2(state: Handle, kind: u32, path: Text, count: u32, options: In<u32>, values: In<usize>) {
        let _ = (count, options, values);
        add(state, kind, jit::read(Path::new(OsStr::from_bytes(path.bytes()?)))?)
    }

    /// The result belongs to the linking and lasts as long.
    fn cuLinkComplete(state: Handle, image: Out<*const u8>, bytes: Out<usize>) {
        with(state, |linking| {
            let linked = linking.image.as_ref().ok_or(Status::InvalidValue)?;
            image.fill(|| Ok(linked.as_ptr()))?;
            bytes.set(linked.len());
            Ok(())
        })
    }

    fn cuLinkDestroy(state: Handle) {
        linkings().as_mut().and_then(|all| all.remove(&state)).map(drop).ok_or(Status::InvalidHandle)
    }
}

fn add(state: Handle, kind: u32, mut image: Vec<u8>) -> Answer {
    let device = current::context()?.device;
    capture::forbid_unsafe()?;
    with(state, |linking| {
        match kind {
            PTX if linking.image.is_some() => return Err(Status::NotSupported),
            PTX => {}
            CUBIN | FAT_BINARY => return Err(Status::NoBinaryForGpu),
            _ => return Err(Status::NotSupported),
        }
        while image.last() == Some(&0) {
            image.pop();
        }
        match jit::load(device, &image) {
            Ok(loaded) => write_logs(&linking.logs, &loaded.log, "")?,
            Err(JitError { status, log }) => return write_logs(&linking.logs, "", &log).and(Err(status)),
        }
        image.push(0);
        linking.image = Some(image.into_boxed_slice());
        Ok(())
    })
}

fn with(state: Handle, work: impl FnOnce(&mut Linking) -> Answer) -> Answer {
    let mut all = linkings();
    work(all.as_mut().and_then(|all| all.get_mut(&state)).ok_or(Status::InvalidHandle)?)
}

fn linkings() -> MutexGuard<'static, Option<HashMap<Handle, Linking>>> {
    LINKINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
