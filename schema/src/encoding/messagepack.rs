//! A decoder for MessagePack that borrows from the body and can return a value in its encoded form.
//!
//! It reads what `rmp_serde` writes, and the other forms that libraries use for the same values: structs as lists,
//! lists of small integers as `bin`. `scan::check` must run first: the bounds here hold without it, but only it limits
//! the nesting.

use serde::{
    Deserialize,
    de::{
        self, DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
        value::{Error, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use super::scan;

/// A newtype struct of this name gets the encoded bytes of its value ([`Visitor::visit_borrowed_bytes`]).
pub(crate) const RAW: &str = "$gpufleet::encoding::Raw";

const NIL: u8 = 0xc0;

pub(crate) fn from_slice<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Error> {
    T::deserialize(&mut Decoder::new(body))
}

/// Reads one value after the other.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'de> {
    rest: &'de [u8],
}

impl<'de> Decoder<'de> {
    pub(crate) fn new(rest: &'de [u8]) -> Self {
        Self { rest }
    }

    /// Skips the header of a list that [`scan::check`] has passed, so that its items come next.
    pub(crate) fn enter(&mut self) {
        let _items = scan::value(&mut self.rest);
    }

    fn uint(&mut self, bytes: usize) -> Result<u64, Error> {
        scan::uint(&mut self.rest, bytes).map_err(Error::custom)
    }

    fn take(&mut self, bytes: u64) -> Result<&'de [u8], Error> {
        let bytes = usize::try_from(bytes).expect("a length of 32 bits fits usize");
        let taken = self.rest.split_at_checked(bytes);
        let (taken, rest) = taken.ok_or_else(|| Error::custom("it ends in the middle of a value"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next value; `bin` is bytes, or a list of small integers for a visitor that wants a list.
    fn value<V: Visitor<'de>>(&mut self, visitor: V, bin_is_bytes: bool) -> Result<V::Value, Error> {
        let marker = self.uint(1)? as u8;
        match marker {
            0x00..=0x7f => visitor.visit_u8(marker),
            0xe0..=0xff => visitor.visit_i8(marker as i8),
            0xcc => visitor.visit_u8(self.uint(1)? as u8),
            0xcd => visitor.visit_u16(self.uint(2)? as u16),
            0xce => visitor.visit_u32(self.uint(4)? as u32),
            0xcf => visitor.visit_u64(self.uint(8)?),
            0xd0 => visitor.visit_i8(self.uint(1)? as i8),
            0xd1 => visitor.visit_i16(self.uint(2)? as i16),
            0xd2 => visitor.visit_i32(self.uint(4)? as i32),
            0xd3 => visitor.visit_i64(self.uint(8)? as i64),
            0xca => visitor.visit_f32(f32::from_bits(self.uint(4)? as u32)),
            0xcb => visitor.visit_f64(f64::from_bits(self.uint(8)?)),
            NIL => visitor.visit_unit(),
            0xc2 | 0xc3 => visitor.visit_bool(marker == 0xc3),
            0xa0..=0xbf => self.text(u64::from(marker & 0x1f), visitor),
            0xd9..=0xdb => {
                let bytes = self.uint(1 << (marker - 0xd9))?;
                self.text(bytes, visitor)
            }
            0xc4..=0xc6 => {
                let bytes = self.uint(1 << (marker - 0xc4))?;
                let bytes = self.take(bytes)?;
                match bin_is_bytes {
                    true => visitor.visit_borrowed_bytes(bytes),
                    false => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
                }
            }
            0x90..=0x9f => self.list(u64::from(marker & 0x0f), visitor),
            0xdc | 0xdd => {
                let items = self.uint(2 << (marker - 0xdc))?;
                self.list(items, visitor)
            }
            0x80..=0x8f => self.map(u64::from(marker & 0x0f), visitor),
            0xde | 0xdf => {
                let entries = self.uint(2 << (marker - 0xde))?;
                self.map(entries, visitor)
            }
            0xc7..=0xc9 | 0xd4..=0xd8 => Err(Error::invalid_type(Unexpected::Other("extension"), &visitor)),
            0xc1 => Err(Error::custom("byte 0xc1 does not start a value")),
        }
    }

    /// A text that is not UTF-8 is read as bytes, because libraries older than `bin` write bytes so.
    fn text<V: Visitor<'de>>(&mut self, bytes: u64, visitor: V) -> Result<V::Value, Error> {
        let bytes = self.take(bytes)?;
        match str::from_utf8(bytes) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(problem) => visitor
                .visit_borrowed_bytes(bytes)
                .map_err(|_: Error| Error::custom(format_args!("a string is not UTF-8: {problem}"))),
        }
    }

    fn list<V: Visitor<'de>>(&mut self, items: u64, visitor: V) -> Result<V::Value, Error> {
        let mut items = Items { decoder: self, left: items };
        let value = visitor.visit_seq(&mut items)?;
        items.end(value)
    }

    fn map<V: Visitor<'de>>(&mut self, entries: u64, visitor: V) -> Result<V::Value, Error> {
        let mut entries = Items { decoder: self, left: entries };
        let value = visitor.visit_map(&mut entries)?;
        entries.end(value)
    }
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value(visitor, true)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest.split_first() {
            Some((&NIL, rest)) => {
                self.rest = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name != RAW {
            return visitor.visit_newtype_struct(self);
        }
        let raw = scan::item(&mut self.rest).ok_or_else(|| Error::custom("it ends in the middle of a value"))?;
        visitor.visit_borrowed_bytes(raw)
    }

    /// Reads a variant alone, or a map of one entry with the variant and its contents.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let has_contents = match self.rest.first() {
            Some(0x80..=0x8f | 0xde | 0xdf) => match scan::value(&mut self.rest).map_err(Error::custom)? / 2 {
                1 => true,
                entries => {
                    return Err(Error::custom(format_args!(
                        "a map of {entries} entries is not a variant; expected one entry"
                    )));
                }
            },
            _ => false,
        };
        visitor.visit_enum(Variant { decoder: self, has_contents })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value(visitor, false)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.value(visitor, false)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value(visitor, false)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value(visitor, false)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        scan::item(&mut self.rest).ok_or_else(|| Error::custom("it ends in the middle of a value"))?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct map identifier
    }
}

/// The remaining items of a list or a map.
struct Items<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: u64,
}

impl<'de> Items<'_, 'de> {
    /// Returns the value, if the visitor has read all items.
    fn end<T>(self, value: T) -> Result<T, Error> {
        match self.left {
            0 => Ok(value),
            left => Err(Error::custom(format_args!("a list or map has {left} extra items"))),
        }
    }

    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.decoder).map(Some)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.next(seed)
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.decoder)
    }
}

struct Variant<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    has_contents: bool,
}

impl<'a, 'de> Variant<'a, 'de> {
    fn contents(self, expected: &str) -> Result<&'a mut Decoder<'de>, Error> {
        match self.has_contents {
            true => Ok(self.decoder),
            false => Err(Error::invalid_type(Unexpected::UnitVariant, &expected)),
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(&mut *self.decoder)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.has_contents { <()>::deserialize(self.decoder) } else { Ok(()) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.contents("newtype variant")?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.contents("tuple variant")?.value(visitor, false)
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.contents("struct variant")?.value(visitor, false)
    }
}
