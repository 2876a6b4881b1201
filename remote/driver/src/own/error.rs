//! Names and meanings of error codes.

use std::ffi::{CStr, c_char};

use gpufleet_surface::{
    argument::Out,
    status::{Answer, Status},
};

pub(crate) fn cuGetErrorName(code: i32, name: Out<*const c_char>) -> Answer {
    text(code, name, Status::name)
}

pub(crate) fn cuGetErrorString(code: i32, meaning: Out<*const c_char>) -> Answer {
    text(code, meaning, |status| match status {
        Status::NotSupported => c"the session does not support this operation",
        status => status.meaning(),
    })
}

fn text(code: i32, place: Out<*const c_char>, of: impl Fn(Status) -> &'static CStr) -> Answer {
    let Some(status) = Status::from_code(code) else {
        place.set(std::ptr::null());
        return Err(Status::InvalidValue);
    };
    place.fill(|| Ok(of(status).as_ptr()))
}
