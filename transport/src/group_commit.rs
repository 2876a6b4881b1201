//! Group commit: items that arrive while a message is unconfirmed gather, and the next message carries all of them.
//!
//! A message costs the broker nearly as much with one small item as with a hundred. The size of the groups follows the load: an
//! item leaves at once if no message to its destination is unconfirmed, unless the holder of the turn waits before it takes a group.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

/// Items that share a message.
pub trait Group: Default {
    type Item;

    /// The most unconfirmed messages to a destination. Only a full group leaves beside another message.
    const UNCONFIRMED_MAX: usize;

    /// Adds an item. If it does not fit, this returns the group as it was, which is full, and the item begins a new one.
    fn add(&mut self, item: Self::Item) -> Option<Self>;

    fn is_empty(&self) -> bool;
}

/// The groups that gather, by destination. Clones share them.
#[derive(Debug)]
pub struct GroupCommit<K, G>(Arc<Mutex<Lanes<K, G>>>);

type Lanes<K, G> = HashMap<K, Lane<G>>;

/// The groups for one destination, which has at least one turn.
#[derive(Debug, Default)]
struct Lane<G> {
    full: VecDeque<G>,
    gathering: G,
    turns: usize,
}

/// The right to publish to a destination. Iterating returns the groups: the holder publishes each one, and takes the next when the broker
/// has confirmed or refused it.
///
/// If the last turn for a destination is dropped early, as by a panic, the groups that still wait are dropped too. So an item that must be
/// answered contains a sender, whose receiver then fails.
#[derive(Debug)]
pub struct Turn<K: Clone + Eq + Hash, G: Group> {
    commit: GroupCommit<K, G>,
    destination: K,
    has_ended: bool,
}

impl<K: Clone + Eq + Hash, G: Group> GroupCommit<K, G> {
    /// Adds an item. If this begins a turn, the caller publishes its groups.
    #[must_use]
    pub fn add(&self, destination: &K, item: G::Item) -> Option<Turn<K, G>> {
        let mut lanes = self.lock();
        let lane = match lanes.get_mut(destination) {
            Some(lane) => lane,
            None => lanes.entry(destination.clone()).or_default(),
        };
        let full = lane.gathering.add(item);
        let turns_max = if full.is_some() { G::UNCONFIRMED_MAX } else { 1 };
        lane.full.extend(full);
        (lane.turns < turns_max).then(|| self.begin(destination, lane))
    }

    /// Begins a turn for each destination where items wait, although other messages to it are unconfirmed.
    #[must_use]
    pub fn begin_all(&self) -> Vec<Turn<K, G>> {
        let mut lanes = self.lock();
        let waiting = lanes.iter_mut().filter(|(_, lane)| !lane.is_empty());
        waiting.map(|(destination, lane)| self.begin(destination, lane)).collect()
    }

    fn begin(&self, destination: &K, lane: &mut Lane<G>) -> Turn<K, G> {
        lane.turns += 1;
        Turn { commit: self.clone(), destination: destination.clone(), has_ended: false }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes<K, G>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

impl<G: Group> Lane<G> {
    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.gathering.is_empty()
    }

    fn take(&mut self) -> Option<G> {
        self.full.pop_front().or_else(|| (!self.gathering.is_empty()).then(|| mem::take(&mut self.gathering)))
    }
}

impl<K: Clone + Eq + Hash, G: Group> Turn<K, G> {
    pub fn destination(&self) -> &K {
        &self.destination
    }

    /// Returns whether a full group waits.
    pub fn is_full(&self) -> bool {
        self.commit.lock().get(&self.destination).is_some_and(|lane| !lane.full.is_empty())
    }

    /// Ends the turn. Returns the groups that wait if no other turn is left to publish them.
    fn end(&mut self, lanes: &mut Lanes<K, G>) -> Option<Lane<G>> {
        self.has_ended = true;
        let lane = lanes.get_mut(&self.destination).expect("a destination with a turn has a lane");
        lane.turns -= 1;
        if lane.turns == 0 { lanes.remove(&self.destination) } else { None }
    }
}

impl<K: Clone + Eq + Hash, G: Group> Iterator for Turn<K, G> {
    type Item = G;

    /// Takes the group to publish next. If nothing waits, the turn ends.
    fn next(&mut self) -> Option<G> {
        if self.has_ended {
            return None;
        }
        let commit = self.commit.clone();
        let mut lanes = commit.lock();
        let next = lanes.get_mut(&self.destination).and_then(Lane::take);
        if next.is_none() {
            self.end(&mut lanes);
        }
        next
    }
}

impl<K: Clone + Eq + Hash, G: Group> Drop for Turn<K, G> {
    fn drop(&mut self) {
        if !self.has_ended {
            let commit = self.commit.clone();
            let _dropped_unlocked = self.end(&mut commit.lock());
        }
    }
}

impl<K, G> Clone for GroupCommit<K, G> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, G> Default for GroupCommit<K, G> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests;
