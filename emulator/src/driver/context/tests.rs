//! Random programs over streams and events, checked against CUDA's rules for stream order.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::{Context, Job};
use crate::driver::{driver, event, handle::Handle, start, stream};

/// Number of streams: the legacy default stream, two blocking and two non-blocking ones.
const STREAMS: usize = 5;
const LEGACY: usize = 0;
const BLOCKING: std::ops::RangeInclusive<usize> = 1..=2;
const EVENTS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    Work { stream: usize, brief: bool },
    Record { stream: usize, event: usize },
    Wait { stream: usize, event: usize },
    Synchronize { stream: usize },
}

/// Begin and end of a piece of work, on one counter for all.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    began: usize,
    ended: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let (stream, event) = (0..STREAMS, 0..EVENTS);
    prop_oneof![
        4 => (stream.clone(), any::<bool>()).prop_map(|(stream, brief)| Step::Work { stream, brief }),
        1 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Step::Record { stream, event }),
        1 => (stream.clone(), event).prop_map(|(stream, event)| Step::Wait { stream, event }),
        1 => stream.prop_map(|stream| Step::Synchronize { stream }),
    ]
}

/// Reports whether two streams wait for each other's earlier work.
fn are_ordered(first: usize, second: usize) -> bool {
    let legacy_and_blocking = |one, other| one == LEGACY && BLOCKING.contains(&other);
    first == second || legacy_and_blocking(first, second) || legacy_and_blocking(second, first)
}

/// Returns, for each piece of work, the earlier ones that have to end before it begins, by the rules of CUDA.
fn predecessors(steps: &[Step]) -> Vec<Vec<usize>> {
    // The work that has to end before the next work of each stream, and before the mark of each event.
    let mut stream_needs = vec![Vec::<usize>::new(); STREAMS];
    let mut event_needs = vec![Vec::<usize>::new(); EVENTS];
    let mut result = Vec::new();
    let needs_of = |stream_needs: &[Vec<usize>], stream: usize| {
        let related = (0..STREAMS).filter(|other| are_ordered(*other, stream));
        related.flat_map(|other| stream_needs[other].clone()).collect::<Vec<_>>()
    };
    for step in steps {
        match *step {
            Step::Work { stream, .. } => {
                result.push(needs_of(&stream_needs, stream));
                stream_needs[stream].push(result.len() - 1);
            }
            Step::Record { stream, event } => event_needs[event] = needs_of(&stream_needs, stream),
            Step::Wait { stream, event } => stream_needs[stream].extend(event_needs[event].clone()),
            Step::Synchronize { .. } => {}
        }
    }
    result
}

struct Program {
    context: Arc<Context>,
    streams: Vec<Handle>,
    events: Vec<Handle>,
    clock: Arc<AtomicUsize>,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Program {
    fn new() -> Self {
        start().unwrap();
        let context = Context::create(&driver().unwrap().devices[0], 0).unwrap();
        crate::driver::current::push(context.handle).unwrap();
        let created = (1..STREAMS).map(|index| stream::create(u32::from(!BLOCKING.contains(&index)), 0).unwrap());
        let streams = std::iter::once(stream::LEGACY).chain(created).collect();
        let events = (0..EVENTS).map(|_| event::create(0).unwrap()).collect();
        Self { context, streams, events, clock: Arc::default(), spans: Arc::default() }
    }

    fn run(&self, step: Step) {
        match step {
            Step::Work { stream, brief } => self.work(self.streams[stream], brief),
            Step::Record { stream, event } => event::record(self.events[event], self.streams[stream], false).unwrap(),
            Step::Wait { stream, event } => event::wait(self.streams[stream], self.events[event], false).unwrap(),
            Step::Synchronize { stream } => stream::synchronize(self.streams[stream]).unwrap(),
        }
    }

    fn work(&self, stream: Handle, brief: bool) {
        let (context, stream) = stream::find(stream).unwrap();
        let (clock, spans) = (Arc::clone(&self.clock), Arc::clone(&self.spans));
        let index = spans.lock().unwrap().len();
        spans.lock().unwrap().push(Span::default());
        let work = Box::new(move || {
            let began = clock.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::yield_now();
            let ended = clock.fetch_add(1, Ordering::SeqCst) + 1;
            spans.lock().unwrap()[index] = Span { began, ended };
            Ok(())
        });
        context.enqueue(&stream, Job { after: Vec::new(), brief, work }).unwrap();
    }

    fn end(self) -> Vec<Span> {
        self.context.synchronize().unwrap();
        crate::driver::current::forget(self.context.handle);
        crate::driver::teardown::destroy(&self.context).unwrap();
        let spans = self.spans.lock().unwrap();
        spans.clone()
    }
}

proptest! {
    #[test]
    fn whatever_has_to_come_first_ends_first(steps in proptest::collection::vec(step(), 1..60)) {
        let program = Program::new();
        steps.iter().for_each(|step| program.run(*step));
        let spans = program.end();
        for (index, predecessors) in predecessors(&steps).iter().enumerate() {
            for predecessor in predecessors {
                let (first, second) = (spans[*predecessor], spans[index]);
                assert!(0 < first.ended && first.ended < second.began, "{predecessor} {first:?}, {index} {second:?}");
            }
        }
    }
}
