//! The places of a server, shared fairly among its peers.
//!
//! A free place goes to anyone. When none is free, a peer with few places gets one from the peer that has the most, so one machine that
//! opens connections without end can't keep the others out.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio_util::sync::CancellationToken;

/// A number of places.
#[derive(Debug)]
pub struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

/// A place of a peer, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    peer: IpAddr,
    number: u64,
    withdrawn: CancellationToken,
}

#[derive(Debug, Default)]
struct Taken {
    /// The places of each peer, the oldest first.
    by_peer: HashMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
    count: usize,
    next_number: u64,
}

impl Places {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a place for this peer. If all are taken, it is the oldest place of another peer that has at least two more. `None` if no peer
    /// has.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let peer = network(peer);
        let mut taken = self.taken();
        if taken.count >= self.max {
            let own = taken.by_peer.get(&peer).map_or(0, VecDeque::len);
            let (largest, count) = taken.largest()?;
            if count < own + 2 {
                return None;
            }
            taken.withdraw_oldest(largest);
        }
        Some(taken.add(peer, self))
    }

    /// Takes a place for this peer in any case. If all are taken, it is the oldest place of the peer that has the most.
    pub fn take_over(self: &Arc<Self>, peer: IpAddr) -> Place {
        let mut taken = self.taken();
        if taken.count >= self.max
            && let Some((largest, _)) = taken.largest()
        {
            taken.withdraw_oldest(largest);
        }
        taken.add(network(peer), self)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("nothing panics while it holds this lock")
    }
}

impl Place {
    /// Resolves when another peer gets the place.
    pub async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(self.peer, self.number);
    }
}

impl Taken {
    fn add(&mut self, peer: IpAddr, places: &Arc<Places>) -> Place {
        let (number, withdrawn) = (self.next_number, CancellationToken::new());
        self.next_number += 1;
        self.count += 1;
        self.by_peer.entry(peer).or_default().push_back((number, withdrawn.clone()));
        Place { places: Arc::clone(places), peer, number, withdrawn }
    }

    fn largest(&self) -> Option<(IpAddr, usize)> {
        self.by_peer.iter().map(|(peer, places)| (*peer, places.len())).max_by_key(|(_, count)| *count)
    }

    fn withdraw_oldest(&mut self, peer: IpAddr) {
        let oldest = self.by_peer.get(&peer).and_then(|places| places.front()).cloned();
        if let Some((number, withdrawn)) = oldest {
            withdrawn.cancel();
            self.remove(peer, number);
        }
    }

    /// Does nothing if the place was withdrawn before.
    fn remove(&mut self, peer: IpAddr, number: u64) {
        let Some(places) = self.by_peer.get_mut(&peer) else { return };
        if let Some(index) = places.iter().position(|(other, _)| *other == number) {
            places.remove(index);
            self.count -= 1;
        }
        if places.is_empty() {
            self.by_peer.remove(&peer);
        }
    }
}

/// The network that counts as one peer. A host usually has 2^64 addresses of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn peer(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn a_newcomer_gets_a_place_of_the_peer_that_has_most() {
        let places = Places::new(4);
        let hog: Vec<Place> = (0..4).filter_map(|_| places.take(peer(1))).collect();
        assert_eq!(hog.len(), 4, "one peer may have all places while no other asks");
        assert!(places.take(peer(1)).is_none());
        let other: Vec<Place> = (0..4).filter_map(|_| places.take(peer(2))).collect();
        assert_eq!(other.len(), 2, "each has its share");
        let withdrawn: Vec<bool> = hog.iter().map(|place| place.withdrawn.is_cancelled()).collect();
        assert_eq!(withdrawn, [true, true, false, false], "the oldest are withdrawn");
        drop(hog);
        assert_eq!(places.taken().count, 2, "a withdrawn place does not count twice");
        assert!(places.take(peer(2)).is_some());
        drop(other);
        assert!(places.taken().by_peer.is_empty());
    }

    #[test]
    fn a_place_can_be_taken_over_at_any_time() {
        let places = Places::new(2);
        let first = places.take_over(peer(1));
        let second = places.take_over(peer(1));
        let third = places.take_over(peer(1));
        let withdrawn = [&first, &second, &third].map(|place| place.withdrawn.is_cancelled());
        assert_eq!(withdrawn, [true, false, false]);
        assert_eq!(places.taken().count, 2);
    }

    #[test]
    fn the_addresses_of_a_host_are_one_peer() {
        let places = Places::new(2);
        let _first = places.take("2001:db8::1".parse().unwrap()).unwrap();
        let _second = places.take("2001:db8::2".parse().unwrap()).unwrap();
        assert!(places.take("2001:db8::3".parse().unwrap()).is_none());
        assert!(places.take("2001:db8:0:1::1".parse().unwrap()).is_some());
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), peer(1));
    }

    proptest! {
        /// Each step opens a connection of a peer; every third drops one.
        #[test]
        fn no_peer_is_kept_below_its_share(peers in prop::collection::vec(0..5_u8, 1..200)) {
            const MAX: usize = 12;
            let places = Places::new(MAX);
            let mut open: Vec<Place> = Vec::new();
            for (step, number) in peers.into_iter().enumerate() {
                let got = places.take(peer(number));
                let taken = places.taken();
                let own = taken.by_peer.get(&peer(number)).map_or(0, VecDeque::len);
                prop_assert!(taken.count <= MAX);
                if got.is_none() {
                    let most = taken.by_peer.values().map(VecDeque::len).max().unwrap_or(0);
                    prop_assert!(most <= own + 1, "{most} places of one peer, {own} of the refused one");
                }
                drop(taken);
                open.extend(got);
                if step % 3 == 0 {
                    open.swap_remove(step % open.len());
                }
                let live = open.iter().filter(|place| !place.withdrawn.is_cancelled()).count();
                prop_assert_eq!(places.taken().count, live);
            }
        }
    }
}
