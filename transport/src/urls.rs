//! The addresses of the nodes of one broker.

use std::{fmt, str::FromStr};

use crate::{BrokerUrl, InvalidBrokerUrl};

/// The URL of a broker, or one URL for each node of a cluster, separated by commas:
/// `amqp://user:password@a/vhost,amqp://user:password@b/vhost`. All have the same user and vhost, because the nodes of a cluster share
/// both. Prints without passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrls {
    /// Never empty.
    nodes: Vec<BrokerUrl>,
}

impl BrokerUrls {
    pub fn nodes(&self) -> &[BrokerUrl] {
        &self.nodes
    }

    pub fn user(&self) -> &str {
        self.first().user()
    }

    pub fn vhost(&self) -> &str {
        self.first().vhost()
    }

    /// Whether there are several nodes.
    pub fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The texts of the URLs of one text. Splits only at commas that a scheme follows, because a password may contain a comma.
    pub fn split(text: &str) -> Vec<&str> {
        let mut parts = Vec::new();
        let mut start = 0;
        for (comma, _) in text.match_indices(',') {
            let next = text[comma + 1..].trim_start();
            if next.starts_with("amqp://") || next.starts_with("amqps://") {
                parts.push(&text[start..comma]);
                start = comma + 1;
            }
        }
        parts.push(&text[start..]);
        parts
    }

    fn first(&self) -> &BrokerUrl {
        &self.nodes[0]
    }
}

impl From<BrokerUrl> for BrokerUrls {
    fn from(url: BrokerUrl) -> Self {
        Self { nodes: vec![url] }
    }
}

impl FromStr for BrokerUrls {
    type Err = InvalidBrokerUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBrokerUrl> {
        let parts = Self::split(text);
        let count = parts.len();
        let parse = |(index, part): (usize, &str)| part.parse().map_err(|error| numbered(error, index + 1, count));
        let nodes: Vec<BrokerUrl> = parts.into_iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        let urls = Self { nodes };
        let differs = |of: fn(&BrokerUrl) -> &str| urls.nodes.iter().any(|url| of(url) != of(urls.first()));
        for (what, of) in [("users", BrokerUrl::user as fn(&BrokerUrl) -> &str), ("vhosts", BrokerUrl::vhost)] {
            if differs(of) {
                return Err(InvalidBrokerUrl::Different { what });
            }
        }
        Ok(urls)
    }
}

/// Says which of several URLs is malformed, because the error does not repeat it.
fn numbered(error: InvalidBrokerUrl, number: usize, count: usize) -> InvalidBrokerUrl {
    match error {
        InvalidBrokerUrl::Malformed { problem, .. } if count > 1 => {
            InvalidBrokerUrl::Malformed { which: format!("broker URL {number} of {count}"), problem }
        }
        error => error,
    }
}

impl fmt::Display for BrokerUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, url) in self.nodes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{url}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BrokerUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrokerUrls({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let refusal = text.parse::<BrokerUrls>().unwrap_err().to_string();
        assert!(!refusal.contains("hunter2"), "{refusal}");
        refusal
    }

    #[test]
    fn one_url_is_a_broker_of_one_node() {
        let urls: BrokerUrls = "amqp://ana:a,b@h/v".parse().unwrap();
        assert!(!urls.is_cluster());
        assert_eq!(urls, BrokerUrls::from("amqp://ana:a%2Cb@h/v".parse::<BrokerUrl>().unwrap()));
    }

    #[test]
    fn several_urls_show_everything_but_their_passwords() {
        let urls: BrokerUrls = "amqp://ana:hunter2@a/v, amqps://ana:x,hunter2@b:1/v,amqp://ana@c/v".parse().unwrap();
        assert_eq!(urls.to_string(), "amqp://ana:***@a:5672/v,amqps://ana:***@b:1/v,amqp://ana:***@c:5672/v");
        assert!(urls.is_cluster());
        assert_eq!((urls.user(), urls.vhost(), urls.nodes().len()), ("ana", "v", 3));
    }

    #[test]
    fn a_malformed_url_is_named_by_its_number() {
        let refused = refusal("amqp://ana:hunter2@a/v,amqp://ana:hunter2@b/v/w");
        assert!(refused.starts_with("broker URL 2 of 2 has more than one path segment"), "{refused}");
        let refused = refusal("amqp://ana:hunter2@a/v,");
        assert!(refused.starts_with("the broker URL has a comma"), "{refused}");
    }

    #[test]
    fn urls_of_several_users_or_vhosts_are_refused() {
        assert!(refusal("amqp://ana:hunter2@a/v,amqp://bea:hunter2@b/v").contains("different users"));
        assert!(refusal("amqp://ana:hunter2@a/v,amqp://ana:hunter2@b/w").contains("different vhosts"));
    }
}
