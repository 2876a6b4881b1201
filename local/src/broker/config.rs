//! The configuration files and environment variables of a private RabbitMQ node.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::{control, member::Member, node_ports::Ports};
use crate::{
    error::{FileContext as _, LocalError},
    secret,
};

pub(super) const USER: &str = "gpufleet";
/// The broker's consumer timeout. A worker acknowledges a message when its job has ended, which may take seven days. By default, the broker
/// closes the channel after 30 minutes.
const CONSUMER_TIMEOUT_MS: u64 = 8 * 24 * 3600 * 1000;
/// The broker's maximum size of a message, that of RabbitMQ 3. A producer whose message is too large for gpufleet then gets a reply that
/// says so; RabbitMQ 4 would close its channel.
const MESSAGE_BYTES_MAX: u32 = 128 << 20;
/// Time after which a silent node counts as down, give or take a quarter. Until then it blocks declarations on all nodes. The default of 60
/// s is longer than our clients wait for a confirm.
const NET_TICK_SECONDS: u32 = 20;
/// Stops Erlang's threads from spinning before they sleep, which takes processor time from the programs beside a private broker.
const NO_SPINNING: &str = "+sbwt none +sbwtdcpu none +sbwtdio none";
pub const DEFAULT_VHOST: &str = "gpufleet";

pub(super) struct Config<'a> {
    pub(super) member: Member,
    pub(super) directory: &'a Path,
    pub(super) home: &'a Path,
    pub(super) logs: &'a Path,
    pub(super) password: &'a str,
    pub(super) ports: Ports,
}

impl Config<'_> {
    pub(super) fn write(&self) -> Result<(), LocalError> {
        for name in ["mnesia", "generated"] {
            let path = self.directory.join(name);
            fs::create_dir_all(&path).at("create", &path)?;
        }
        // Empty files keep the node from reading the system's under /etc.
        for (name, text) in [
            ("env.conf", ""),
            ("advanced.config", "[].\n"),
            ("enabled_plugins", "[].\n"),
            ("control.erl", control::SERVER),
        ] {
            let path = self.directory.join(name);
            fs::write(&path, text).at("write", &path)?;
        }
        secret::write_private(&self.directory.join("rabbitmq.conf"), &self.rabbitmq_conf())?;
        let cookie = self.home.join(".erlang.cookie");
        if !cookie.exists() {
            secret::write_private(&cookie, &secret::random()?)?;
            let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            fs::set_permissions(&cookie, read_only).at("protect", &cookie)?;
        }
        Ok(())
    }

    /// The limit for free disk space is low, because a developer's disk is often nearly full and an alarm would block
    /// every publisher.
    fn rabbitmq_conf(&self) -> String {
        format!(
            "listeners.tcp.default = 127.0.0.1:{port}\n\
             default_user = {USER}\n\
             default_pass = {password}\n\
             default_vhost = {DEFAULT_VHOST}\n\
             log.file = {name}-node.log\n\
             log.file.level = warning\n\
             log.console = false\n\
             vm_memory_high_watermark.relative = 0.4\n\
             disk_free_limit.absolute = 200MB\n\
             consumer_timeout = {CONSUMER_TIMEOUT_MS}\n\
             max_message_size = {MESSAGE_BYTES_MAX}\n\
             heartbeat = 60\n\
             {cluster}",
            port = self.ports.amqp,
            password = self.password,
            name = self.member.name(),
            cluster = self.member.rabbitmq_conf(),
        )
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let file = |name: &str| self.directory.join(name).into_os_string();
        // The start script splits this at blanks and removes no quotes, so no argument may contain a blank.
        let boot = "{ok,_}=file:script(os:getenv(\"RABBITMQ_GPUFLEET_CONTROL\")).";
        let server_arguments = format!(
            "-noinput -start_epmd false {NO_SPINNING} -kernel inet_dist_use_interface {{127,0,0,1}} net_ticktime {NET_TICK_SECONDS} -eval {boot}"
        );
        vec![
            ("HOME", self.home.as_os_str().to_owned()),
            ("ERL_EPMD_PORT", self.ports.epmd.to_string().into()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_NODENAME", self.member.node().into()),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_NODE_PORT", self.ports.amqp.to_string().into()),
            ("RABBITMQ_DIST_PORT", self.ports.distribution.to_string().into()),
            ("RABBITMQ_MNESIA_BASE", file("mnesia")),
            ("RABBITMQ_LOG_BASE", self.logs.as_os_str().to_owned()),
            ("RABBITMQ_PID_FILE", file("pid")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins")),
            ("RABBITMQ_CONF_ENV_FILE", file("env.conf")),
            ("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", file("advanced.config")),
            ("RABBITMQ_GENERATED_CONFIG_DIR", file("generated")),
            // With this the start script replaces itself by the Erlang VM, so the recorded process is the broker
            // itself.
            ("RABBITMQ_ALLOW_INPUT", "1".into()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", server_arguments.into()),
            ("RABBITMQ_CTL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".into()),
            ("RABBITMQ_GPUFLEET_CONTROL", file("control.erl")),
            ("RABBITMQ_GPUFLEET_SOCKET", PathBuf::from(control::SOCKET).into_os_string()),
        ]
    }
}

/// The variables of the caller's environment that the node does not get: all but those that it needs. RabbitMQ reads its own variables
/// without their prefix too, so that even a `LOGS` of the caller would change its configuration.
pub(super) fn foreign() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        !(["PATH", "LANG", "TZ", "TMPDIR"].contains(&&*name) || name.starts_with("LC_"))
    })
}
