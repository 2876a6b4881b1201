//! C functions for user objects (`cuUserObject*`), which live as long as graphs need them.

use std::ffi::c_void;

use gpufleet_surface::argument::Out;

use super::exports;
use crate::driver::{
    graph::{self, user_object},
    handle::Handle,
    host_call::{HostCall, HostFunction},
    status::Status,
};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, a flag that callers have to pass.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: transfers the caller's references to the graph.
const MOVE: u32 = 1;

exports! {
    fn cuUserObjectCreate(
        object: Out<Handle>,
        data: *mut c_void,
        destroy: Option<HostFunction>,
        references: u32,
        flags: u32,
    ) {
        let function = destroy.filter(|_| flags == NO_DESTRUCTOR_SYNC).ok_or(Status::InvalidValue)?;
        let destroy = HostCall { function, data: data.expose_provenance() };
        object.fill(|| user_object::create(destroy, references))
    }

    fn cuUserObjectRetain(object: Handle, count: u32) {
        user_object::retain(object, count)
    }

    fn cuUserObjectRelease(object: Handle, count: u32) {
        user_object::release(object, count)
    }

    fn cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) {
        if flags & !MOVE != 0 {
            return Err(Status::InvalidValue);
        }
        graph::find(graph)?.hold(&user_object::find(object)?, count)?;
        if flags == MOVE { user_object::release(object, count) } else { Ok(()) }
    }

    fn cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32) {
        graph::find(graph)?.let_go(object, count)
    }
}
