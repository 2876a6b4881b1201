//! The broker's address. It contains a password, which is never printed.

use std::{fmt, str::FromStr};

use lapin::uri::{AMQPScheme, AMQPUri};

/// `amqp://user:password@host:port/vhost`, or `amqps` for TLS. Prints without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl {
    uri: AMQPUri,
}

/// A text that is not a broker address. The error does not repeat the text, because it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBrokerUrl {
    #[error(
        "{which} {problem}; write it as amqp://user:password@host:5672/vhost (amqps:// for TLS; percent-encode special characters, as in %2F)"
    )]
    Malformed { which: String, problem: String },
    #[error(
        "the broker URLs name different {what}; name the nodes of one cluster, with the same user and vhost in each URL"
    )]
    Different { what: &'static str },
}

impl BrokerUrl {
    pub fn host(&self) -> &str {
        &self.uri.authority.host
    }

    pub fn port(&self) -> u16 {
        self.uri.authority.port
    }

    pub fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    pub fn vhost(&self) -> &str {
        &self.uri.vhost
    }

    pub fn is_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// Returns the URL of another vhost of the same broker, for the same user.
    #[must_use]
    pub fn with_vhost(mut self, vhost: &str) -> Self {
        vhost.clone_into(&mut self.uri.vhost);
        self
    }

    /// The whole URL with its password, for a child process's environment. Never log it.
    pub fn to_string_with_password(&self) -> String {
        self.render(&encode(&self.uri.authority.userinfo.password))
    }

    pub(crate) fn uri(&self) -> &AMQPUri {
        &self.uri
    }

    fn render(&self, password: &str) -> String {
        let host = self.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!(
            "{}://{}:{password}@{host}:{}/{}",
            if self.is_tls() { "amqps" } else { "amqp" },
            encode(self.user()),
            self.port(),
            encode(self.vhost()),
        )
    }
}

impl FromStr for BrokerUrl {
    type Err = InvalidBrokerUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBrokerUrl> {
        let text = text.trim();
        let parsed = url::Url::parse(text).map_err(|source| invalid(format!("is malformed: {source}")))?;
        if !matches!(parsed.scheme(), "amqp" | "amqps") {
            return Err(invalid(format!("has the unsupported scheme {:?}", parsed.scheme())));
        }
        let Some(host) = parsed.host_str().filter(|host| !host.is_empty()) else {
            return Err(invalid("has no host"));
        };
        if host.contains(',') || parsed.path().contains(',') {
            return Err(invalid(
                "has a comma in its host or vhost; write the URL of each node in full, as in amqp://a/v,amqp://b/v, or %2C for the character",
            ));
        }
        // A value may be a secret, so that only the name is shown.
        if let Some((name, _)) = parsed.query_pairs().next() {
            let name: String = name.chars().take(32).collect();
            return Err(invalid(format!(
                "has the parameter {name:?}, which would have no effect; remove everything from '?' on, or write %3F for that character"
            )));
        }
        if parsed.fragment().is_some() {
            return Err(invalid("has a fragment after '#'; write %23 for that character"));
        }
        if parsed.path().trim_start_matches('/').contains('/') {
            return Err(invalid("has more than one path segment; write %2F for a slash in the vhost"));
        }
        // The parser's messages could repeat the text, and with it the password.
        let mut uri: AMQPUri = text.parse().map_err(|_| invalid("is malformed; check its parameters and escapes"))?;
        // By the specification `amqp://host/` names the vhost with the empty name, but users mean the default vhost.
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        // lapin's parser ignores an IPv6 address and connects to localhost instead.
        host.trim_start_matches('[').trim_end_matches(']').clone_into(&mut uri.authority.host);
        Ok(Self { uri })
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("***"))
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrokerUrl({self})")
    }
}

fn invalid(problem: impl Into<String>) -> InvalidBrokerUrl {
    InvalidBrokerUrl::Malformed { which: "the broker URL".to_owned(), problem: problem.into() }
}

fn encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_everything_but_its_password() {
        let url: BrokerUrl = "amqp://anna:s3cr%2Fet@rabbit.example:5673/team%2Fa".parse().unwrap();
        assert_eq!(url.to_string(), "amqp://anna:***@rabbit.example:5673/team%2Fa");
        assert_eq!(format!("{url:?}"), "BrokerUrl(amqp://anna:***@rabbit.example:5673/team%2Fa)");
        assert_eq!((url.user(), url.vhost(), url.port()), ("anna", "team/a", 5673));
        assert_eq!(url.to_string_with_password().parse::<BrokerUrl>().unwrap(), url);
    }

    #[test]
    fn omitted_parts_of_a_url_have_defaults() {
        for text in
            ["amqp://localhost", "amqp://localhost/", "amqp://localhost:5672/%2f", "amqp://guest:guest@localhost"]
        {
            let url: BrokerUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), "amqp://guest:***@localhost:5672/%2F", "{text}");
        }
        let url: BrokerUrl = "amqps://h/v".parse().unwrap();
        assert_eq!((url.port(), url.is_tls(), url.vhost()), (5671, true, "v"));
        assert_eq!("amqp://[::1]:1234/v".parse::<BrokerUrl>().unwrap().to_string(), "amqp://guest:***@[::1]:1234/v");
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_it() {
        for text in [
            "",
            "localhost",
            "http://a:hunter2@b",
            "amqp://",
            "amqp://a:hunter2@b:99999/",
            "amqp://a:hunter2@b/c/d",
            "amqp://a:hunter2@b/#c",
            "amqp://a:secret@b/v?heartbeat=hunter2",
            "amqp://a:hunter2@b?connection_timeout=5",
            "amqp://a:hunter2@b,c/d",
            "amqp://a:hunter2@b/d,",
        ] {
            let error = text.parse::<BrokerUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("amqp://user:password@host"), "{error}");
        }
    }
}
