//! A list of numbers in its encoded form.
//!
//! The list stays encoded, because decoded it could take many times the memory, and its dtype may follow it in the
//! message. The list was checked once, so every item is a number.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, SeqAccess},
    ser::SerializeSeq,
};

use crate::{Dtype, Number, encoding::messagepack::Decoder, number::DoesNotFit};

/// Numbers that are not yet bytes of a dtype. Borrows from the message; a clone of a borrowed list is free.
#[derive(Debug, Clone)]
pub struct Numbers<'a> {
    list: List<'a>,
    len: usize,
}

/// A whole list, brackets or header included.
#[derive(Debug, Clone)]
pub(crate) enum List<'a> {
    MessagePack(Cow<'a, [u8]>),
    Json(Cow<'a, str>),
}

impl<'a> Numbers<'a> {
    /// Counts the items of a list, each of which must be a number.
    pub(crate) fn read<'de, A: SeqAccess<'de>>(list: List<'a>, mut items: A) -> Result<Self, A::Error> {
        let mut len = 0;
        loop {
            match items.next_element::<Checked>() {
                Ok(Some(_)) => len += 1,
                Ok(None) => return Ok(Self { list, len }),
                Err(problem) => return Err(A::Error::custom(format_args!("item {len} of the list: {problem}"))),
            }
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> Iter<'_> {
        let source = match &self.list {
            List::MessagePack(list) => {
                let mut items = Decoder::new(list);
                items.enter();
                Source::MessagePack(items)
            }
            // Neither a number nor the text of a special float contains a comma.
            List::Json(list) => Source::Json(list[1..list.len() - 1].split(',')),
        };
        Iter { source, left: self.len }
    }

    /// Checks that the dtype can hold all numbers.
    pub(crate) fn check(&self, dtype: Dtype) -> Result<(), DoesNotFit> {
        self.write_each(dtype, |_| {})
    }

    /// Appends the numbers as little-endian elements of a dtype.
    pub(crate) fn write(&self, dtype: Dtype, out: &mut Vec<u8>) -> Result<(), DoesNotFit> {
        self.write_each(dtype, |element| out.extend_from_slice(element))
    }

    /// Copies the numbers as little-endian elements of a dtype into `out`, which has room for exactly these elements.
    pub(crate) fn copy_to(&self, dtype: Dtype, out: &mut [u8]) -> Result<(), DoesNotFit> {
        let mut places = out.chunks_exact_mut(dtype.size());
        self.write_each(dtype, |element| {
            places.next().expect("`out` has room for every element").copy_from_slice(element);
        })
    }

    fn write_each(&self, dtype: Dtype, mut take: impl FnMut(&[u8])) -> Result<(), DoesNotFit> {
        let mut element = Vec::with_capacity(dtype.size());
        for number in self.iter() {
            element.clear();
            number.write(dtype, &mut element)?;
            take(&element);
        }
        Ok(())
    }

    pub(crate) fn borrowed(&self) -> Numbers<'_> {
        let list = match &self.list {
            List::MessagePack(list) => List::MessagePack(Cow::Borrowed(list)),
            List::Json(list) => List::Json(Cow::Borrowed(list)),
        };
        Numbers { list, len: self.len }
    }

    pub(crate) fn into_owned(self) -> Numbers<'static> {
        let list = match self.list {
            List::MessagePack(list) => List::MessagePack(Cow::Owned(list.into_owned())),
            List::Json(list) => List::Json(Cow::Owned(list.into_owned())),
        };
        Numbers { list, len: self.len }
    }
}

/// A number of a list that is only checked.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Number::nearest(deserializer).map(|_| Self)
    }
}

/// The numbers of a list, one after the other.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    source: Source<'a>,
    left: usize,
}

#[derive(Debug, Clone)]
enum Source<'a> {
    MessagePack(Decoder<'a>),
    Json(std::str::Split<'a, char>),
}

impl Iterator for Iter<'_> {
    type Item = Number;

    fn next(&mut self) -> Option<Number> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::MessagePack(items) => Number::deserialize(items).ok(),
            Source::Json(items) => Number::of_json(items.next()?),
        }
    }
}

impl<'a> IntoIterator for &'a Numbers<'_> {
    type Item = Number;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl From<Vec<Number>> for Numbers<'_> {
    fn from(numbers: Vec<Number>) -> Self {
        let list = rmp_serde::to_vec(&numbers).expect("a vector takes every number");
        Self { list: List::MessagePack(Cow::Owned(list)), len: numbers.len() }
    }
}

/// Lists are equal if their numbers are equal, in any encoding.
impl PartialEq for Numbers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other)
    }
}

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len))?;
        self.iter().try_for_each(|number| list.serialize_element(&number))?;
        list.end()
    }
}
