//! What has happened to jobs since Python looked last. One Python thread takes it all at once.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::ended::Ended;

/// The number by which Python knows a job.
pub type Token = u64;

#[derive(Debug, Default)]
pub struct Completions {
    news: Mutex<News>,
    arrived: Condvar,
}

/// What Python takes.
#[derive(Debug, Default)]
pub struct News {
    /// Jobs that the broker has on disk.
    pub confirmed: Vec<Token>,
    pub ended: Vec<(Token, Ended)>,
    is_closed: bool,
}

impl Completions {
    pub fn confirmed(&self, jobs: impl IntoIterator<Item = Token>) {
        self.locked().confirmed.extend(jobs);
        self.arrived.notify_one();
    }

    pub fn ended(&self, job: Token, ended: Ended) {
        self.locked().ended.push((job, ended));
        self.arrived.notify_one();
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.locked().is_closed = true;
        self.arrived.notify_all();
    }

    /// Waits for news and takes all of it. `None` once everything was taken and nothing more will come.
    pub fn take(&self) -> Option<News> {
        let nothing = |news: &mut News| news.confirmed.is_empty() && news.ended.is_empty();
        let waited = self.arrived.wait_while(self.locked(), |news| nothing(news) && !news.is_closed);
        let mut news = waited.expect("nothing panics while it holds this lock");
        if nothing(&mut news) {
            return None;
        }
        let is_closed = news.is_closed;
        Some(std::mem::replace(&mut *news, News { is_closed, ..News::default() }))
    }

    fn locked(&self) -> MutexGuard<'_, News> {
        self.news.lock().expect("nothing panics while it holds this lock")
    }
}
