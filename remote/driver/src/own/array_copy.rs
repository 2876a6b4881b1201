//! Copies between arrays and the program's memory, in pieces that fit into a frame.

use gpufleet_remote::{
    kinds::{Array, Stream},
    roles::{Bytes, FromHost, ToHost},
};
use gpufleet_surface::status::Answer;

use super::copy::pieces;
use crate::rows;

pub(crate) fn cuMemcpyHtoA_v2(to: Array, to_offset: usize, from: FromHost, bytes: Bytes) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyHtoA_v2(to, to_offset + at, FromHost(from.0 + at), bytes))
}

pub(crate) fn cuMemcpyAtoH_v2(to: ToHost, from: Array, from_offset: usize, bytes: Bytes) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyAtoH_v2(ToHost(to.0 + at), from, from_offset + at, bytes))
}

pub(crate) fn cuMemcpyHtoAAsync_v2(
    to: Array,
    to_offset: usize,
    from: FromHost,
    bytes: Bytes,
    stream: Stream,
) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyHtoAAsync_v2(to, to_offset + at, FromHost(from.0 + at), bytes, stream))
}

pub(crate) fn cuMemcpyAtoHAsync_v2(
    to: ToHost,
    from: Array,
    from_offset: usize,
    bytes: Bytes,
    stream: Stream,
) -> Answer {
    pieces(bytes, |at, bytes| rows::cuMemcpyAtoHAsync_v2(ToHost(to.0 + at), from, from_offset + at, bytes, stream))
}
