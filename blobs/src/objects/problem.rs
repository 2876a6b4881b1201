//! Turns the errors of the S3 client into short ones. Its own contain URLs and XML.

use std::{error::Error as _, io};

use object_store::{
    Error,
    client::{HttpError, HttpErrorKind},
};

pub(super) const NO_CREDENTIALS: &str =
    "there are no credentials for it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
/// The addresses at which machines and containers of AWS find their credentials. The client asks there if it has no others.
const METADATA_SERVICE: &str = "://169.254.";

/// The parts of an error's text that describe the server's answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'a> {
    status: u16,
    /// S3's name for the problem, such as `SlowDown`.
    code: Option<&'a str>,
}

/// An error in the words of [`io_error`].
pub(super) struct Problem(pub(super) io::Error);

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self(io_error(&error))
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

/// The error without the parts that only a developer of the client understands.
pub(super) fn io_error(error: &Error) -> io::Error {
    let text = error.to_string();
    if let Some(answer) = Answer::of(&text) {
        return answer.into_error();
    }
    if text.contains(METADATA_SERVICE) {
        return io::Error::new(io::ErrorKind::PermissionDenied, NO_CREDENTIALS);
    }
    if let Some(http) = http_error(error) {
        return unreachable_server(http);
    }
    let (kind, problem) = match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            (io::ErrorKind::PermissionDenied, "the server refused the request")
        }
        Error::NotFound { .. } => (io::ErrorKind::NotFound, "the server has no such object"),
        _ if text.contains("LOCATION") => {
            (io::ErrorKind::InvalidInput, "the server redirects the request; check the region and the endpoint")
        }
        _ => (io::ErrorKind::InvalidData, "the answer of the server is not that of S3; check the endpoint"),
    };
    io::Error::new(kind, problem)
}

impl<'a> Answer<'a> {
    /// The client names the status only in its text: `status code: 403 Forbidden: <?xml …<Code>AccessDenied</Code>…`.
    fn of(text: &'a str) -> Option<Self> {
        let code = || text.split_once("<Code>")?.1.split_once("</Code>").map(|(code, _)| code);
        let code = code().filter(|code| code.len() < 60 && code.chars().all(|c| c.is_ascii_alphanumeric()));
        let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        match (status, code) {
            (None, None) => None,
            // Some errors come with the status of success.
            (status, code) => Some(Self { status: status.unwrap_or(200), code }),
        }
    }

    fn into_error(self) -> io::Error {
        let Self { status, code } = self;
        let told = code.map_or_else(|| status.to_string(), |code| format!("{status} {code}"));
        let (kind, problem) = match (status, code) {
            (_, Some("NoSuchBucket")) => (io::ErrorKind::NotFound, "the bucket does not exist".to_owned()),
            (_, Some("RequestTimeTooSkewed")) => (
                io::ErrorKind::PermissionDenied,
                format!("the server refused the request ({told}); set the clock of this machine"),
            ),
            (401 | 403, _) => (
                io::ErrorKind::PermissionDenied,
                format!(
                    "the server refused the request ({told}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region, and what the \
                     key may do in the bucket"
                ),
            ),
            (404, _) => (io::ErrorKind::NotFound, format!("the server has no such object ({told})")),
            (301 | 307 | 308, _) | (_, Some("AuthorizationHeaderMalformed" | "PermanentRedirect")) => (
                io::ErrorKind::InvalidInput,
                format!("the bucket is in another region ({told}); give it as region in the location of the store"),
            ),
            (429 | 500..=599, _) | (_, Some("SlowDown" | "InternalError")) => {
                (io::ErrorKind::ResourceBusy, format!("the server is overloaded or has failed ({told})"))
            }
            _ => (io::ErrorKind::Other, format!("the server answered {told}")),
        };
        io::Error::new(kind, problem)
    }
}

/// Whether the server, or the client's configuration, does not support conditional writes.
pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. })
        || Answer::of(&error.to_string()).is_some_and(|answer| answer.status == 501)
}

fn http_error(error: &Error) -> Option<&HttpError> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref() {
            return Some(http);
        }
        cause = error.source();
    }
    None
}

fn unreachable_server(error: &HttpError) -> io::Error {
    let (kind, what) = match error.kind() {
        HttpErrorKind::Connect => (io::ErrorKind::ConnectionRefused, "connect to the server"),
        HttpErrorKind::Timeout => (io::ErrorKind::TimedOut, "wait for the server"),
        _ => (io::ErrorKind::ConnectionAborted, "exchange data with the server"),
    };
    // The errors above the first cause repeat the URL.
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    // An I/O error does not count the error that it holds among its sources.
    while let Some(held) = cause.downcast_ref().and_then(io::Error::get_ref) {
        cause = held;
    }
    let advice = match cause.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "; check that this machine trusts the server's certificate (system store or SSL_CERT_FILE)"
        }
        _ => "",
    };
    io::Error::new(kind, format!("{what}: {cause}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> io::Error {
        io_error(&Error::Generic { store: "S3", source: text.into() })
    }

    #[test]
    fn an_answer_is_told_by_its_status_and_code_alone() {
        for (text, kind, problem) in [
            (
                "403 Forbidden: <?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>hunter2",
                io::ErrorKind::PermissionDenied,
                "403 SignatureDoesNotMatch",
            ),
            ("403 Forbidden: ", io::ErrorKind::PermissionDenied, "AWS_SECRET_ACCESS_KEY"),
            ("403 Forbidden: <Code>RequestTimeTooSkewed</Code>", io::ErrorKind::PermissionDenied, "clock"),
            ("404 Not Found: <Code>NoSuchBucket</Code>hunter2", io::ErrorKind::NotFound, "the bucket does not exist"),
            ("503 Service Unavailable: <Code>SlowDown</Code>", io::ErrorKind::ResourceBusy, "503 SlowDown"),
            ("301 Moved Permanently: ", io::ErrorKind::InvalidInput, "another region"),
            ("400 Bad Request: <Code><hunter2/></Code>", io::ErrorKind::Other, "the server answered 400"),
        ] {
            let error = told(&format!("Error performing GET http://h/b?X-Amz-Signature=hunter2 - status code: {text}"));
            assert_eq!(error.kind(), kind, "{error}");
            let shown = error.to_string();
            assert!(shown.contains(problem) && !shown.contains("hunter2") && !shown.contains('<'), "{shown}");
        }
        let nowhere = told("Error performing PUT http://169.254.169.254/latest/api/token in 3s, after 3 retries");
        assert_eq!((nowhere.kind(), nowhere.to_string()), (io::ErrorKind::PermissionDenied, NO_CREDENTIALS.to_owned()));
        assert_eq!(told("hunter2").to_string(), "the answer of the server is not that of S3; check the endpoint");
    }
}
