//! C functions that copy between arrays and linear memory, counting bytes in the order of texels (`cuMemcpyDtoA` and so
//! on).

use super::copy::{NO_STREAM, transfer};
use crate::driver::{
    array::arrays,
    copy::{Place, Return},
    handle::Handle,
    status::Answer,
};

pub(super) fn cuMemcpyDtoA_v2(to: Handle, to_offset: usize, from: u64, bytes: usize) -> Answer {
    transfer(bytes, NO_STREAM, Return::Done, || Ok((array(to, to_offset, bytes)?, Place::device(from)?)))
}

pub(super) fn cuMemcpyAtoD_v2(to: u64, from: Handle, from_offset: usize, bytes: usize) -> Answer {
    transfer(bytes, NO_STREAM, Return::Done, || Ok((Place::device(to)?, array(from, from_offset, bytes)?)))
}

pub(super) fn cuMemcpyHtoA_v2(to: Handle, to_offset: usize, from: usize, bytes: usize) -> Answer {
    to_array(to, to_offset, from, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyAtoH_v2(to: usize, from: Handle, from_offset: usize, bytes: usize) -> Answer {
    from_array(to, from, from_offset, bytes, NO_STREAM, Return::Done)
}

pub(super) fn cuMemcpyAtoA_v2(to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize) -> Answer {
    let places = || Ok((array(to, to_offset, bytes)?, array(from, from_offset, bytes)?));
    transfer(bytes, NO_STREAM, Return::Done, places)
}

pub(super) fn cuMemcpyHtoAAsync_v2(to: Handle, to_offset: usize, from: usize, bytes: usize, stream: Handle) -> Answer {
    to_array(to, to_offset, from, bytes, stream, Return::Early)
}

pub(super) fn cuMemcpyAtoHAsync_v2(
    to: usize,
    from: Handle,
    from_offset: usize,
    bytes: usize,
    stream: Handle,
) -> Answer {
    from_array(to, from, from_offset, bytes, stream, Return::Early)
}

fn array(array: Handle, offset: usize, bytes: usize) -> Answer<Place> {
    arrays()?.get(array)?.bytes(offset, bytes)
}

fn to_array(to: Handle, offset: usize, from: usize, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((array(to, offset, bytes)?, Place::unified(from as u64)?)))
}

fn from_array(to: usize, from: Handle, offset: usize, bytes: usize, stream: Handle, returns: Return) -> Answer {
    transfer(bytes, stream, returns, || Ok((Place::unified(to as u64)?, array(from, offset, bytes)?)))
}
