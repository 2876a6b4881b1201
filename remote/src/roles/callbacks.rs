//! Functions of the program.

use std::{
    ffi::c_void,
    sync::{Arc, atomic::Ordering},
};

use gpufleet_surface::{
    callback::{Callback, HostFunction},
    status::Answer,
};

use super::HostData;
use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Put, Reader},
    host_call,
    scope::Scope,
};

impl Argument for HostData {
    type Held = *mut c_void;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u64(self.0.expose_provenance() as u64);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let data = from.u64()?;
        let call = scope.host_call();
        call.data.store(data, Ordering::Release);
        Ok(Arc::clone(call).into_data())
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(*held)
    }
}

impl Argument for Option<HostFunction> {
    type Held = bool;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u64(self.map_or(0, |function| function as usize as u64));
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<bool, Fault> {
        let function = from.u64()?;
        scope.host_call().function.store(function, Ordering::Release);
        Ok(function != 0)
    }

    fn lend(held: &mut bool) -> Self {
        held.then_some(host_call::run)
    }
}

impl Argument for Option<Callback> {
    type Held = bool;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u64(self.map_or(0, |function| function as usize as u64));
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<bool, Fault> {
        let function = from.u64()?;
        scope.host_call().function.store(function, Ordering::Release);
        scope.calls_back_once();
        Ok(function != 0)
    }

    fn lend(held: &mut bool) -> Self {
        held.then_some(host_call::run_callback)
    }
}
