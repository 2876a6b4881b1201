//! The first frames: what program and session say of themselves.

use crate::{
    calls::Call,
    codec::{Malformed, Put, Reader},
};

/// The start of the first frame.
pub const MAGIC: [u8; 4] = *b"GPFR";
/// The version of the frames. Calls are compared one by one and need no version.
pub const VERSION: u16 = 1;
pub const TOKEN_BYTES: usize = 32;
/// Bytes of a greeting up to and with the token.
pub const TOKEN_END: usize = 8 + TOKEN_BYTES;
/// Numbers of device attributes that a program gets with the greeting.
pub const ATTRIBUTES: i32 = 160;
/// Maximum calls that a greeting may name.
const CALLS_MAX: usize = 4096;

/// A call as a program names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub symbol: String,
    pub signature: u32,
}

/// The program's greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub token: [u8; TOKEN_BYTES],
    /// The number of the process on its machine, for messages.
    pub process: u32,
    pub calls: Vec<Named>,
}

/// What a program asks about a device before it has a context.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub driver_version: i32,
    pub name: String,
    pub uuid: [u8; 16],
    pub bus_id: String,
    /// Device memory in bytes: that of the lease.
    pub memory: u64,
    /// The values of the attributes 0 to [`ATTRIBUTES`]; none if the driver does not know the number.
    pub attributes: Vec<Option<i32>>,
    pub is_emulated: bool,
}

/// The session's greeting.
#[derive(Debug, Clone, PartialEq)]
pub struct Welcome {
    pub facts: Facts,
    /// For each call of the program, whether the session has it.
    pub available: Vec<bool>,
}

impl Hello {
    pub fn new(calls: &[Call]) -> Self {
        let named = |call: &Call| Named { symbol: call.symbol.to_owned(), signature: call.signature };
        Self { token: [0; TOKEN_BYTES], process: std::process::id(), calls: calls.iter().map(named).collect() }
    }

    pub fn put(&self, to: &mut Vec<u8>) {
        to.extend(MAGIC);
        to.u16(VERSION);
        to.u16(VERSION);
        to.extend(self.token);
        to.u32(self.process);
        to.u16(self.calls.len() as u16);
        for Named { symbol, signature } in &self.calls {
            to.u8(symbol.len() as u8);
            to.extend(symbol.as_bytes());
            to.u32(*signature);
        }
    }

    /// Returns the token of a greeting that starts with these bytes.
    pub fn token(start: &[u8; TOKEN_END]) -> Result<[u8; TOKEN_BYTES], Malformed> {
        let mut reader = Reader::new(start);
        let (magic, oldest, newest) = (reader.array()?, reader.u16()?, reader.u16()?);
        if magic != MAGIC || !(oldest..=newest).contains(&VERSION) {
            return Err(Malformed);
        }
        reader.array()
    }

    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let token = Self::token(body.first_chunk().ok_or(Malformed)?)?;
        let mut reader = Reader::new(&body[TOKEN_END..]);
        let (process, count) = (reader.u32()?, usize::from(reader.u16()?));
        if count > CALLS_MAX {
            return Err(Malformed);
        }
        let mut calls = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.u8()?.into();
            let symbol = std::str::from_utf8(reader.take(length)?).map_err(|_| Malformed)?.to_owned();
            calls.push(Named { symbol, signature: reader.u32()? });
        }
        reader.end()?;
        Ok(Self { token, process, calls })
    }
}

impl Welcome {
    pub fn put(&self, to: &mut Vec<u8>) {
        let Facts { driver_version, name, uuid, bus_id, memory, attributes, is_emulated } = &self.facts;
        to.u16(VERSION);
        to.i32(*driver_version);
        to.bytes(name.as_bytes());
        to.extend(uuid);
        to.bytes(bus_id.as_bytes());
        to.u64(*memory);
        to.flag(*is_emulated);
        to.u16(attributes.len() as u16);
        for attribute in attributes {
            to.flag(attribute.is_some());
            to.i32(attribute.unwrap_or_default());
        }
        to.u16(self.available.len() as u16);
        self.available.iter().for_each(|available| to.flag(*available));
    }

    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        if reader.u16()? != VERSION {
            return Err(Malformed);
        }
        let (driver_version, name) = (reader.i32()?, reader.text()?.to_owned());
        let (uuid, bus_id) = (reader.array()?, reader.text()?.to_owned());
        let (memory, is_emulated) = (reader.u64()?, reader.flag()?);
        let mut attributes = Vec::new();
        for _ in 0..reader.u16()? {
            let is_known = reader.flag()?;
            let value = reader.i32()?;
            attributes.push(is_known.then_some(value));
        }
        let available = (0..reader.u16()?).map(|_| reader.flag()).collect::<Result<_, _>>()?;
        reader.end()?;
        let facts = Facts { driver_version, name, uuid, bus_id, memory, attributes, is_emulated };
        Ok(Self { facts, available })
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, Hello, TOKEN_BYTES, TOKEN_END, Welcome};
    use crate::{calls::calls, codec::Malformed};

    #[test]
    fn greetings_are_read_as_they_were_written() {
        let mut hello = Hello::new(calls());
        hello.token = [7; TOKEN_BYTES];
        let mut body = Vec::new();
        hello.put(&mut body);
        assert_eq!(Hello::token(body.first_chunk::<TOKEN_END>().unwrap()), Ok([7; TOKEN_BYTES]));
        assert_eq!(Hello::parse(&body), Ok(hello));
        assert_eq!(Hello::parse(&body[..body.len() - 1]), Err(Malformed));
        body[0] = b'X';
        assert_eq!(Hello::parse(&body), Err(Malformed));

        let facts = Facts {
            driver_version: 13_000,
            name: "device".into(),
            uuid: [3; 16],
            bus_id: "0000:00:00.0".into(),
            memory: 1 << 30,
            attributes: vec![None, Some(1024)],
            is_emulated: true,
        };
        let welcome = Welcome { facts, available: vec![true, false] };
        let mut body = Vec::new();
        welcome.put(&mut body);
        assert_eq!(Welcome::parse(&body), Ok(welcome));
        body.push(0);
        assert_eq!(Welcome::parse(&body), Err(Malformed));
    }
}
