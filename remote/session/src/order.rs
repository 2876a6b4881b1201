//! The order of calls from several threads. A program does not wait for posts, so each call starts only when all posts
//! before it have been made. Other calls need no order: a program that has no answer yet can't rely on it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of posts made so far, on which other threads wait.
#[derive(Debug, Default)]
pub(crate) struct Order {
    posts: Mutex<Posts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Posts {
    made: u64,
    /// A post will never be made.
    is_closed: bool,
}

impl Order {
    /// Waits until this many posts have been made; reports whether they were.
    pub(crate) fn wait_for(&self, count: u64) -> bool {
        let waits = |posts: &mut Posts| posts.made < count && !posts.is_closed;
        let posts = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        posts.made >= count
    }

    /// Says that the next post has been made.
    pub(crate) fn made(&self) {
        self.lock().made += 1;
        self.changed.notify_all();
    }

    /// Says that no further post will be made.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::Order;

    #[test]
    fn a_call_waits_for_the_posts_before_it() {
        let order = Arc::new(Order::default());
        assert!(order.wait_for(0));
        let (sender, receiver) = mpsc::channel();
        let waiting = std::thread::spawn({
            let order = Arc::clone(&order);
            move || {
                sender.send(order.wait_for(2)).unwrap();
            }
        });
        order.made();
        assert!(receiver.try_recv().is_err());
        order.made();
        assert!(receiver.recv().unwrap());
        waiting.join().unwrap();
        order.close();
        assert!(!order.wait_for(3));
    }
}
