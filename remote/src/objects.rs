//! What a session owns: handles under the numbers that its program knows, ranges of device memory, and the budget.

use std::collections::{BTreeMap, HashMap};

use gpufleet_surface::status::{Answer, Status};

use crate::kinds::Kind;

/// The first number, and the step between numbers: programs may keep tags in the low bits of a pointer.
const FIRST_NUMBER: u64 = 0x1000;
const NUMBER_STEP: u64 = 0x10;
/// Maximum handles of a kind.
pub const HANDLES_MAX: usize = 65_536;
/// Memory is charged in units of this size, because drivers allocate no less.
const CHARGE_UNIT: u64 = 512;

/// A handle of the driver.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: Kind,
    handle: u64,
    /// The number of the object that destroys this one with itself; 0 if there is none.
    owner: u64,
    /// Device memory that was charged for it.
    charged: u64,
    /// How often the driver gave it out, if each time must be answered by a release.
    references: u32,
}

/// A range of device addresses.
#[derive(Debug, Clone, Copy)]
struct Range {
    bytes: u64,
    owner: u64,
    charged: u64,
}

/// What a call is about to destroy.
#[derive(Debug, Default)]
pub struct Removed {
    entries: Vec<(u64, Entry)>,
    ranges: Vec<(u64, Range)>,
    values: Vec<((Kind, u64), u64)>,
    /// Physical memory of which one reference goes.
    released: Vec<u64>,
}

/// How much device memory the session may have, and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub limit: u64,
    pub used: u64,
}

/// All objects of a session.
#[derive(Debug)]
pub struct Objects {
    entries: HashMap<u64, Entry>,
    numbers: HashMap<(Kind, u64), u64>,
    counts: HashMap<Kind, usize>,
    ranges: BTreeMap<u64, Range>,
    /// Objects that kernels get as arguments, by the driver's values, with their owners.
    values: HashMap<(Kind, u64), u64>,
    /// The physical memory that is mapped at each address.
    mappings: BTreeMap<u64, u64>,
    /// What is charged for physical memory that was released while it was mapped.
    released: HashMap<u64, u64>,
    next: u64,
    budget: Budget,
    /// The number of the device's primary context.
    primary: u64,
}

impl Objects {
    /// Makes an empty set, with this limit of device memory in bytes.
    pub fn new(limit: u64) -> Self {
        let budget = Budget { limit, used: 0 };
        let (entries, numbers, counts, ranges, values, mappings, released) = Default::default();
        Self { entries, numbers, counts, ranges, values, mappings, released, next: FIRST_NUMBER, budget, primary: 0 }
    }

    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the driver's handle under a number.
    pub fn handle(&self, kind: Kind, number: u64) -> Answer<u64> {
        if kind.is_value() {
            return if self.values.contains_key(&(kind, number)) { Ok(number) } else { Err(kind.unknown()) };
        }
        let entry = self.entries.get(&number).ok_or(kind.unknown())?;
        // The header lets programs pass the kernel of a library as a function.
        let fits = entry.kind == kind || (kind, entry.kind) == (Kind::Function, Kind::Kernel);
        if fits { Ok(entry.handle) } else { Err(kind.unknown()) }
    }

    /// Returns the number of a handle, if it has one.
    pub fn number(&self, kind: Kind, handle: u64) -> Option<u64> {
        self.numbers.get(&(kind, handle)).copied()
    }

    /// Reports whether the session once gave out a number.
    pub fn was_given_out(&self, number: u64) -> bool {
        (FIRST_NUMBER..self.next).contains(&number)
    }

    /// Returns the owner of the object under a number; 0 if it has none.
    pub fn owner(&self, number: u64) -> u64 {
        self.entries.get(&number).map_or(0, |entry| entry.owner)
    }

    /// Reports whether there is room for another handle of the kind.
    pub fn check_room(&self, kind: Kind) -> Answer {
        let count = self.counts.get(&kind).copied().unwrap_or_default();
        if count < HANDLES_MAX { Ok(()) } else { Err(Status::OutOfMemory) }
    }

    /// Returns the number of a handle that the driver gave out. `charged` bytes of the budget belong to it from now on.
    pub fn register(&mut self, kind: Kind, handle: u64, owner: u64, charged: u64) -> u64 {
        if kind.is_value() {
            self.values.insert((kind, handle), owner);
            return handle;
        }
        if let Some(number) = self.number(kind, handle) {
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.references += 1;
                entry.charged += charged;
            }
            return number;
        }
        let number = self.next;
        self.next += NUMBER_STEP;
        self.entries.insert(number, Entry { kind, handle, owner, charged, references: 1 });
        self.numbers.insert((kind, handle), number);
        *self.counts.entry(kind).or_default() += 1;
        number
    }

    /// Takes out an object that a call destroys, and all that it owns, before the call: the driver may give its handle to
    /// another object at once. [`Objects::put_back`] or [`Objects::forget`] ends it.
    pub fn take_out(&mut self, kind: Kind, number: u64, removed: &mut Removed) {
        if kind.is_value() {
            removed.values.extend(self.values.remove_entry(&(kind, number)));
            return;
        }
        if let Some(entry) = self.entries.get_mut(&number)
            && entry.kind == Kind::PhysicalMemory
            && entry.references > 1
        {
            entry.references -= 1;
            removed.released.push(number);
            return;
        }
        let mut doomed = vec![number];
        while let Some(number) = doomed.pop() {
            let Some(entry) = self.entries.remove(&number) else { continue };
            self.numbers.remove(&(entry.kind, entry.handle));
            *self.counts.entry(entry.kind).or_default() -= 1;
            removed.entries.push((number, entry));
            self.take_out_ranges_of(number, removed);
            doomed.extend(self.entries.iter().filter(|(_, entry)| entry.owner == number).map(|(number, _)| *number));
        }
    }

    /// Takes out the range that starts here.
    pub fn take_out_range(&mut self, start: u64, removed: &mut Removed) {
        removed.ranges.extend(self.ranges.remove_entry(&start));
    }

    /// The call failed: everything is as before.
    pub fn put_back(&mut self, removed: Removed) {
        let Removed { entries, ranges, values, released } = removed;
        for (number, entry) in entries {
            self.numbers.insert((entry.kind, entry.handle), number);
            *self.counts.entry(entry.kind).or_default() += 1;
            self.entries.insert(number, entry);
        }
        self.ranges.extend(ranges);
        self.values.extend(values);
        for number in released {
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.references += 1;
            }
        }
    }

    /// The call succeeded: the budget gets back what was charged. Physical memory stays charged while it is mapped.
    pub fn forget(&mut self, removed: Removed) {
        for (number, Entry { kind, charged, .. }) in removed.entries {
            let is_mapped = kind == Kind::PhysicalMemory && self.mappings.values().any(|mapped| *mapped == number);
            if is_mapped {
                self.released.insert(number, charged);
            } else {
                self.give_back(charged);
            }
        }
        removed.ranges.iter().for_each(|(_, range)| self.give_back(range.charged));
    }

    /// Says that physical memory was mapped at an address.
    pub fn mapped(&mut self, address: u64, physical: u64) {
        self.mappings.insert(address, physical);
    }

    /// Says that nothing is mapped any more in a range.
    pub fn unmapped(&mut self, address: u64, bytes: u64) {
        let starts: Vec<u64> =
            self.mappings.range(address..address.saturating_add(bytes)).map(|(start, _)| *start).collect();
        for start in starts {
            let Some(physical) = self.mappings.remove(&start) else { continue };
            if !self.mappings.values().any(|mapped| *mapped == physical) {
                let charged = self.released.remove(&physical).unwrap_or_default();
                self.give_back(charged);
            }
        }
    }

    pub fn set_primary(&mut self, context: u64) {
        self.primary = context;
    }

    /// Forgets what the primary context owned. The context itself keeps its number, as it keeps its handle.
    pub fn remove_primary(&mut self) {
        let owner = self.primary;
        if owner == 0 {
            return;
        }
        let mut removed = Removed::default();
        let owned = |(number, entry): (&u64, &Entry)| (entry.owner == owner).then_some((entry.kind, *number));
        let doomed: Vec<(Kind, u64)> = self.entries.iter().filter_map(owned).collect();
        doomed.into_iter().for_each(|(kind, number)| self.take_out(kind, number, &mut removed));
        self.take_out_ranges_of(owner, &mut removed);
        self.forget(removed);
    }

    /// Takes bytes from the budget; returns how many were charged.
    pub fn charge(&mut self, bytes: u64) -> Answer<u64> {
        let charged = bytes.checked_next_multiple_of(CHARGE_UNIT).ok_or(Status::OutOfMemory)?;
        let used = self.budget.used.checked_add(charged).filter(|used| *used <= self.budget.limit);
        self.budget.used = used.ok_or(Status::OutOfMemory)?;
        Ok(charged)
    }

    /// Gives bytes back that [`Objects::charge`] charged.
    pub fn give_back(&mut self, charged: u64) {
        self.budget.used -= charged;
    }

    /// Adds a range of device addresses, to which bytes of the budget belong from now on.
    pub fn add_range(&mut self, start: u64, bytes: u64, owner: u64, charged: u64) {
        if let Some(Range { charged, .. }) = self.ranges.insert(start, Range { bytes, owner, charged }) {
            self.give_back(charged);
        }
    }

    /// Reports whether a range starts here.
    pub fn starts_range(&self, address: u64) -> bool {
        self.ranges.contains_key(&address)
    }

    /// Reports whether an address is in a range.
    pub fn owns(&self, address: u64) -> bool {
        self.owns_all(address, 1)
    }

    /// Reports whether all bytes from an address on are in one range.
    pub fn owns_all(&self, address: u64, bytes: u64) -> bool {
        let range = self.ranges.range(..=address).next_back();
        range.is_some_and(|(start, range)| {
            let offset = address - start;
            offset.checked_add(bytes).is_some_and(|end| end <= range.bytes)
        })
    }

    fn take_out_ranges_of(&mut self, owner: u64, removed: &mut Removed) {
        let owned = |(start, range): (&u64, &Range)| (range.owner == owner).then_some(*start);
        let starts: Vec<u64> = self.ranges.iter().filter_map(owned).collect();
        starts.into_iter().for_each(|start| self.take_out_range(start, removed));
        self.values.retain(|_, of| *of != owner);
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_surface::status::Status;

    use super::{HANDLES_MAX, Objects, Removed};
    use crate::kinds::Kind;

    fn remove(objects: &mut Objects, kind: Kind, number: u64) {
        let mut removed = Removed::default();
        objects.take_out(kind, number, &mut removed);
        objects.forget(removed);
    }

    #[test]
    fn a_number_means_one_handle_of_one_kind_until_it_is_removed() {
        let mut objects = Objects::new(u64::MAX);
        let number = objects.register(Kind::Stream, 0xAAAA, 0, 0);
        assert_eq!(objects.register(Kind::Stream, 0xAAAA, 0, 0), number);
        assert_eq!(objects.handle(Kind::Stream, number), Ok(0xAAAA));
        assert_eq!(objects.handle(Kind::Event, number), Err(Status::InvalidHandle));
        remove(&mut objects, Kind::Stream, number);
        assert_eq!(objects.handle(Kind::Stream, number), Err(Status::InvalidHandle));
        assert_ne!(objects.register(Kind::Stream, 0xAAAA, 0, 0), number);
    }

    #[test]
    fn what_an_object_owns_goes_with_it() {
        let mut objects = Objects::new(4096);
        let context = objects.register(Kind::Context, 1, 0, 0);
        let module = objects.register(Kind::Module, 2, context, 0);
        let function = objects.register(Kind::Function, 3, module, 0);
        let charged = objects.charge(1000).unwrap();
        objects.add_range(0x10_000, 1000, context, charged);
        remove(&mut objects, Kind::Context, context);
        assert_eq!(objects.handle(Kind::Function, function), Err(Status::InvalidHandle));
        assert!(!objects.owns(0x10_000));
        assert_eq!(objects.budget().used, 0);
    }

    #[test]
    fn the_budget_ends_at_its_last_byte() {
        let mut objects = Objects::new(1024);
        assert_eq!(objects.charge(1025), Err(Status::OutOfMemory));
        assert_eq!(objects.charge(u64::MAX), Err(Status::OutOfMemory));
        assert_eq!(objects.charge(1024), Ok(1024));
        assert_eq!(objects.charge(1), Err(Status::OutOfMemory));
        objects.give_back(1024);
        assert_eq!(objects.charge(1), Ok(512));
    }

    #[test]
    fn addresses_are_owned_within_a_range() {
        let mut objects = Objects::new(u64::MAX);
        objects.add_range(100, 10, 0, 0);
        assert_eq!([99, 100, 109, 110].map(|address| objects.owns(address)), [false, true, true, false]);
    }

    #[test]
    fn physical_memory_is_released_as_often_as_it_was_retained() {
        let mut objects = Objects::new(u64::MAX);
        let number = objects.register(Kind::PhysicalMemory, 7, 0, 0);
        objects.register(Kind::PhysicalMemory, 7, 0, 0);
        remove(&mut objects, Kind::PhysicalMemory, number);
        assert_eq!(objects.handle(Kind::PhysicalMemory, number), Ok(7));
        remove(&mut objects, Kind::PhysicalMemory, number);
        assert_eq!(objects.handle(Kind::PhysicalMemory, number), Err(Status::InvalidValue));
    }

    #[test]
    fn what_a_failed_call_would_have_destroyed_is_still_there() {
        let mut objects = Objects::new(4096);
        let context = objects.register(Kind::Context, 1, 0, 0);
        let module = objects.register(Kind::Module, 2, context, 0);
        let charged = objects.charge(1000).unwrap();
        objects.add_range(0x10_000, 1000, context, charged);
        let mut removed = Removed::default();
        objects.take_out(Kind::Context, context, &mut removed);
        assert_eq!(objects.handle(Kind::Module, module), Err(Status::InvalidHandle));
        objects.put_back(removed);
        assert_eq!(objects.handle(Kind::Module, module), Ok(2));
        assert!(objects.owns(0x10_000));
        assert_eq!(objects.budget().used, 1024);
    }

    #[test]
    fn physical_memory_is_charged_while_it_is_mapped() {
        let mut objects = Objects::new(4096);
        let charged = objects.charge(4096).unwrap();
        let physical = objects.register(Kind::PhysicalMemory, 7, 0, charged);
        objects.mapped(0x10_000, physical);
        remove(&mut objects, Kind::PhysicalMemory, physical);
        assert_eq!(objects.charge(1), Err(Status::OutOfMemory));
        objects.unmapped(0x10_000, 4096);
        assert_eq!(objects.budget().used, 0);
    }

    #[test]
    fn objects_that_kernels_get_keep_their_values() {
        let mut objects = Objects::new(0);
        let context = objects.register(Kind::Context, 1, 0, 0);
        assert_eq!(objects.register(Kind::TextureObject, 99, context, 0), 99);
        assert_eq!(objects.handle(Kind::TextureObject, 99), Ok(99));
        assert_eq!(objects.handle(Kind::SurfaceObject, 99), Err(Status::InvalidValue));
        remove(&mut objects, Kind::Context, context);
        assert_eq!(objects.handle(Kind::TextureObject, 99), Err(Status::InvalidValue));
    }

    #[test]
    fn handles_of_a_kind_are_bounded() {
        let mut objects = Objects::new(u64::MAX);
        for handle in 1..=HANDLES_MAX as u64 {
            objects.register(Kind::Event, handle, 0, 0);
        }
        assert_eq!(objects.check_room(Kind::Event), Err(Status::OutOfMemory));
        assert_eq!(objects.check_room(Kind::Stream), Ok(()));
    }
}
