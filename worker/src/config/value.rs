//! Parses values of options. clap prints the error as the whole message, so each error states the expected form.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, str::FromStr, time::Duration};

/// Returns a parser for whole numbers in a range.
pub(super) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + fmt::Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a duration with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a number with a unit, such as 30s, 10m or 2h".to_owned())
}

/// Parses the address of a server.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, as in 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_their_form_are_refused_with_the_form() {
        assert_eq!(whole(1_u32..=256)("256"), Ok(256));
        for text in ["0", "257", "-1", "many"] {
            assert_eq!(whole(1_u32..=256)(text).unwrap_err(), "expected a whole number from 1 to 256", "{text}");
        }
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("30").unwrap_err().contains("30s"));
        assert_eq!(address("127.0.0.1:0").unwrap().port(), 0);
        assert!(address("9464").unwrap_err().contains("127.0.0.1:9464"));
    }
}
