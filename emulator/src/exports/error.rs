//! C functions for the names and meanings of error codes (`cuGetErrorName`, `cuGetErrorString`).

use std::ffi::{CStr, c_char};

use gpufleet_surface::argument::Out;

use crate::driver::{
    self,
    status::{Answer, Status},
};

pub(super) fn cuGetErrorName(code: i32, name: Out<*const c_char>) -> Answer {
    text(code, name, Status::name)
}

pub(super) fn cuGetErrorString(code: i32, meaning: Out<*const c_char>) -> Answer {
    text(code, meaning, driver::meaning)
}

fn text(code: i32, place: Out<*const c_char>, of: impl Fn(Status) -> &'static CStr) -> Answer {
    let Some(status) = Status::from_code(code) else {
        place.set(std::ptr::null());
        return Err(Status::InvalidValue);
    };
    place.fill(|| Ok(of(status).as_ptr()))
}
