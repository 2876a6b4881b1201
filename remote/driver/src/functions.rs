//! What launches need to know of functions, which is asked once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use gpufleet_remote::{
    calls::{FUNCTION, index},
    codec::Put,
    kinds::Function,
    own::FunctionFacts,
    roles::{Extra, Packed, Parameters},
};
use gpufleet_surface::{
    argument::In,
    launch::arguments::{Arguments, ParameterBlock},
    status::{Answer, Status},
};

use crate::link::ask;

static KNOWN: Mutex<Option<HashMap<u64, Arc<FunctionFacts>>>> = Mutex::new(None);

/// Returns the facts of a function or a kernel.
pub(crate) fn facts(function: Function) -> Answer<Arc<FunctionFacts>> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(facts) = known().get_or_insert_default().get(&function.0) {
        return Ok(Arc::clone(facts));
    }
    let mut facts = None;
    let send = |to: &mut Vec<u8>| {
        to.u64(function.0);
        Ok(())
    };
    ask(index(FUNCTION), send, |_, from| {
        facts = Some(FunctionFacts::take(from)?);
        Ok(())
    })?;
    let facts = Arc::new(facts.ok_or(Status::Unknown)?);
    // Numbers of functions are never used again, so what is known stays true until an attribute is set.
    known().get_or_insert_default().insert(function.0, Arc::clone(&facts));
    Ok(facts)
}

/// Forgets a function, because its limits may have changed.
pub(crate) fn forget(function: Function) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().remove(&function.0);
}

/// Packs the arguments of a launch into a buffer, if they are pointers.
pub(crate) fn pack(function: Function, parameters: In<*const u8>, extra: In<usize>) -> Answer<Option<Packed>> {
    if !matches!(Arguments::of(parameters, extra)?, Arguments::Pointers(_)) {
        return Ok(None);
    }
    let facts = facts(function)?;
    let bytes = facts.parameters.iter().map(|parameter| parameter.offset + parameter.bytes).max().unwrap_or(0);
    let block = ParameterBlock { bytes, bytes_max: bytes };
    let layout = facts.parameters.iter().map(|parameter| (parameter.offset, parameter.bytes));
    // SAFETY: the program vouches for a pointer to each parameter.
    let block = unsafe { Arguments::Pointers(parameters.pointer()).gather(block, layout) }?;
    Ok(Some(Packed::new(block)))
}

/// Calls `launch` with arguments in a buffer.
pub(crate) fn with_packed(
    function: Function,
    parameters: Parameters,
    extra: Extra,
    launch: impl FnOnce(Parameters, Extra) -> Answer,
) -> Answer {
    let mut packed = pack(function, parameters.0, extra.0)?;
    let extra = packed.as_mut().map_or(extra.0, Packed::extra);
    launch(Parameters(In::NULL), Extra(extra))
}
