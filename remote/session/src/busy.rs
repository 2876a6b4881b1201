//! How long the device works for the program, to about 10 ms.
//!
//! The device works while it has work of the program that is not done. So each thread that has launched work records an
//! event of ours behind it. A thread of this module asks for these events until they have been reached, and so does each
//! call with which the program waits. Work in a captured graph is not done, so it gets no event.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{counters::Counters, native::Native};

/// How often the events are asked for.
const PERIOD: Duration = Duration::from_millis(10);
/// Maximum events at a time. Work in further streams is not measured.
const MARKS_MAX: usize = 1024;

/// Measures the time in which the device works.
#[derive(Debug)]
pub(crate) struct Busy {
    native: Arc<Native>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A stream in which work was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the context that was current.
    pub(crate) context: u32,
    /// The driver's handle.
    pub(crate) stream: u64,
    /// The program's thread, if the handle means the stream of the calling thread.
    pub(crate) thread: u32,
}

#[derive(Debug, Default)]
struct State {
    /// Calls for work on the device that are being made.
    calls: u32,
    marks: Vec<Mark>,
    /// Calls that may end contexts, with their events, and are being made.
    endings: u32,
    is_watched: bool,
    is_over: bool,
}

/// An event behind the last work in a stream. It needs its context, but not the stream.
#[derive(Debug)]
struct Mark {
    place: Place,
    event: u64,
    /// Threads that record it now.
    recording: u32,
}

impl Busy {
    pub(crate) fn new(native: Arc<Native>, counters: Arc<Counters>) -> Self {
        Self { native, counters, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Makes a call that gives the device work, which counts as work itself.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let change = |by: fn(u32) -> u32| {
            let mut state = self.lock();
            state.calls = by(state.calls);
            self.publish(&state);
        };
        change(|calls| calls + 1);
        let result = call();
        change(|calls| calls - 1);
        result
    }

    /// Makes a call that may end contexts. Events are forgotten before their contexts end.
    pub(crate) fn ending_contexts<T>(&self, call: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        state.endings += 1;
        self.forget(&mut state);
        drop(state);
        let result = call();
        self.lock().endings -= 1;
        result
    }

    /// Marks the end of the work that the calling thread has just put into a stream. Its context must be current.
    pub(crate) fn mark(self: &Arc<Self>, place: Place) {
        if self.native.is_capturing(place.stream) {
            return;
        }
        let Some(event) = self.event_of(place) else { return };
        let code = (self.native.calls.record_event)(event, place.stream);
        let mut state = self.lock();
        // It is not there any more if its context ends meanwhile.
        if let Some(index) = state.marks.iter().position(|mark| mark.event == event) {
            let mark = &mut state.marks[index];
            mark.recording = mark.recording.saturating_sub(1);
            if code != 0 && mark.recording == 0 {
                state.marks.swap_remove(index);
                (self.native.calls.destroy_event)(event);
            }
        }
        self.publish(&state);
        if !state.is_watched {
            // Without the thread, the time is read when the program waits.
            let watcher = Arc::clone(self);
            let spawned = thread::Builder::new().name("session-busy".into()).spawn(move || watcher.watch());
            state.is_watched = spawned.is_ok();
        }
        self.changed.notify_one();
    }

    /// Asks for all events. The calling thread's captures must be relaxed.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        let calls = &self.native.calls;
        state.marks.retain(|mark| {
            let is_pending = mark.recording > 0 || self.native.is_pending(mark.event);
            if !is_pending {
                (calls.destroy_event)(mark.event);
            }
            is_pending
        });
        self.publish(&state);
    }

    /// Ends the measurement.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_over = true;
        self.forget(&mut state);
        self.changed.notify_all();
    }

    /// Returns the event of a place, which the caller records now.
    fn event_of(&self, place: Place) -> Option<u64> {
        let mut state = self.lock();
        if state.is_over || state.endings > 0 {
            return None;
        }
        if let Some(mark) = state.marks.iter_mut().find(|mark| mark.place == place) {
            mark.recording += 1;
            return Some(mark.event);
        }
        if state.marks.len() >= MARKS_MAX {
            return None;
        }
        let event = self.native.new_event()?;
        state.marks.push(Mark { place, event, recording: 1 });
        Some(event)
    }

    /// Asks for the events until the measurement ends. A driver may answer only to a thread whose captures are relaxed.
    fn watch(&self) {
        self.native.relax_captures();
        loop {
            let is_unneeded = |state: &mut State| state.marks.is_empty() && !state.is_over;
            let state = self.changed.wait_while(self.lock(), is_unneeded).unwrap_or_else(PoisonError::into_inner);
            let until_over = self.changed.wait_timeout_while(state, PERIOD, |state| !state.is_over);
            if until_over.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
            self.look();
        }
    }

    /// Forgets all events. One that a thread records now is left to the driver.
    fn forget(&self, state: &mut State) {
        self.native.relaxed(|| {
            for mark in state.marks.drain(..).filter(|mark| mark.recording == 0) {
                (self.native.calls.destroy_event)(mark.event);
            }
        });
        self.publish(state);
    }

    fn publish(&self, state: &State) {
        self.counters.works(state.calls > 0 || !state.marks.is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether a call gives the device work.
pub(crate) fn is_work(symbol: &str) -> bool {
    let is_launch = symbol.starts_with("cuLaunch") && symbol != "cuLaunchHostFunc";
    is_launch || symbol == "cuGraphLaunch" || symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset")
}

/// Reports whether a call waits for work of the device.
pub(crate) fn is_wait(symbol: &str) -> bool {
    ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"].contains(&symbol)
}
