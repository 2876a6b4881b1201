use proptest::prelude::*;
use tokio::sync::oneshot;

use super::*;

/// The numbers of up to [`NUMBERS_MAX`] items.
#[derive(Debug, Default, PartialEq)]
struct Numbers(Vec<u32>);

const NUMBERS_MAX: usize = 3;

impl Group for Numbers {
    type Item = u32;
    const UNCONFIRMED_MAX: usize = 2;

    fn add(&mut self, number: u32) -> Option<Self> {
        let full = (self.0.len() == NUMBERS_MAX).then(|| mem::take(self));
        self.0.push(number);
        full
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn commit() -> GroupCommit<&'static str, Numbers> {
    GroupCommit::default()
}

fn next<const N: usize>(numbers: [u32; N]) -> Option<Numbers> {
    Some(Numbers(numbers.to_vec()))
}

#[test]
fn items_gather_while_a_message_is_unconfirmed_and_leave_together_after_its_confirm() {
    let commit = commit();
    let mut turn = commit.add(&"a", 0).unwrap();
    assert_eq!(turn.next(), next([0]), "the first item does not wait");
    assert!(commit.add(&"a", 1).is_none());
    assert!(commit.add(&"a", 2).is_none());
    assert_eq!(turn.next(), next([1, 2]));
    assert_eq!(turn.next(), None);
    assert!(commit.lock().is_empty(), "an idle destination is removed");
    assert_eq!(turn.next(), None, "a turn that has ended stays ended");
    assert_eq!(commit.add(&"a", 3).unwrap().next(), next([3]));
}

#[test]
fn destinations_do_not_wait_for_each_other() {
    let commit = commit();
    let _unconfirmed = commit.add(&"a", 0).unwrap().next();
    assert_eq!(commit.add(&"b", 1).unwrap().next(), next([1]));
}

#[test]
fn a_full_group_leaves_beside_unconfirmed_messages_up_to_the_maximum() {
    let commit = commit();
    let mut first = commit.add(&"a", 0).unwrap();
    assert_eq!(first.next(), next([0]));
    assert!([1, 2, 3].into_iter().all(|number| commit.add(&"a", number).is_none()), "the group is not full");
    assert!(!first.is_full());
    let mut second = commit.add(&"a", 4).unwrap();
    assert!(second.is_full());
    assert_eq!(second.next(), next([1, 2, 3]));
    assert!(!second.is_full(), "4 waits alone");
    assert!((5..11).all(|number| commit.add(&"a", number).is_none()), "two messages are unconfirmed");
    assert_eq!((first.next(), second.next(), first.next()), (next([4, 5, 6]), next([7, 8, 9]), next([10])));
}

#[test]
fn what_waits_can_leave_beside_unconfirmed_messages() {
    let commit = commit();
    let mut first = commit.add(&"a", 0).unwrap();
    assert_eq!(first.next(), next([0]));
    assert!(commit.begin_all().is_empty(), "nothing waits");
    assert!(commit.add(&"a", 1).is_none());
    let more: Vec<_> = commit.begin_all().into_iter().flatten().collect();
    assert_eq!(more, [Numbers(vec![1])]);
}

/// A group of senders, as of replies whose callers wait.
#[derive(Debug, Default)]
struct Callers(Vec<oneshot::Sender<()>>);

impl Group for Callers {
    type Item = oneshot::Sender<()>;
    const UNCONFIRMED_MAX: usize = 1;

    fn add(&mut self, caller: oneshot::Sender<()>) -> Option<Self> {
        self.0.push(caller);
        None
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[test]
fn a_turn_that_is_dropped_tells_the_callers_that_waited_for_it_and_blocks_no_later_one() {
    let commit = GroupCommit::<(), Callers>::default();
    let ((first, mut of_first), (second, mut of_second)) = (oneshot::channel(), oneshot::channel());
    let turn = commit.add(&(), first).unwrap();
    assert!(commit.add(&(), second).is_none());
    drop(turn);
    assert!([&mut of_first, &mut of_second].into_iter().all(|caller| caller.try_recv().is_err()));
    assert!(commit.add(&(), oneshot::channel().0).is_some());
}

proptest! {
    /// Steps: add an item, or confirm the message of one of the turns.
    #[test]
    fn every_item_leaves_once_and_in_order_and_none_waits_while_all_is_confirmed(
        steps in proptest::collection::vec(prop_oneof![4 => Just(None), 1 => (0..4_usize).prop_map(Some)], 0..400)
    ) {
        let commit = commit();
        let (mut turns, mut added, mut left) = (Vec::new(), 0, Vec::new());
        let mut proceed = |turn: Turn<_, Numbers>, turns: &mut Vec<_>| {
            let mut turn = turn;
            if let Some(Numbers(numbers)) = turn.next() {
                left.extend(numbers);
                turns.push(turn);
            }
        };
        for step in steps {
            match step {
                None => {
                    if let Some(turn) = commit.add(&"a", added) {
                        proceed(turn, &mut turns);
                    }
                    added += 1;
                }
                Some(_) if turns.is_empty() => prop_assert!(commit.lock().is_empty(), "items wait though all is confirmed"),
                Some(index) => {
                    let turn = turns.remove(index % turns.len());
                    proceed(turn, &mut turns);
                }
            }
            prop_assert!(turns.len() <= Numbers::UNCONFIRMED_MAX);
        }
        while let Some(turn) = turns.pop() {
            proceed(turn, &mut turns);
        }
        prop_assert_eq!(left, (0..added).collect::<Vec<_>>());
        prop_assert!(commit.lock().is_empty());
    }
}
