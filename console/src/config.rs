//! What the options mean. Every problem is found here, before the program listens or connects.

use std::{fs, net::SocketAddr};

use anyhow::{Context as _, anyhow, bail};
use gpufleet_blobs::BlobLocation;
use gpufleet_service::{Secret, tokens::Tokens};
use gpufleet_transport::BrokerUrls;

use crate::{
    access::{Access, Hosts, Identity},
    options::Options,
    upstream::Upstream,
};

pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) amqp_url: Option<Secret>,
    pub(crate) blobs: Option<BlobLocation>,
    pub(crate) access: Access,
    pub(crate) actions: bool,
}

impl Config {
    pub(crate) fn of(options: &Options) -> anyhow::Result<Self> {
        let identity = identity(options)?;
        if identity == Identity::Anonymous && !options.listen.ip().is_loopback() {
            bail!(
                "listen on {} without knowing the viewers: everyone who can reach this address could see all jobs; give --token-file, \
                 or --user-header and --trusted-proxy, or listen on 127.0.0.1",
                options.listen
            );
        }
        let amqp_url = options.amqp_url.clone().filter(|url| !url.0.is_empty());
        if let Some(url) = &amqp_url {
            url.0.parse::<BrokerUrls>().context("use the broker of GPUFLEET_AMQP_URL")?;
        }
        if options.actions && amqp_url.is_none() {
            bail!("offer actions without a broker; set GPUFLEET_AMQP_URL, or leave out --actions");
        }
        let blobs = options.blobs.clone().filter(|text| !text.is_empty());
        let token = options.api_token.as_ref().map(|token| token.0.as_str()).filter(|token| !token.is_empty());
        Ok(Self {
            listen: options.listen,
            upstream: Upstream::new(&options.api, token)?,
            amqp_url,
            blobs: blobs.map(BlobLocation::try_from).transpose().context("use the blob store of --blobs")?,
            access: Access::new(identity, Hosts::named(&options.host)),
            actions: options.actions,
        })
    }
}

fn identity(options: &Options) -> anyhow::Result<Identity> {
    if let Some(path) = &options.token_file {
        let place = || format!("read the tokens in {}", path.display());
        let tokens = Tokens::of(&fs::read_to_string(path).with_context(place)?).with_context(place)?;
        return Ok(Identity::Tokens(tokens));
    }
    match (&options.user_header, options.trusted_proxy.as_slice()) {
        (None, _) => Ok(Identity::Anonymous),
        (Some(_), []) => Err(anyhow!("trust the header of every caller; name the proxies with --trusted-proxy")),
        (Some(header), networks) => Ok(Identity::Proxy { header: header.clone(), networks: networks.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let typed = ["gpufleet-console", "--api", "http://127.0.0.1:9470"].iter().chain(arguments);
        let options = Options::try_parse_from(typed).unwrap();
        match Config::of(&options) {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn beyond_loopback_viewers_must_be_known() {
        assert_eq!(refused(&["--listen", "127.0.0.1:0"]), "");
        assert_eq!(refused(&["--listen", "[::1]:0"]), "");
        assert!(refused(&["--listen", "0.0.0.0:0"]).contains("--token-file"));
        let known = ["--listen", "0.0.0.0:0", "--user-header", "X-User", "--trusted-proxy", "10.0.0.0/8"];
        assert_eq!(refused(&known), "");
    }

    #[test]
    fn actions_need_a_broker() {
        assert!(refused(&["--actions"]).contains("GPUFLEET_AMQP_URL"));
        assert!(refused(&["--actions", "--amqp-url", ""]).contains("GPUFLEET_AMQP_URL"));
        assert_eq!(refused(&["--actions", "--amqp-url", "amqp://h"]), "");
        assert!(refused(&["--amqp-url", "http://h"]).contains("GPUFLEET_AMQP_URL"));
    }
}
