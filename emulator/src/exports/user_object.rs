//! C functions for user objects (`cuUserObject*`), which live as long as graphs need them.

use std::ffi::c_void;

use gpufleet_surface::{argument::Out, callback::HostFunction};

use crate::driver::{
    graph::{self, user_object},
    handle::Handle,
    host_call::HostCall,
    status::{Answer, Status},
};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, a flag that callers have to pass.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: transfers the caller's references to the graph.
const MOVE: u32 = 1;

pub(super) fn cuUserObjectCreate(
    object: Out<Handle>,
    data: *mut c_void,
    destroy: Option<HostFunction>,
    references: u32,
    flags: u32,
) -> Answer {
    let function = destroy.filter(|_| flags == NO_DESTRUCTOR_SYNC).ok_or(Status::InvalidValue)?;
    let destroy = HostCall { function, data: data.expose_provenance() };
    object.fill(|| user_object::create(destroy, references))
}

pub(super) fn cuUserObjectRetain(object: Handle, count: u32) -> Answer {
    user_object::retain(object, count)
}

pub(super) fn cuUserObjectRelease(object: Handle, count: u32) -> Answer {
    user_object::release(object, count)
}

pub(super) fn cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) -> Answer {
    if flags & !MOVE != 0 {
        return Err(Status::InvalidValue);
    }
    graph::find(graph)?.hold(&user_object::find(object)?, count)?;
    if flags == MOVE { user_object::release(object, count) } else { Ok(()) }
}

pub(super) fn cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32) -> Answer {
    graph::find(graph)?.let_go(object, count)
}
