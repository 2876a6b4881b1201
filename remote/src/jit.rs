//! Options of compilations. Their values are numbers, or buffers for logs with their sizes.

use gpufleet_surface::{
    argument::{In, Out, TextRoom},
    status::{Answer, Status},
};

use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    roles::{JitCount, JitInputs, JitKeys, JitValues},
    scope::Scope,
    value::Value,
};

/// `CU_JIT_WALL_TIME`, a result; the two logs, each before its size; and tables of addresses.
const WALL_TIME: u32 = 2;
const LOGS: [u32; 2] = [3, 5];
const LOG_SIZES: [u32; 2] = [4, 6];
const TABLES: [u32; 7] = [17, 18, 19, 25, 26, 27, 28];
/// The last option that is known to have no other pointers.
const OPTION_MAX: u32 = 33;
/// Maximum options of a call; the headers name about 40.
const OPTIONS_MAX: usize = 64;
/// Maximum bytes of a log.
const LOG_BYTES_MAX: usize = 1 << 20;

/// Options in the session, with its own buffers for logs.
#[derive(Debug)]
pub struct HeldJit {
    keys: Vec<u32>,
    values: Vec<usize>,
    logs: [Vec<u8>; 2],
}

impl HeldJit {
    fn hold(from: &mut Reader<'_>, keys: Vec<u32>) -> Result<Self, Malformed> {
        let mut values = Vec::new();
        for _ in &keys {
            values.push(usize::take(from)?);
        }
        // The headers store a 32-bit number in the pointer-sized value.
        let size = |key| keys.iter().position(|known| *known == key).map_or(0, |at| values[at] as u32 as usize);
        let mut logs = LOG_SIZES.map(|key| vec![0; size(key).min(LOG_BYTES_MAX)]);
        for (key, value) in keys.iter().zip(&mut values) {
            if let Some(log) = LOGS.iter().position(|log| log == key) {
                *value = logs[log].as_mut_ptr().expose_provenance();
            } else if let Some(log) = LOG_SIZES.iter().position(|size| size == key) {
                *value = logs[log].len();
            }
        }
        Ok(Self { keys, values, logs })
    }

    /// Adds what the driver stored.
    pub fn reply(&self, to: &mut Vec<u8>) {
        for (key, value) in self.keys.iter().zip(&self.values) {
            if *key == WALL_TIME || LOG_SIZES.contains(key) {
                value.put(to);
            } else if let Some(log) = LOGS.iter().position(|log| log == key) {
                let text = &self.logs[log];
                let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                to.bytes(&text[..length]);
            }
        }
    }
}

/// Stores results in the program's options.
pub fn get(keys: In<u32>, values: Out<usize>, count: usize, from: &mut Reader<'_>) -> Result<(), Malformed> {
    let key = |index| keys.at(index).map_err(|_| Malformed);
    let value = |index| values.at(index).input().get().map_err(|_| Malformed);
    // The sizes of buffers are read before results take their places.
    let mut rooms = [0; 2];
    for index in 0..count {
        if let Some(log) = LOG_SIZES.iter().position(|size| Ok(*size) == key(index)) {
            rooms[log] = value(index)? as u32 as usize;
        }
    }
    for index in 0..count {
        let key = key(index)?;
        if key == WALL_TIME || LOG_SIZES.contains(&key) {
            values.at(index).set(usize::take(from)?);
        } else if let Some(log) = LOGS.iter().position(|log| *log == key) {
            // A program without room has no log.
            let _ = TextRoom::from_address(value(index)?).write(from.bytes()?, rooms[log]);
        }
    }
    Ok(())
}

impl Argument for JitCount {
    type Held = u32;

    fn announce(self, sizes: &mut Sizes) {
        sizes.jit = self.0 as usize;
    }

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        if sizes.jit > OPTIONS_MAX || sizes.jit > 0 && sizes.jit_keys.is_none_or(|keys| keys.is_null()) {
            return Err(Status::InvalidValue);
        }
        to.u32(self.0);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<u32, Fault> {
        let count = from.u32()?;
        scope.jit_count(count as usize)?;
        Ok(count)
    }

    fn lend(held: &mut u32) -> Self {
        Self(*held)
    }
}

impl Argument for JitKeys {
    type Held = Vec<u32>;

    fn announce(self, sizes: &mut Sizes) {
        sizes.jit_keys = Some(self.0);
    }

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u16(sizes.jit as u16);
        for index in 0..sizes.jit.min(OPTIONS_MAX) {
            let key = self.0.at(index)?;
            if TABLES.contains(&key) {
                return Err(Status::NotSupported);
            }
            key.put(to);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Vec<u32>, Fault> {
        let count = usize::from(from.u16()?);
        if count > OPTIONS_MAX {
            return Err(Fault::Malformed);
        }
        scope.jit_count(count)?;
        let keys = (0..count).map(|_| from.u32()).collect::<Result<Vec<_>, _>>()?;
        if keys.iter().any(|key| *key > OPTION_MAX) {
            return Err(Status::InvalidValue.into());
        }
        if keys.iter().any(|key| TABLES.contains(key)) {
            return Err(Status::NotSupported.into());
        }
        scope.jit_keys.clone_from(&keys);
        Ok(keys)
    }

    fn lend(held: &mut Vec<u32>) -> Self {
        // SAFETY: the session keeps the numbers until the call has ended.
        Self(unsafe { In::from_pointer(held.as_ptr()) })
    }
}

/// Adds the values; buffers only by their sizes.
fn put_values(values: In<usize>, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
    let keys = sizes.jit_keys.unwrap_or(In::NULL);
    for index in 0..sizes.jit.min(OPTIONS_MAX) {
        let value = values.at(index)?;
        let value = if LOGS.contains(&keys.at(index)?) { 0 } else { value };
        value.put(to);
    }
    Ok(())
}

impl Argument for JitValues {
    type Held = HeldJit;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_values(self.0.input(), sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<HeldJit, Fault> {
        Ok(HeldJit::hold(from, std::mem::take(&mut scope.jit_keys))?)
    }

    fn lend(held: &mut HeldJit) -> Self {
        // SAFETY: the session keeps the values until the call has ended, and those of a linking until it is destroyed.
        Self(unsafe { Out::from_pointer(held.values.as_mut_ptr()) })
    }

    /// Logs come with failures above all.
    fn reply(held: HeldJit, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        held.reply(to);
        scope.jit = Some(held);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        get(sizes.jit_keys.unwrap_or(In::NULL), self.0, sizes.jit, from)
    }
}

impl Argument for JitInputs {
    type Held = HeldJit;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_values(self.0, sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<HeldJit, Fault> {
        Ok(HeldJit::hold(from, std::mem::take(&mut scope.jit_keys))?)
    }

    fn lend(held: &mut HeldJit) -> Self {
        // SAFETY: the session keeps the values until the call has ended.
        Self(unsafe { In::from_pointer(held.values.as_ptr()) })
    }
}
