//! Changes, in place, the parts of an untrusted message that make lapin fail. Other malformed parts stay unchanged: lapin stops
//! there too and rejects the frame.

/// The deepest nesting of tables and arrays, counting the header table. The broker's own (`x-death`) are four deep; lapin takes about half
/// a kilobyte of stack for each level.
pub(super) const DEPTH_MAX: usize = 32;

/// The prefix of `basic.deliver`, which carries texts of the message's sender.
const DELIVER: [u8; 4] = [0, 60, 0, 60];
/// Delivery tag and flags.
const DELIVER_NUMBERS_BYTES: usize = 9;
/// Class, weight and size of the body.
const HEADER_NUMBERS_BYTES: usize = 12;
/// Replaces each byte that is not UTF-8.
const REPLACEMENT: u8 = b'?';
/// The type that replaces a table or an array that is too deep. All three types have the same layout: a length and as many bytes.
const BYTE_ARRAY: u8 = b'x';

/// The changes of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) tables: usize,
    pub(super) texts: usize,
}

/// The unread bytes. A step returns `None` if they end too early or are malformed.
struct Ahead<'a> {
    bytes: &'a mut [u8],
    changes: Changes,
}

/// A table or an array that is being read.
struct Open {
    is_table: bool,
    /// The number of unread bytes at its end.
    ahead_at_end: usize,
}

/// The kinds of a message's properties, by the bits that say which are there, from the highest on.
const PROPERTIES: [Property; 14] = {
    use Property::{Numbers, Table, Text};
    [Text, Text, Table, Numbers(1), Numbers(1), Text, Text, Text, Text, Numbers(8), Text, Text, Text, Text]
};

#[derive(Debug, Clone, Copy)]
enum Property {
    Text,
    Table,
    Numbers(usize),
}

/// Checks a content header's payload.
pub(super) fn check_header(payload: &mut [u8]) -> Changes {
    let mut ahead = Ahead { bytes: payload, changes: Changes::default() };
    let _malformed_or_not = ahead.header();
    ahead.changes
}

/// Checks a method's payload.
pub(super) fn check_method(payload: &mut [u8]) -> Changes {
    let mut ahead = Ahead { bytes: payload, changes: Changes::default() };
    let _malformed_or_not = ahead.deliver();
    ahead.changes
}

impl<'a> Ahead<'a> {
    fn header(&mut self) -> Option<()> {
        self.take(HEADER_NUMBERS_BYTES)?;
        let flags = self.number(2)?;
        for (index, property) in PROPERTIES.into_iter().enumerate() {
            if flags & (0x8000 >> index) == 0 {
                continue;
            }
            match property {
                Property::Text => self.text()?,
                Property::Table => self.table()?,
                Property::Numbers(bytes) => drop(self.take(bytes)?),
            }
        }
        Some(())
    }

    fn deliver(&mut self) -> Option<()> {
        if self.take(DELIVER.len())? != DELIVER {
            return None;
        }
        self.text()?;
        self.take(DELIVER_NUMBERS_BYTES)?;
        self.text()?;
        self.text()
    }

    /// Reads a table to its end, without recursion.
    fn table(&mut self) -> Option<()> {
        let mut open = Vec::with_capacity(DEPTH_MAX);
        open.push(self.open(true)?);
        while let Some(innermost) = open.last() {
            if self.bytes.len() == innermost.ahead_at_end {
                open.pop();
                continue;
            }
            if innermost.is_table {
                self.text()?;
            }
            let end = innermost.ahead_at_end;
            let kind = &mut self.take(1)?[0];
            match *kind {
                b'F' | b'A' if open.len() == DEPTH_MAX => {
                    *kind = BYTE_ARRAY;
                    self.changes.tables += 1;
                    self.counted()?;
                }
                b'F' | b'A' => {
                    let is_table = *kind == b'F';
                    open.push(self.open(is_table)?);
                }
                b'S' | BYTE_ARRAY => drop(self.counted()?),
                b'V' => {}
                b't' | b'b' | b'B' => drop(self.take(1)?),
                b's' | b'U' | b'u' => drop(self.take(2)?),
                b'I' | b'i' | b'f' => drop(self.take(4)?),
                b'D' => drop(self.take(5)?),
                b'L' | b'l' | b'd' | b'T' => drop(self.take(8)?),
                _ => return None,
            }
            if self.bytes.len() < end || open.last().is_some_and(|inner| inner.ahead_at_end < end) {
                return None;
            }
        }
        Some(())
    }

    fn open(&mut self, is_table: bool) -> Option<Open> {
        let bytes = self.number(4)?;
        Some(Open { is_table, ahead_at_end: self.bytes.len().checked_sub(bytes)? })
    }

    /// Reads a length of four bytes and as many bytes after it.
    fn counted(&mut self) -> Option<&'a mut [u8]> {
        let bytes = self.number(4)?;
        self.take(bytes)
    }

    /// Reads a text with a length of one byte, which lapin requires to be UTF-8.
    fn text(&mut self) -> Option<()> {
        let bytes = self.number(1)?;
        let text = self.take(bytes)?;
        let mut changed = false;
        while let Err(error) = str::from_utf8(text) {
            text[error.valid_up_to()] = REPLACEMENT;
            changed = true;
        }
        self.changes.texts += usize::from(changed);
        Some(())
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a mut [u8]> {
        self.bytes.split_off_mut(..bytes)
    }
}
