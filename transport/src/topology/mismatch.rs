//! Turns the broker's refusal of a declaration into words that help.

use lapin::Error;

use crate::{DeclareError, link::reason_of};

/// The broker says: `PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'classic' but
/// current is 'quorum'`, sometimes with "the value … of type …" around the values, or `received none`.
pub(super) fn explain(what: String, error: &Error) -> DeclareError {
    let reason = reason_of(error);
    match parse(&reason) {
        Some((argument, wanted, found)) => DeclareError::Mismatch { what, argument, wanted, found },
        None => DeclareError::Refused { what, reason },
    }
}

fn parse(reason: &str) -> Option<(String, String, String)> {
    let (_, rest) = reason.split_once("inequivalent arg '")?;
    let (argument, rest) = rest.split_once('\'')?;
    let (_, rest) = rest.split_once("received ")?;
    let (wanted, found) = rest.split_once(" but current is ")?;
    Some((argument.to_owned(), plain(wanted), plain(found)))
}

/// The value alone: `the value '3' of type 'long'` is `3`.
fn plain(value: &str) -> String {
    let value = value.trim();
    value.split('\'').nth(1).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_argument_and_both_values() {
        let parsed = |reason| parse(reason).map(|(a, w, f)| [a, w, f].join("|"));
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'")
                .as_deref(),
            Some("x-queue-type|classic|quorum")
        );
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is the value '6' of type 'signedint'")
                .as_deref(),
            Some("x-message-ttl|5|6")
        );
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received none but current is the value '600000' of type 'unsignedint'")
                .as_deref(),
            Some("x-expires|none|600000")
        );
        assert_eq!(parsed("ACCESS_REFUSED - access to queue 'q' refused"), None);
    }
}
