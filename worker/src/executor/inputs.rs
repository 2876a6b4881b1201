//! The supervisor's record of the inputs on a child's device: those that the child reports as resident, and those that jobs are fetching.
//!
//! Only one job at a time fetches an input. Others that use it wait, so that the blob store is read once. The child decides which inputs
//! stay, and asks each job for the inputs that it does not have.

use std::{collections::BTreeSet, fmt, num::NonZero};

use gpufleet_schema::BlobDigest;
use lru::LruCache;
use tokio::sync::Notify;

use crate::shared_state::SharedState;

/// Maximum number of inputs to remember. Others are forgotten, and fetched again when they are needed.
const INPUTS_MAX: NonZero<usize> = NonZero::new(4096).expect("the constant is not zero");

/// A callback for each change: an input, and whether it is now resident.
pub(super) type InputObserver = Box<dyn Fn(BlobDigest, bool) + Send>;

/// The inputs of one child.
#[derive(Debug)]
pub(super) struct DeviceInputs {
    state: SharedState<State>,
    changed: Notify,
}

struct State {
    inputs: LruCache<BlobDigest, Input>,
    observer: Option<InputObserver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// A job is fetching it.
    Coming,
    Resident {
        bytes: u64,
    },
    /// There was no room for it on the device, so jobs fetch it without waiting for each other.
    Refused,
}

/// The claim of a job that fetches an input. Dropping it lets another job fetch the input if this job did not.
#[derive(Debug)]
pub(super) struct Bringing<'a> {
    input: BlobDigest,
    of: &'a DeviceInputs,
}

impl Default for DeviceInputs {
    fn default() -> Self {
        let state = State { inputs: LruCache::new(INPUTS_MAX), observer: None };
        Self { state: SharedState::new(state), changed: Notify::new() }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("inputs", &self.inputs.len()).finish_non_exhaustive()
    }
}

impl DeviceInputs {
    /// Waits until no other job fetches an input of this job, and returns the inputs that this job has to fetch. All jobs claim inputs in
    /// the order of their digests, so that they never wait for each other in a circle.
    pub(super) async fn claim(&self, wanted: BTreeSet<BlobDigest>) -> Vec<Bringing<'_>> {
        let mut bringing = Vec::new();
        for input in wanted {
            if self.claim_one(input).await.is_none() {
                bringing.push(Bringing { input, of: self });
            }
        }
        bringing
    }

    /// Returns the input's state, or `None` if the caller has to fetch the input.
    async fn claim_one(&self, input: BlobDigest) -> Option<Input> {
        loop {
            // Registered before the look-up, so that no change in between is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.look(input) {
                Some(Input::Coming) => changed.await,
                found => return found,
            }
        }
    }

    fn look(&self, input: BlobDigest) -> Option<Input> {
        let mut state = self.state.lock();
        let found = state.inputs.get(&input).copied();
        if found.is_none() {
            state.set(input, Input::Coming);
        }
        found
    }

    /// Returns whether the input is resident with this length.
    pub(super) fn has(&self, input: BlobDigest, bytes: u64) -> bool {
        self.state.lock().inputs.peek(&input) == Some(&Input::Resident { bytes })
    }

    /// Records the child's report that an input is resident or not.
    pub(super) fn heard(&self, input: BlobDigest, bytes: u64, is_resident: bool) {
        let mut state = self.state.lock();
        match state.inputs.peek(&input) {
            _ if is_resident => state.set(input, Input::Resident { bytes }),
            Some(Input::Resident { .. }) => state.forget(input),
            Some(Input::Coming) => state.set(input, Input::Refused),
            Some(Input::Refused) | None => {}
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Passes all resident inputs and then every later change to `observer`.
    pub(super) fn watch(&self, observer: InputObserver) {
        let mut state = self.state.lock();
        let is_resident = |input: &Input| matches!(input, Input::Resident { .. });
        state.inputs.iter().filter(|(_, input)| is_resident(input)).for_each(|(input, _)| observer(*input, true));
        state.observer = Some(observer);
    }

    fn end_bringing(&self, input: BlobDigest) {
        let mut state = self.state.lock();
        if state.inputs.peek(&input) == Some(&Input::Coming) {
            state.forget(input);
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

impl State {
    fn set(&mut self, input: BlobDigest, to: Input) {
        if let Some((replaced, was)) = self.inputs.push(input, to) {
            self.tell(replaced, was, false);
        }
        self.tell(input, to, true);
    }

    fn forget(&mut self, input: BlobDigest) {
        if let Some(was) = self.inputs.pop(&input) {
            self.tell(input, was, false);
        }
    }

    fn tell(&self, input: BlobDigest, state: Input, is_resident: bool) {
        if let (Input::Resident { .. }, Some(observer)) = (state, &self.observer) {
            observer(input, is_resident);
        }
    }
}

impl Drop for Bringing<'_> {
    fn drop(&mut self) {
        self.of.end_bringing(self.input);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use futures::{FutureExt as _, poll};

    use super::*;

    fn digest(number: u8) -> BlobDigest {
        BlobDigest::of(&[number])
    }

    fn wanted(numbers: &[u8]) -> BTreeSet<BlobDigest> {
        numbers.iter().map(|number| digest(*number)).collect()
    }

    #[tokio::test]
    async fn one_job_brings_an_input_and_the_others_wait_for_it() {
        let inputs = DeviceInputs::default();
        let first = inputs.claim(wanted(&[1])).await;
        let mut second = Box::pin(inputs.claim(wanted(&[1])));
        assert!(poll!(&mut second).is_pending());
        inputs.heard(digest(1), 10, true);
        assert_eq!(second.await.len(), 0);
        drop(first);
        assert!(inputs.has(digest(1), 10) && !inputs.has(digest(1), 11));
    }

    #[tokio::test]
    async fn the_next_job_brings_an_input_if_the_first_ends_without_it() {
        let inputs = DeviceInputs::default();
        let first = inputs.claim(wanted(&[1])).await;
        let mut second = Box::pin(inputs.claim(wanted(&[1])));
        let mut third = Box::pin(inputs.claim(wanted(&[1])));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(first);
        let _second = second.await;
        assert!(poll!(&mut third).is_pending());
    }

    #[tokio::test]
    async fn jobs_do_not_wait_for_an_input_that_has_no_room() {
        let inputs = DeviceInputs::default();
        let _first = inputs.claim(wanted(&[1])).await;
        inputs.heard(digest(1), 10, false);
        assert_eq!(inputs.claim(wanted(&[1])).now_or_never().expect("it waits for no job").len(), 0);
    }

    #[tokio::test]
    async fn jobs_that_share_several_inputs_never_wait_for_each_other_in_a_circle() {
        let inputs = Arc::new(DeviceInputs::default());
        let tasks: Vec<_> = [[1, 2], [2, 1]].into_iter().cycle().take(100).collect();
        let tasks = tasks.into_iter().map(|numbers| {
            let inputs = Arc::clone(&inputs);
            tokio::spawn(async move { drop(inputs.claim(wanted(&numbers)).await) })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_observer_hears_what_becomes_resident_and_what_does_not_stay() {
        let inputs = DeviceInputs::default();
        inputs.heard(digest(1), 10, true);
        let (tell, told) = mpsc::channel();
        inputs.watch(Box::new(move |input, is_resident| tell.send((input, is_resident)).unwrap()));
        let _claimed = inputs.claim(wanted(&[1, 2])).await;
        inputs.heard(digest(2), 10, true);
        inputs.heard(digest(2), 0, false);
        let told: Vec<_> = told.try_iter().collect();
        assert_eq!(told, [(digest(1), true), (digest(2), true), (digest(2), false)]);
    }

    #[test]
    fn the_inputs_used_longest_ago_are_forgotten_beyond_the_maximum() {
        let inputs = DeviceInputs::default();
        for number in 0..=INPUTS_MAX.get() as u64 {
            inputs.heard(BlobDigest::of(&number.to_le_bytes()), 10, true);
        }
        assert!(!inputs.has(BlobDigest::of(&0_u64.to_le_bytes()), 10));
        assert!(inputs.has(BlobDigest::of(&1_u64.to_le_bytes()), 10));
    }
}
