//! Points in time: how the command reads them, and how it prints them. It reads every form that it prints.

use chrono::{DateTime, Local, MappedLocalTime, NaiveDate, NaiveDateTime, TimeDelta, TimeZone as _, Utc};

const EXPECTED: &str = "expected how long ago (2h, 3days), a date (2026-11-20) or a time (2026-11-20T08:30, 2026-11-20 08:30:00 UTC); a time \
                        without a zone is local";
/// Times with hours and minutes, after the space in place of the `T`.
const CLOCKS: [&str; 2] = ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f"];
/// Clocks of machines differ by less.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::minutes(1);
/// The longest gap when clocks go forward.
const GAP_MAX: TimeDelta = TimeDelta::hours(3);

/// `2026-11-20 08:30:00.123 UTC`
pub fn exact(at: DateTime<Utc>) -> String {
    at.format("%F %T%.3f UTC").to_string()
}

/// `2026-11-20 08:30:00 UTC`
pub fn seconds(at: DateTime<Utc>) -> String {
    at.format("%F %T UTC").to_string()
}

/// `2026-11-20 08:30 UTC`
pub fn minutes(at: DateTime<Utc>) -> String {
    at.format("%F %R UTC").to_string()
}

/// Reads a point in time.
pub fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    read(text, Utc::now(), |time| Local.from_local_datetime(&time).map(|time| time.to_utc()))
}

/// Reads the beginning of a window that ends now.
pub fn since(text: &str) -> Result<DateTime<Utc>, String> {
    not_after(parse(text)?, Utc::now())
}

fn not_after(at: DateTime<Utc>, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    if at <= now + CLOCKS_DIFFER { Ok(at) } else { Err(format!("{} is in the future", seconds(at))) }
}

/// `local` converts a time of the local zone.
fn read(
    text: &str,
    now: DateTime<Utc>,
    local: impl Fn(NaiveDateTime) -> MappedLocalTime<DateTime<Utc>>,
) -> Result<DateTime<Utc>, String> {
    let text = text.trim();
    if let Ok(ago) = humantime::parse_duration(text.strip_suffix("ago").unwrap_or(text).trim_end()) {
        let ago = TimeDelta::from_std(ago).ok().and_then(|ago| now.checked_sub_signed(ago));
        return ago.ok_or_else(|| "that is too long ago".to_owned());
    }
    // The `T` between date and time is the eleventh character; another one may be in the zone.
    let spaced = match text.split_at_checked(10) {
        Some((date, rest)) if rest.starts_with(['T', 't']) => format!("{date} {}", &rest[1..]),
        _ => text.to_owned(),
    };
    if let Some(time) = zoned(&spaced) {
        return Ok(time);
    }
    if let Some(midnight) = date(text) {
        return first_of_day(midnight, local).ok_or_else(|| gap(midnight));
    }
    let time = clock(&spaced).ok_or(EXPECTED)?;
    // Of a time that happens twice, the first one.
    local(time).earliest().ok_or_else(|| gap(time))
}

fn zoned(text: &str) -> Option<DateTime<Utc>> {
    let utc = ["UTC", "utc", "Z", "z"].into_iter().find_map(|zone| text.strip_suffix(zone));
    if let Some(time) = utc.and_then(|time| clock(time.trim_end())) {
        return Some(time.and_utc());
    }
    let offsets = CLOCKS.iter().flat_map(|clock| [format!("{clock}%z"), format!("{clock} %z")]);
    offsets.into_iter().find_map(|form| DateTime::parse_from_str(text, &form).ok()).map(|time| time.to_utc())
}

fn clock(text: &str) -> Option<NaiveDateTime> {
    CLOCKS.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

fn date(text: &str) -> Option<NaiveDateTime> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0)
}

/// In some zones clocks go forward at midnight, so that the day begins later.
fn first_of_day(
    midnight: NaiveDateTime,
    local: impl Fn(NaiveDateTime) -> MappedLocalTime<DateTime<Utc>>,
) -> Option<DateTime<Utc>> {
    let quarters = (0..=GAP_MAX.num_minutes() / 15).map(|quarter| TimeDelta::minutes(15 * quarter));
    quarters.filter_map(|later| midnight.checked_add_signed(later)).find_map(|time| local(time).earliest())
}

fn gap(time: NaiveDateTime) -> String {
    let utc = time.and_utc();
    format!(
        "the local time {} does not exist, because clocks go forward then; give a time with its zone, such as {}",
        time.format("%F %R"),
        minutes(utc)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// A zone one hour ahead of UTC, and two from 2026-03-29 02:00 (clocks go to 03:00) to 2026-10-25 03:00 (clocks go to 02:00).
    fn central(time: NaiveDateTime) -> MappedLocalTime<DateTime<Utc>> {
        let at = |text: &str| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        let ahead = |hours| time.and_utc() - TimeDelta::hours(hours);
        match time {
            t if t < at("2026-03-29 02:00") || t >= at("2026-10-25 03:00") => MappedLocalTime::Single(ahead(1)),
            t if t < at("2026-03-29 03:00") => MappedLocalTime::None,
            t if t < at("2026-10-25 02:00") => MappedLocalTime::Single(ahead(2)),
            _ => MappedLocalTime::Ambiguous(ahead(2), ahead(1)),
        }
    }

    fn of(text: &str) -> Result<DateTime<Utc>, String> {
        read(text, utc("2026-11-28T12:00:00Z"), central)
    }

    #[test]
    fn every_form_that_is_printed_is_read() {
        let at = utc("2026-11-20T08:30:15.250Z");
        let whole = utc("2026-11-20T08:30:15Z");
        assert_eq!(of(&exact(at)), Ok(at));
        assert_eq!(of(&seconds(at)), Ok(whole));
        assert_eq!(of(&minutes(at)), Ok(utc("2026-11-20T08:30:00Z")));
        // In CSV and JSON.
        assert_eq!(of(&at.to_rfc3339()), Ok(at));
        assert_eq!(of(serde_json::to_string(&at).unwrap().trim_matches('"')), Ok(at));
        for (printed, ago) in [(45, "45s"), (720, "12m"), (3 * 3600, "3h"), (40 * 86_400, "40d")] {
            assert_eq!(gpufleet_ledger::age(TimeDelta::seconds(printed)), ago);
            assert_eq!(of(ago), Ok(utc("2026-11-28T12:00:00Z") - TimeDelta::seconds(printed)));
        }
    }

    #[test]
    fn a_time_has_a_zone_or_is_local() {
        let at = utc("2026-11-28T14:00:00Z");
        for local in ["2026-11-28T15:00:00", "2026-11-28 15:00", "2026-11-28t15:00:00.000", " 2026-11-28T15:00 "] {
            assert_eq!(of(local), Ok(at), "{local:?}");
        }
        for zoned in
            ["2026-11-28T14:00:00Z", "2026-11-28 14:00UTC", "2026-11-28T15:00+01:00", "2026-11-28 15:00:00 +0100"]
        {
            assert_eq!(of(zoned), Ok(at), "{zoned:?}");
        }
        assert_eq!(of("2026-11-28"), Ok(utc("2026-11-27T23:00:00Z")));
        assert_eq!(of("2h ago"), Ok(utc("2026-11-28T10:00:00Z")));
        for wrong in ["yesterday", "2026-11-31", "2026-11-28T25:00", "15:00", "2026-11-28 UTC", "ago", ""] {
            assert_eq!(of(wrong), Err(EXPECTED.to_owned()), "{wrong:?}");
        }
        assert!(of("99999999999years").is_err());
    }

    #[test]
    fn a_time_that_clocks_skip_is_refused_with_the_reason_and_one_that_they_repeat_is_the_first() {
        assert_eq!(
            of("2026-03-29T02:30").unwrap_err(),
            "the local time 2026-03-29 02:30 does not exist, because clocks go forward then; give a time with its zone, such as \
             2026-03-29 02:30 UTC"
        );
        assert_eq!(of("2026-10-25T02:30"), Ok(utc("2026-10-25T00:30:00Z")));
    }

    #[test]
    fn a_day_whose_midnight_is_skipped_begins_later() {
        let forward_at_midnight = |time: NaiveDateTime| match time.and_utc() {
            at if at >= utc("2026-11-01T00:00:00Z") && at < utc("2026-11-01T01:00:00Z") => MappedLocalTime::None,
            at => MappedLocalTime::Single(at),
        };
        let read = read("2026-11-01", Utc::now(), forward_at_midnight);
        assert_eq!(read, Ok(utc("2026-11-01T01:00:00Z")));
    }

    #[test]
    fn a_window_does_not_begin_in_the_future() {
        let now = utc("2026-11-28T12:00:00Z");
        assert_eq!(not_after(now, now), Ok(now));
        assert!(not_after(now + TimeDelta::seconds(30), now).is_ok(), "another machine's clock may be ahead");
        assert_eq!(
            not_after(utc("2026-12-01T00:00:00Z"), now).unwrap_err(),
            "2026-12-01 00:00:00 UTC is in the future"
        );
    }
}
