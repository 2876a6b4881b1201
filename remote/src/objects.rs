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
    next: u64,
    budget: Budget,
    /// The number of the device's primary context.
    primary: u64,
}

impl Objects {
    /// Makes an empty set, with this limit of device memory in bytes.
    pub fn new(limit: u64) -> Self {
        let budget = Budget { limit, used: 0 };
        let (entries, numbers, counts, ranges) = Default::default();
        Self { entries, numbers, counts, ranges, next: FIRST_NUMBER, budget, primary: 0 }
    }

    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the driver's handle under a number.
    pub fn handle(&self, kind: Kind, number: u64) -> Answer<u64> {
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

    /// Forgets an object that the driver destroyed, and all that it owned.
    pub fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            && entry.kind == Kind::PhysicalMemory
            && entry.references > 1
        {
            entry.references -= 1;
            return;
        }
        let mut doomed = vec![number];
        while let Some(number) = doomed.pop() {
            let Some(Entry { kind, handle, charged, .. }) = self.entries.remove(&number) else { continue };
            self.numbers.remove(&(kind, handle));
            if let Some(count) = self.counts.get_mut(&kind) {
                *count -= 1;
            }
            self.budget.used -= charged;
            self.remove_ranges_of(number);
            doomed.extend(self.entries.iter().filter(|(_, entry)| entry.owner == number).map(|(number, _)| *number));
        }
    }

    pub fn set_primary(&mut self, context: u64) {
        self.primary = context;
    }

    /// Forgets what the primary context owned. The context itself keeps its number, as it keeps its handle.
    pub fn remove_primary(&mut self) {
        let owner = self.primary;
        let owned = |(number, entry): (&u64, &Entry)| (entry.owner == owner).then_some(*number);
        let doomed: Vec<u64> = self.entries.iter().filter(|_| owner != 0).filter_map(owned).collect();
        doomed.into_iter().for_each(|number| self.remove(number));
        self.remove_ranges_of(owner);
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

    /// Removes the range that starts here.
    pub fn remove_range(&mut self, start: u64) {
        if let Some(Range { charged, .. }) = self.ranges.remove(&start) {
            self.give_back(charged);
        }
    }

    /// Reports whether a range starts here.
    pub fn starts_range(&self, address: u64) -> bool {
        self.ranges.contains_key(&address)
    }

    /// Reports whether an address is in a range, or at its end.
    pub fn owns(&self, address: u64) -> bool {
        self.ranges.range(..=address).next_back().is_some_and(|(start, range)| address - start <= range.bytes)
    }

    fn remove_ranges_of(&mut self, owner: u64) {
        if owner == 0 {
            return;
        }
        let starts: Vec<u64> =
            self.ranges.iter().filter_map(|(start, range)| (range.owner == owner).then_some(*start)).collect();
        starts.into_iter().for_each(|start| self.remove_range(start));
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_surface::status::Status;

    use super::{HANDLES_MAX, Objects};
    use crate::kinds::Kind;

    #[test]
    fn a_number_means_one_handle_of_one_kind_until_it_is_removed() {
        let mut objects = Objects::new(u64::MAX);
        let number = objects.register(Kind::Stream, 0xAAAA, 0, 0);
        assert_eq!(objects.register(Kind::Stream, 0xAAAA, 0, 0), number);
        assert_eq!(objects.handle(Kind::Stream, number), Ok(0xAAAA));
        assert_eq!(objects.handle(Kind::Event, number), Err(Status::InvalidHandle));
        objects.remove(number);
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
        objects.remove(context);
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
    fn addresses_are_owned_from_the_start_of_a_range_to_its_end() {
        let mut objects = Objects::new(u64::MAX);
        objects.add_range(100, 10, 0, 0);
        assert_eq!([99, 100, 110, 111].map(|address| objects.owns(address)), [false, true, true, false]);
    }

    #[test]
    fn physical_memory_is_released_as_often_as_it_was_retained() {
        let mut objects = Objects::new(u64::MAX);
        let number = objects.register(Kind::PhysicalMemory, 7, 0, 0);
        objects.register(Kind::PhysicalMemory, 7, 0, 0);
        objects.remove(number);
        assert_eq!(objects.handle(Kind::PhysicalMemory, number), Ok(7));
        objects.remove(number);
        assert_eq!(objects.handle(Kind::PhysicalMemory, number), Err(Status::InvalidValue));
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
