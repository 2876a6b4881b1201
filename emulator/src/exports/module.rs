//! C functions for modules (`cuModule*`), and the logs of loading them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use gpufleet_surface::{
    argument::{In, Out, Text, TextRoom},
    image::Image,
};

use crate::driver::{
    current,
    handle::Handle,
    jit::{self, JitError},
    module::{self, LoadedModule},
    status::{Answer, Status},
};

/// JIT options by their numbers in the C headers. The others tune a compiler, which the emulator does not have.
const REGISTERS_MAX: u32 = 0;
const INFO_LOG: u32 = 3;
const INFO_LOG_BYTES: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_BYTES: u32 = 6;
const OPTION_MAX: u32 = 33;
/// `CU_MODULE_EAGER_LOADING`.
const EAGER: u32 = 1;

/// A log buffer, and the place of its length.
#[derive(Clone, Copy)]
struct Log {
    room: TextRoom,
    bytes: usize,
    length: Out<usize>,
}

/// JIT options of a caller: log buffers, and a register limit for kernels.
pub(super) struct JitOptions {
    info: Option<Log>,
    error: Option<Log>,
    pub(super) registers_max: Option<u32>,
}

// SAFETY: the caller that passes the buffers to a linking vouches for them until it ends, on any thread.
unsafe impl Send for JitOptions {}

pub(super) fn cuModuleLoad(module: Out<Handle>, path: Text) -> Answer {
    let path = Path::new(OsStr::from_bytes(path.bytes()?));
    module.fill(|| {
        current::context()?;
        load(&jit::read(path)?)
    })
}

pub(super) fn cuModuleLoadData(module: Out<Handle>, image: Image) -> Answer {
    module.fill(|| {
        current::context()?;
        load(image.bytes()?)
    })
}

pub(super) fn cuModuleLoadFatBinary(module: Out<Handle>, image: Image) -> Answer {
    module.fill(|| {
        current::context()?;
        load(image.bytes()?)
    })
}

pub(super) fn cuModuleLoadDataEx(
    module: Out<Handle>,
    image: Image,
    count: u32,
    options: In<u32>,
    values: Out<usize>,
) -> Answer {
    module.fill(|| {
        current::context()?;
        let options = jit_options(count as usize, options, values)?;
        match module::load(image.bytes()?, options.registers_max) {
            Ok(LoadedModule { handle, log }) => write_logs(&options, &log, "").map(|()| handle),
            Err(JitError { status, log }) => write_logs(&options, "", &log).and(Err(status)),
        }
    })
}

pub(super) fn cuModuleUnload(module: Handle) -> Answer {
    module::unload(module)
}

pub(super) fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) -> Answer {
    function.fill(|| module::find(module)?.function(name.name()?))
}

pub(super) fn cuModuleGetFunctionCount(count: Out<u32>, module: Handle) -> Answer {
    count.fill(|| Ok(module::find(module)?.kernel_names().len() as u32))
}

pub(super) fn cuModuleEnumerateFunctions(functions: Out<Handle>, room: u32, module: Handle) -> Answer {
    let module = module::find(module)?;
    if functions.is_null() {
        return Err(Status::InvalidValue);
    }
    for (index, name) in module.kernel_names().iter().take(room as usize).enumerate() {
        functions.at(index).fill(|| module.function(name))?;
    }
    Ok(())
}

/// The caller may leave out one of the results, but not both.
pub(super) fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) -> Answer {
    if address.is_null() && bytes.is_null() {
        return Err(Status::InvalidValue);
    }
    let (start, length) = module::find(module)?.global(name.name()?)?;
    address.set(start);
    bytes.set(length);
    Ok(())
}

pub(super) fn cuModuleGetLoadingMode(mode: Out<u32>) -> Answer {
    mode.fill(|| Ok(EAGER))
}

fn load(image: &[u8]) -> Answer<Handle> {
    module::load(image, None).map(|loaded| loaded.handle).map_err(|error| error.status)
}

/// Parses the JIT options.
pub(super) fn jit_options(count: usize, options: In<u32>, values: Out<usize>) -> Answer<JitOptions> {
    if count > 0 && values.is_null() {
        return Err(Status::InvalidValue);
    }
    let value_of = |wanted: u32| -> Answer<Option<Out<usize>>> {
        for index in 0..count {
            if options.at(index)? == wanted {
                return Ok(Some(values.at(index)));
            }
        }
        Ok(None)
    };
    for index in 0..count {
        if options.at(index)? > OPTION_MAX {
            return Err(Status::InvalidValue);
        }
    }
    let log = |buffer: u32, bytes: u32| -> Answer<Option<Log>> {
        let Some((buffer, length)) = value_of(buffer)?.zip(value_of(bytes)?) else { return Ok(None) };
        let room = TextRoom::from_address(buffer.input().get()?);
        // The headers store a 32-bit number in the pointer-sized value.
        let bytes = length.input().get()? as u32 as usize;
        Ok(Some(Log { room, bytes, length }))
    };
    let registers_max = value_of(REGISTERS_MAX)?.map(|value| value.input().get()).transpose()?;
    Ok(JitOptions {
        info: log(INFO_LOG, INFO_LOG_BYTES)?,
        error: log(ERROR_LOG, ERROR_LOG_BYTES)?,
        registers_max: registers_max.map(|limit| limit as u32).filter(|limit| *limit > 0),
    })
}

pub(super) fn write_logs(options: &JitOptions, info: &str, error: &str) -> Answer {
    write(options.info, info)?;
    write(options.error, error)
}

/// Writes a log, if there is one with room, and the number of its bytes.
fn write(log: Option<Log>, text: &str) -> Answer {
    if let Some(Log { room, bytes, length }) = log.filter(|log| log.bytes > 0) {
        let written = room.write(text.as_bytes(), bytes)?;
        length.set(written);
    }
    Ok(())
}
