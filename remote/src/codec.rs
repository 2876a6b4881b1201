//! Numbers and texts in the bodies of frames: little endian, in a fixed order, without names or types.

/// The bytes are not what they should be. The peer is not one of ours, or of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// What is left of a body.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns a number that may only be 0 or 1.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Returns bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    /// Returns a length, which is at most that of the rest.
    pub fn length(&mut self) -> Result<usize, Malformed> {
        let length = usize::try_from(self.u64()?).map_err(|_| Malformed)?;
        if length <= self.rest.len() { Ok(length) } else { Err(Malformed) }
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Adds numbers and texts to a body.
pub trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn i32(&mut self, value: i32);
    fn u64(&mut self, value: u64);
    fn flag(&mut self, value: bool);
    /// Adds the length and the bytes.
    fn bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend(value.to_le_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend(value.to_le_bytes());
    }

    fn flag(&mut self, value: bool) {
        self.push(value.into());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, Put, Reader};

    #[test]
    fn a_body_is_read_as_it_was_written() {
        let mut body = Vec::new();
        body.u16(7);
        body.flag(true);
        body.bytes(b"kernel");
        body.i32(-1);
        let mut reader = Reader::new(&body);
        assert_eq!((reader.u16(), reader.flag(), reader.text(), reader.i32()), (Ok(7), Ok(true), Ok("kernel"), Ok(-1)));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn a_length_beyond_the_body_is_refused_before_anything_is_allocated() {
        let mut body = Vec::new();
        body.u64(u64::MAX);
        assert_eq!(Reader::new(&body).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&[2]).flag(), Err(Malformed));
        assert_eq!(Reader::new(&[0]).end(), Err(Malformed));
    }
}
