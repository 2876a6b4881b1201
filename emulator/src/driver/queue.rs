//! Queues: the in-order execution behind a stream.
//!
//! Each queue counts the tasks that were submitted and that have ended. A [`Point`] is a position in that count, and
//! anything can wait for it: a host thread, an event, a task of another queue. A task names the points that it waits
//! for before it starts. They are always earlier in the program's order, so there are no deadlocks.
//!
//! The first task that needs a worker thread starts it. A short task in an idle queue runs on the caller's thread
//! instead, because waking a thread costs more than a small copy; the order is unchanged, because no other task of the
//! queue is running. To save wakeups, a thread that waits for a point runs the queue's ready tasks too.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::status::{Answer, Status};

/// Maximum number of waiting tasks in a queue; at this number callers wait, as on a device.
const PENDING_MAX: usize = 1024;

/// The code of a task. It reports its own faults and must not unwind.
pub type Work = Box<dyn FnOnce() + Send>;

/// A task: work, and the points that it waits for.
pub struct Task {
    pub after: Vec<Point>,
    pub work: Work,
    /// True if it is short enough to run on the caller's thread.
    pub brief: bool,
}

/// A position in a queue's order, which is reached when that many tasks have ended.
#[derive(Clone)]
pub struct Point {
    queue: Arc<Queue>,
    sequence: u64,
}

/// Tasks that run one after the other.
pub struct Queue {
    state: Mutex<State>,
    /// Wakes the worker, if there is a task that no other thread runs.
    work: Condvar,
    /// Wakes threads that wait for a point or for room.
    progress: Condvar,
    completed: AtomicU64,
}

#[derive(Default)]
struct State {
    enqueued: u64,
    pending: VecDeque<Task>,
    running: bool,
    worker: Worker,
    /// Sequence numbers of the points for which threads sleep; several threads may sleep for one.
    awaited: Vec<u64>,
    /// Number of threads that sleep until there is room.
    awaiting_room: usize,
    closed: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Worker {
    #[default]
    None,
    Awake,
    Asleep,
}

/// A task that may run immediately; the caller has to [run](Turn::run) it, outside any lock.
#[must_use = "the queue stands still until the turn is run"]
pub struct Turn {
    queue: Arc<Queue>,
    work: Work,
}

impl Queue {
    pub fn new() -> Arc<Self> {
        let (state, completed) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { state, work: Condvar::new(), progress: Condvar::new(), completed })
    }

    /// Waits until there is room for one more task. Another thread may take the room, so the bound is not exact.
    pub fn wait_for_room(&self) {
        let mut state = self.lock();
        while state.pending.len() >= PENDING_MAX {
            state.awaiting_room += 1;
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.awaiting_room -= 1;
        }
    }

    /// Appends a task. Returns the point where it has ended, and the task's turn if the caller has to run it.
    pub fn push(self: &Arc<Self>, mut task: Task) -> Answer<(Point, Option<Turn>)> {
        task.after.retain(|point| !point.is_reached());
        let mut state = self.lock();
        let idle = state.pending.is_empty() && !state.running;
        if !(task.brief && idle && task.after.is_empty()) {
            self.ensure_worker(&mut state)?;
            state.pending.push_back(task);
            state.enqueued += 1;
            self.call_worker(&mut state);
            return Ok((self.point(state.enqueued), None));
        }
        state.running = true;
        state.enqueued += 1;
        Ok((self.point(state.enqueued), Some(Turn { queue: Arc::clone(self), work: task.work })))
    }

    /// Returns the point where all submitted tasks have ended.
    pub fn last(self: &Arc<Self>) -> Point {
        let sequence = self.lock().enqueued;
        self.point(sequence)
    }

    /// Accepts no more tasks; the worker ends after the last one.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.call_worker(&mut state);
    }

    fn point(self: &Arc<Self>, sequence: u64) -> Point {
        Point { queue: Arc::clone(self), sequence }
    }

    fn ensure_worker(self: &Arc<Self>, state: &mut State) -> Answer {
        if state.worker != Worker::None {
            return Ok(());
        }
        let queue = Arc::clone(self);
        let worker = thread::Builder::new().name("emulated-stream".to_owned()).spawn(move || queue.serve());
        worker.map_err(|_| Status::OperatingSystem)?;
        state.worker = Worker::Awake;
        Ok(())
    }

    /// Wakes the worker if it has something to do.
    fn call_worker(&self, state: &mut State) {
        if state.worker == Worker::Asleep && !state.is_worker_idle() {
            state.worker = Worker::Awake;
            self.work.notify_one();
        }
    }

    fn serve(&self) {
        while let Some(task) = self.next() {
            task.after.iter().for_each(Point::wait);
            (task.work)();
            drop(self.ended());
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        while state.is_worker_idle() {
            state.worker = Worker::Asleep;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.worker = Worker::Awake;
        state.take_next()
    }

    /// Records that the running task has ended. The caller then takes the next one or [calls the
    /// worker](Self::call_worker).
    fn ended(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.running = false;
        let completed = self.completed.fetch_add(1, Ordering::Release) + 1;
        if state.awaiting_room > 0 || state.awaited.iter().any(|sequence| *sequence <= completed) {
            self.progress.notify_all();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    pub fn run(self) {
        (self.work)();
        let mut state = self.queue.ended();
        self.queue.call_worker(&mut state);
    }
}

impl Point {
    pub fn is_reached(&self) -> bool {
        self.queue.completed.load(Ordering::Acquire) >= self.sequence
    }

    /// Reports whether this is a point of that queue.
    pub fn is_of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Waits until the point is reached; meanwhile the waiting thread runs ready tasks of the queue.
    pub fn wait(&self) {
        let queue = &*self.queue;
        let mut state = queue.lock();
        while !self.is_reached() {
            if let Some(task) = state.take_ready() {
                drop(state);
                (task.work)();
                state = queue.ended();
            } else {
                // A task that waits for another queue is left to the worker.
                queue.call_worker(&mut state);
                state.awaited.push(self.sequence);
                state = queue.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.no_longer_awaits(self.sequence);
            }
        }
        queue.call_worker(&mut state);
    }
}

impl State {
    /// Reports whether the worker has nothing to do.
    fn is_worker_idle(&self) -> bool {
        self.running || (self.pending.is_empty() && !self.closed)
    }

    fn take_next(&mut self) -> Option<Task> {
        let task = self.pending.pop_front()?;
        self.running = true;
        Some(task)
    }

    /// Takes the next task if it can start now.
    fn take_ready(&mut self) -> Option<Task> {
        let ready = self.pending.front().is_some_and(|task| task.after.iter().all(Point::is_reached));
        if self.running || !ready { None } else { self.take_next() }
    }

    fn no_longer_awaits(&mut self, sequence: u64) {
        let index = self.awaited.iter().position(|awaited| *awaited == sequence).expect("its thread put it there");
        self.awaited.swap_remove(index);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completed = self.completed.load(Ordering::Relaxed);
        formatter.debug_struct("Queue").field("completed", &completed).finish_non_exhaustive()
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Point").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Task").field("after", &self.after).field("brief", &self.brief).finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Turn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::{PENDING_MAX, Point, Queue, Task, Work};

    fn push(queue: &Arc<Queue>, after: Vec<Point>, brief: bool, work: Work) -> Point {
        let (point, turn) = queue.push(Task { after, work, brief }).unwrap();
        if let Some(turn) = turn {
            turn.run();
        }
        point
    }

    #[test]
    fn tasks_run_in_the_order_of_their_submission() {
        let (queue, seen) = (Queue::new(), Arc::new(Mutex::new(Vec::new())));
        for number in 0..200 {
            let seen = Arc::clone(&seen);
            // Every third task may run on the caller's thread.
            push(&queue, Vec::new(), number % 3 == 0, Box::new(move || seen.lock().unwrap().push(number)));
        }
        queue.last().wait();
        assert_eq!(*seen.lock().unwrap(), (0..200).collect::<Vec<_>>());
        queue.close();
    }

    #[test]
    fn a_task_waits_for_a_point_on_another_queue() {
        let (first, second) = (Queue::new(), Queue::new());
        let (release, held) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let told_first = tell.clone();
        let point = push(
            &first,
            Vec::new(),
            false,
            Box::new(move || {
                held.recv().unwrap();
                told_first.send("first").unwrap();
            }),
        );
        let end = push(&second, vec![point.clone()], true, Box::new(move || tell.send("second").unwrap()));
        assert!(!point.is_reached() && !end.is_reached());
        release.send(()).unwrap();
        end.wait();
        assert_eq!(told.iter().collect::<Vec<_>>(), ["first", "second"]);
        first.close();
        second.close();
    }

    #[test]
    fn a_brief_task_on_an_idle_queue_runs_on_the_callers_thread() {
        let queue = Queue::new();
        let (tell, told) = mpsc::channel();
        let point = push(&queue, Vec::new(), true, Box::new(move || tell.send(std::thread::current().id()).unwrap()));
        assert!(point.is_reached());
        assert_eq!(told.recv().unwrap(), std::thread::current().id());
    }

    #[test]
    fn a_sleeping_worker_wakes_for_the_tasks_that_a_waiting_thread_does_not_run() {
        let queue = Queue::new();
        for _ in 0..2_000 {
            let (release, held) = mpsc::channel::<()>();
            let (tell, told) = mpsc::channel();
            let first = push(&queue, Vec::new(), false, Box::new(move || held.recv().unwrap()));
            push(&queue, Vec::new(), false, Box::new(move || tell.send(()).unwrap()));
            let waiting = std::thread::spawn(move || first.wait());
            release.send(()).unwrap();
            waiting.join().unwrap();
            // The test waits for the task itself and not for its point, so that only the worker can run the task.
            told.recv().unwrap();
        }
        queue.close();
    }

    #[test]
    fn reaching_a_point_wakes_all_threads_that_wait_for_it() {
        let queue = Queue::new();
        for round in 0..500 {
            let points = (0..4).map(|_| push(&queue, Vec::new(), false, Box::new(|| ()))).collect::<Vec<_>>();
            let waiting = points.into_iter().cycle().take(8).map(|point| std::thread::spawn(move || point.wait()));
            let waiting = waiting.collect::<Vec<_>>();
            waiting.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(queue.last().is_reached(), "round {round}");
        }
        queue.close();
    }

    #[test]
    fn closing_a_queue_ends_its_worker() {
        for is_idle in [true, false] {
            let queue = Queue::new();
            let (tell, told) = mpsc::channel();
            push(&queue, Vec::new(), false, Box::new(move || tell.send(()).unwrap()));
            if is_idle {
                told.recv().unwrap();
            }
            queue.close();
            let ended = Arc::downgrade(&queue);
            drop(queue);
            while ended.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_caller_waits_while_the_queue_is_full() {
        let queue = Queue::new();
        let (release, held) = mpsc::channel::<()>();
        push(&queue, Vec::new(), false, Box::new(move || held.recv().unwrap()));
        for _ in 0..PENDING_MAX + 1 {
            push(&queue, Vec::new(), false, Box::new(|| ()));
        }
        let waiting = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.wait_for_room()
        });
        release.send(()).unwrap();
        waiting.join().unwrap();
        queue.last().wait();
        queue.close();
    }
}
