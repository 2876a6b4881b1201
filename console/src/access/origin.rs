//! Which site's page made a request, as the browser tells.

use axum::http::{HeaderMap, Uri, header, uri::Authority};
use gpufleet_service::host;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Whether a page of this console asks for an action. Browsers send `Origin` with each POST. They send `Sec-Fetch-Site` over TLS and to this
/// machine.
pub(super) fn is_own_action(uri: &Uri, headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).and_then(authority);
    let is_own = origin.is_some() && origin == host::requested(uri, headers);
    let site = headers.get(SEC_FETCH_SITE);
    is_own && site.is_none_or(|site| site == "same-origin")
}

/// Whether a page of another site asks for data. A person who opens a link to data comes from no site (`none`).
pub(super) fn is_of_another_site(headers: &HeaderMap) -> bool {
    headers.get(SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none")
}

fn authority(origin: &str) -> Option<Authority> {
    origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn an_action_needs_the_own_origin() {
        let asks = |pairs: &[(&'static str, &str)]| {
            let mut all = headers(pairs);
            all.insert(header::HOST, "h:9480".parse().unwrap());
            is_own_action(&Uri::from_static("/actions/cancel"), &all)
        };
        assert!(asks(&[("origin", "http://h:9480")]));
        assert!(asks(&[("origin", "https://h:9480"), ("sec-fetch-site", "same-origin")]));
        assert!(!asks(&[]));
        assert!(!asks(&[("sec-fetch-site", "same-origin")]));
        for origin in ["http://h", "http://evil.example", "null", "http://h:9480.evil.example", "ftp://h:9480"] {
            assert!(!asks(&[("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!asks(&[("origin", "http://h:9480"), ("sec-fetch-site", site)]), "{site}");
        }
    }

    #[test]
    fn data_is_for_own_pages_and_opened_links() {
        for own in ["same-origin", "none"] {
            assert!(!is_of_another_site(&headers(&[("sec-fetch-site", own)])));
        }
        assert!(!is_of_another_site(&HeaderMap::new()));
        for other in ["cross-site", "same-site"] {
            assert!(is_of_another_site(&headers(&[("sec-fetch-site", other)])));
        }
    }
}
