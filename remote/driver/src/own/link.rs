//! Linkings. The program's buffers for logs are filled after each call that may write to them, and the image belongs to
//! the linking.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpufleet_remote::{
    calls::{LINK_LOGS, index},
    codec::Put,
    jit,
    kinds::Link,
    roles::{Bytes, Given, Gone, JitCount, JitInputs, JitKeys, JitValues, LinkedBytes, LinkedImage},
};
use gpufleet_surface::{
    argument::{In, Out, Text},
    status::{Answer, Status},
};

use super::module::read;
use crate::{link::ask, rows};

/// The options and the image of a linking.
struct Linking {
    keys: In<u32>,
    values: Out<usize>,
    /// The keys themselves, because the program keeps only the values and their buffers.
    held_keys: Box<[u32]>,
    image: Option<Box<[u8]>>,
}

// SAFETY: the program vouches for its buffers until the linking ends, on any thread.
unsafe impl Send for Linking {}

static LINKINGS: Mutex<Option<HashMap<u64, Linking>>> = Mutex::new(None);

fn linkings() -> MutexGuard<'static, Option<HashMap<u64, Linking>>> {
    LINKINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn cuLinkCreate_v2(count: JitCount, options: JitKeys, values: JitValues, state: Out<Link>) -> Answer {
    state.fill(|| {
        let mut link = Link(0);
        // SAFETY: the place lives until the call has ended.
        rows::cuLinkCreate_v2(count, options, values, unsafe { Out::from_pointer(&raw mut link) })?;
        let held_keys: Box<[u32]> = (0..count.0 as usize).map(|at| options.0.at(at)).collect::<Answer<_>>()?;
        // SAFETY: the keys live as long as the linking.
        let keys = unsafe { In::from_pointer(held_keys.as_ptr()) };
        let linking = Linking { keys, values: values.0, held_keys, image: None };
        linkings().get_or_insert_default().insert(link.0, linking);
        Ok(link)
    })
}

pub(crate) fn cuLinkAddData_v2(
    state: Link,
    kind: u32,
    data: Given,
    bytes: Bytes,
    name: Text,
    count: JitCount,
    options: JitKeys,
    values: JitInputs,
) -> Answer {
    let added = rows::cuLinkAddData_v2(state, kind, data, bytes, name, count, options, values);
    write_logs(state);
    added
}

pub(crate) fn cuLinkAddFile_v2(
    state: Link,
    kind: u32,
    path: Text,
    count: JitCount,
    options: JitKeys,
    values: JitInputs,
) -> Answer {
    let image = read(path)?;
    // SAFETY: the image lives until the call has ended.
    let data = Given(unsafe { In::from_pointer(image.as_ptr()) });
    cuLinkAddData_v2(state, kind, data, Bytes(image.len()), path, count, options, values)
}

pub(crate) fn cuLinkComplete(state: Link, image: LinkedImage, bytes: LinkedBytes) -> Answer {
    let (mut linked, mut length) = (std::ptr::null::<u8>(), 0);
    // SAFETY: the places live until the call has ended.
    let places =
        unsafe { (LinkedImage(Out::from_pointer(&raw mut linked)), LinkedBytes(Out::from_pointer(&raw mut length))) };
    let completed = rows::cuLinkComplete(state, places.0, places.1);
    write_logs(state);
    completed?;
    // SAFETY: the call made a boxed slice of this length.
    let linked = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(linked.cast_mut(), length)) };
    let mut linkings = linkings();
    let linking = linkings.as_mut().and_then(|all| all.get_mut(&state.0)).ok_or(Status::InvalidHandle)?;
    let linked = linking.image.insert(linked);
    image.0.fill(|| Ok(linked.as_ptr()))?;
    bytes.0.set(linked.len());
    Ok(())
}

pub(crate) fn cuLinkDestroy(state: Gone<Link>) -> Answer {
    rows::cuLinkDestroy(state)?;
    linkings().as_mut().and_then(|all| all.remove(&state.0.0));
    Ok(())
}

/// Writes the logs of a linking into the program's buffers, if it has any.
fn write_logs(state: Link) {
    let options = linkings().as_ref().and_then(|all| {
        let linking = all.get(&state.0).filter(|linking| !linking.held_keys.is_empty())?;
        Some((linking.keys, linking.values, linking.held_keys.len()))
    });
    let Some((keys, values, count)) = options else { return };
    let send = |to: &mut Vec<u8>| {
        to.u64(state.0);
        Ok(())
    };
    // The call that they belong to has failed or not; without them its code is the same.
    let _ = ask(index(LINK_LOGS), send, |_, from| jit::get(keys, values, count, from));
}
