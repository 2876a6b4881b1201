//! Time windows. Every query of jobs and attempts has one, so that it opens few of the monthly partitions.

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveTime, Utc};

/// A range of `id_at`, including `from` and excluding `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: DateTime<Utc>,
    pub(super) to: DateTime<Utc>,
}

/// The windows to search for a list of jobs, newest first. The first one begins with a month, and each further one is four times as long,
/// so that a search without matches ends after a few queries.
#[derive(Debug)]
pub(super) struct Windows {
    from: DateTime<Utc>,
    /// The end of the next window.
    to: DateTime<Utc>,
    /// The month in which the first window begins. Only jobs of producers whose clocks are ahead have later times.
    first: NaiveDate,
    /// The length of the next window in months; 0 for the first one, which covers the rest of its month.
    months: u32,
}

/// The growth factor: each window is this many times as long as the previous one.
const GROWTH: u32 = 4;
/// The maximum length of a window in months. A longer one covers everything that is left. The history is rarely kept for longer than this.
const MONTHS_MAX: u32 = 16;

impl Window {
    /// Covers every time that an id or an event can have.
    pub(super) const ALL: Self = Self { from: beginning(1), to: beginning(10_000) };
}

/// Returns the beginning of a year. Postgres and chrono can represent the years that are used here, and no job has an earlier or a later
/// time.
const fn beginning(year: i32) -> DateTime<Utc> {
    match NaiveDate::from_ymd_opt(year, 1, 1) {
        Some(day) => day.and_time(NaiveTime::MIN).and_utc(),
        None => panic!("chrono knows the year"),
    }
}

impl Windows {
    /// Returns the windows from `since` until `until`. The search begins in the month of `newest`, because few jobs are newer.
    pub(super) fn new(since: Option<DateTime<Utc>>, until: Option<DateTime<Utc>>, newest: DateTime<Utc>) -> Self {
        let to = until.unwrap_or(Window::ALL.to).min(Window::ALL.to);
        let newest = newest.min(to).date_naive();
        Self {
            from: since.unwrap_or(Window::ALL.from).max(Window::ALL.from),
            to,
            first: newest.with_day(1).expect("every month has a first day"),
            months: 0,
        }
    }
}

impl Iterator for Windows {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        if self.to <= self.from {
            return None;
        }
        let begins = Some(self.first).filter(|_| self.months <= MONTHS_MAX);
        let begins = begins.and_then(|first| first.checked_sub_months(Months::new(self.months)));
        let from = begins.map_or(self.from, |day| day.and_time(NaiveTime::MIN).and_utc()).clamp(self.from, self.to);
        let window = Window { from, to: self.to };
        self.to = from;
        self.first = begins.unwrap_or(self.first);
        self.months = (self.months * GROWTH).max(1);
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse::<NaiveDate>().unwrap().and_time(NaiveTime::MIN).and_utc()
    }

    fn windows(since: Option<&str>, until: Option<&str>, newest: &str) -> Vec<(DateTime<Utc>, DateTime<Utc>)> {
        Windows::new(since.map(at), until.map(at), at(newest)).map(|window| (window.from, window.to)).collect()
    }

    #[test]
    fn an_open_list_reads_the_newest_month_first_and_then_four_times_as_many() {
        let all = windows(None, None, "2026-11-24");
        let beginnings = ["2026-11-01", "2026-10-01", "2026-06-01", "2025-02-01"].map(at);
        assert_eq!(all.iter().map(|window| window.0).take(4).collect::<Vec<_>>(), beginnings);
        assert_eq!(all.len(), 5);
        assert_eq!((all[0].1, all[4].0), (Window::ALL.to, Window::ALL.from));
        assert!(all.is_sorted_by(|one, next| one.0 == next.1), "they leave out nothing: {all:?}");
    }

    #[test]
    fn windows_end_at_the_given_times() {
        assert_eq!(windows(Some("2026-11-05"), None, "2026-11-24"), [(at("2026-11-05"), Window::ALL.to)]);
        assert_eq!(
            windows(Some("2026-08-15"), Some("2026-09-03"), "2026-11-24"),
            [(at("2026-09-01"), at("2026-09-03")), (at("2026-08-15"), at("2026-09-01"))]
        );
        assert_eq!(windows(Some("2026-09-03"), Some("2026-09-03"), "2026-11-24"), []);
    }
}
