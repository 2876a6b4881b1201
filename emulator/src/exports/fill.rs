//! C functions that fill memory (`cuMemset*`).

use crate::driver::{
    fill::{Fill, Value},
    handle::Handle,
    status::Answer,
};

pub(super) fn cuMemsetD8_v2(address: u64, value: u8, count: usize) -> Answer {
    Fill::linear(address, Value::One(value), count).submit(0)
}

pub(super) fn cuMemsetD16_v2(address: u64, value: u16, count: usize) -> Answer {
    Fill::linear(address, Value::Two(value), count).submit(0)
}

pub(super) fn cuMemsetD32_v2(address: u64, value: u32, count: usize) -> Answer {
    Fill::linear(address, Value::Four(value), count).submit(0)
}

pub(super) fn cuMemsetD2D8_v2(address: u64, pitch: usize, value: u8, width: usize, height: usize) -> Answer {
    Fill { address, value: Value::One(value), width, height, pitch }.submit(0)
}

pub(super) fn cuMemsetD2D16_v2(address: u64, pitch: usize, value: u16, width: usize, height: usize) -> Answer {
    Fill { address, value: Value::Two(value), width, height, pitch }.submit(0)
}

pub(super) fn cuMemsetD2D32_v2(address: u64, pitch: usize, value: u32, width: usize, height: usize) -> Answer {
    Fill { address, value: Value::Four(value), width, height, pitch }.submit(0)
}

pub(super) fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle) -> Answer {
    Fill::linear(address, Value::One(value), count).submit(stream)
}

pub(super) fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: Handle) -> Answer {
    Fill::linear(address, Value::Two(value), count).submit(stream)
}

pub(super) fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) -> Answer {
    Fill::linear(address, Value::Four(value), count).submit(stream)
}

pub(super) fn cuMemsetD2D8Async(
    address: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: Handle,
) -> Answer {
    Fill { address, value: Value::One(value), width, height, pitch }.submit(stream)
}

pub(super) fn cuMemsetD2D16Async(
    address: u64,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: Handle,
) -> Answer {
    Fill { address, value: Value::Two(value), width, height, pitch }.submit(stream)
}

pub(super) fn cuMemsetD2D32Async(
    address: u64,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: Handle,
) -> Answer {
    Fill { address, value: Value::Four(value), width, height, pitch }.submit(stream)
}
