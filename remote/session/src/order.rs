//! The order of calls from several threads. A program does not wait for posts, so each call starts only when all posts
//! before it have been made. Other calls need no order: a program that has no answer yet can't rely on it.

use std::sync::{Condvar, Mutex, PoisonError};

/// The number of posts made so far, on which other threads wait.
#[derive(Debug, Default)]
pub(crate) struct Order {
    made: Mutex<u64>,
    changed: Condvar,
}

impl Order {
    /// Waits until this many posts have been made.
    pub(crate) fn wait_for(&self, posts: u64) {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(made, |made| *made < posts).unwrap_or_else(PoisonError::into_inner));
    }

    /// Says that the next post has been made.
    pub(crate) fn made(&self) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::Order;

    #[test]
    fn a_call_waits_for_the_posts_before_it() {
        let order = Arc::new(Order::default());
        order.wait_for(0);
        let (sender, receiver) = mpsc::channel();
        let waiting = std::thread::spawn({
            let order = Arc::clone(&order);
            move || {
                order.wait_for(2);
                sender.send(()).unwrap();
            }
        });
        order.made();
        assert!(receiver.try_recv().is_err());
        order.made();
        receiver.recv().unwrap();
        waiting.join().unwrap();
    }
}
