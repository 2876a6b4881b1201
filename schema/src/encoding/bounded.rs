//! Lists and maps of a task, bounded while they are decoded.
//!
//! A launch can take ten bytes in a message and more than a hundred decoded, so decoding keeps one item beyond a list's
//! bound: enough for `schema::check` to refuse it with the field's name. Nested lists multiply, so their total memory
//! is bounded as well.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    mem::{needs_drop, size_of},
};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The lists of a body may take this many times its size. Its texts take at most its size again, which makes three
/// times in total.
const LISTS_FACTOR: usize = 2;
/// The lists of any body may take this much, because 1024 small tasks need it and their body can be far smaller.
const LISTS_BYTES_MIN: usize = 16 << 20;
/// The smallest allocation for an item's own text or list.
const ALLOCATION_BYTES_MIN: usize = 32;

thread_local! {
    /// The bytes left for the lists of the body that this thread decodes. Other bodies than tasks come from gpufleet
    /// itself and are unbounded.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Decodes a body with a bound for all its lists together. `decode` is synchronous, so it stays on its thread.
pub(super) fn within<T>(body: &[u8], decode: impl FnOnce() -> T) -> T {
    /// Removes the bound when dropped, also after a panic.
    struct Unbounded;
    impl Drop for Unbounded {
        fn drop(&mut self) {
            LEFT.set(usize::MAX);
        }
    }
    LEFT.set(body.len().saturating_mul(LISTS_FACTOR).max(LISTS_BYTES_MIN));
    let _end = Unbounded;
    decode()
}

/// Reserves memory for one item before it is kept.
fn take<T, E: serde::de::Error>() -> Result<(), E> {
    let own = if needs_drop::<T>() { ALLOCATION_BYTES_MIN } else { 0 };
    let left = LEFT.get().checked_sub(size_of::<T>() + own);
    LEFT.set(left.ok_or_else(|| {
        E::custom(format_args!(
            "the decoded lists take more than {LISTS_FACTOR} times the size of the body; send fewer tasks per message"
        ))
    })?);
    Ok(())
}

/// At most one item more than `MAX` is kept.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    FirstItems::<T, MAX>::deserialize(deserializer).map(|list| list.items)
}

/// At most one entry more than `MAX` is kept.
pub(crate) fn map<'de, D, T, const MAX: usize>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_map(Map::<T, MAX>(PhantomData))
}

/// The first items of a list, one more than `MAX` at most, and how many it has.
pub(super) struct FirstItems<T, const MAX: usize> {
    pub(super) items: Vec<T>,
    pub(super) found: usize,
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for FirstItems<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List(PhantomData))
    }
}

struct List<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = FirstItems<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() <= MAX
            && let Some(item) = list.next_element()?
        {
            take::<T, A::Error>()?;
            items.push(item);
        }
        let mut found = items.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        items.shrink_to_fit();
        Ok(FirstItems { items, found })
    }
}

struct Map<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Map<T, MAX> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while entries.len() <= MAX
            && let Some((key, value)) = map.next_entry()?
        {
            take::<(String, T), A::Error>()?;
            entries.insert(key, value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(entries)
    }
}
