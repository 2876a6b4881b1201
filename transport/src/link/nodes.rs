//! The order in which a link tries the nodes of a cluster.
//!
//! Each link has an order of its own, at random, so that the clients of a fleet spread over the nodes although all have the same list of
//! URLs, and the clients of a lost node spread over the others. A link stays with its node until the connection breaks: it does not move
//! to a node that returns.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{BrokerUrl, BrokerUrls};

#[derive(Debug)]
pub(super) struct Nodes {
    urls: Vec<BrokerUrl>,
    /// The position of the next node to try. Written by the task that connects.
    next: AtomicUsize,
}

impl Nodes {
    pub(super) fn shuffled(urls: &BrokerUrls) -> Self {
        // The keys of the hash are random.
        let random = RandomState::new();
        let mut urls: Vec<_> = urls.nodes().iter().cloned().enumerate().collect();
        urls.sort_by_cached_key(|(index, _)| random.hash_one(index));
        Self { urls: urls.into_iter().map(|(_, url)| url).collect(), next: AtomicUsize::new(0) }
    }

    /// Each node once. The next round continues behind the last node that this one tried, so a node that was just lost comes last.
    pub(super) fn round(&self) -> impl Iterator<Item = &BrokerUrl> {
        (0..self.urls.len()).map(|_| &self.urls[self.next.fetch_add(1, Ordering::Relaxed) % self.urls.len()])
    }

    pub(super) fn are_several(&self) -> bool {
        self.urls.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn three() -> Nodes {
        Nodes::shuffled(&"amqp://a,amqp://b,amqp://c".parse().unwrap())
    }

    fn hosts<'a>(urls: impl Iterator<Item = &'a BrokerUrl>) -> Vec<&'a str> {
        urls.map(BrokerUrl::host).collect()
    }

    #[test]
    fn a_round_has_every_node_and_a_lost_node_comes_last_in_the_next_one() {
        let nodes = three();
        let lost = hosts(nodes.round().take(1));
        let next = hosts(nodes.round());
        assert_eq!(next[2], lost[0]);
        assert_eq!(next.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b", "c"]));
    }

    #[test]
    fn links_begin_with_different_nodes_and_go_on_to_different_ones() {
        let pairs: BTreeSet<_> =
            (0..500).map(|_| three().round().take(2).map(|url| url.host().to_owned()).collect::<Vec<_>>()).collect();
        assert_eq!(pairs.len(), 6, "{pairs:?}");
    }
}
