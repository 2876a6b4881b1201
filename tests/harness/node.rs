//! Manipulates the broker from inside, in ways that neither AMQP nor gpufleet's transport allows.

use std::time::Duration;

use gpufleet_local::{LocalFleet, RabbitMq, Services};
use gpufleet_schema::{
    PoolName,
    topology::{PROGRESS, progress_of_pool},
};

use crate::{Ground, ground::is_suspended, poll::poll_until};

/// The broker's default memory watermark in a fleet.
const WATERMARK: &str = "0.4";
/// The broker's acknowledgement timeout in a fleet, which is longer than any job.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(8 * 24 * 3600);
const CHANNEL_TICK: Duration = Duration::from_secs(60);

/// Makes a broker write the names of its queues' Raft members and its bindings to disk, which it normally does half a second late. A broker
/// that is killed before that does not restart its streams, and loses the witness's binding, which no process declares again.
pub async fn write_queue_names(broker: &RabbitMq) {
    let names = "maps:get(directory_rev, maps:get(names, ra_system:fetch(System)))";
    let written =
        format!("ok = mnesia:sync_log(), [ok = dets:sync({names}) || System <- [coordination, quorum_queues]], ok.");
    broker.eval(&written).await.unwrap();
}

impl Ground {
    /// Evaluates Erlang inside the broker. `@` stands for this ground's vhost.
    pub async fn erlang(&self, expression: &str) -> String {
        evaluate(self.fleet(), expression).await
    }

    /// Kills the broker and starts it again.
    pub async fn crash_broker(&self) {
        write_queue_names(self.services().broker()).await;
        self.services().broker().kill9().await.unwrap();
        self.services().broker().restart().await.unwrap();
    }

    /// Declares a durable queue with arguments as Erlang terms, such as `[{<<"x-max-length">>, long, 3}]`.
    pub async fn declare_queue(&self, name: &str, arguments: &str) {
        declare_queue(self.fleet(), name, arguments).await;
    }

    /// Stops a quorum queue's processes: the broker knows the queue, but does not start it.
    pub async fn stop_queue(&self, name: &str) {
        self.erlang(&format!("{}, [ok = ra:stop_server(quorum_queues, M) || M <- Members], ok.", members_of(name)))
            .await;
    }

    /// Starts a queue that [`Ground::stop_queue`] has stopped.
    pub async fn start_queue(&self, name: &str) {
        self.erlang(&format!("{}, [ok = ra:restart_server(quorum_queues, M) || M <- Members], ok.", members_of(name)))
            .await;
    }

    /// Suspends a queue's process, so that it answers no request.
    pub async fn suspend_queue(&self, name: &str) {
        self.erlang(&format!("{}, ok = sys:suspend(P).", process_of(name))).await;
    }

    pub async fn resume_queue(&self, name: &str) {
        self.erlang(&format!("{}, ok = sys:resume(P).", process_of(name))).await;
    }

    /// Returns how many messages a suspended queue process has not processed.
    pub async fn unseen_by(&self, queue: &str) -> usize {
        let count = "{_, Count} = erlang:process_info(P, message_queue_len), Count.";
        self.erlang(&format!("{}, {count}", process_of(queue))).await.parse().unwrap()
    }

    /// Returns how many messages a queue has, including unacknowledged ones. A quorum queue itself is asked, because the broker's own
    /// figure for it is seconds old.
    pub async fn messages_in(&self, queue: &str) -> u64 {
        let count = "case amqqueue:get_type(Q) of \
             rabbit_quorum_queue -> {ok, N, _} = \
             ra:consistent_query(amqqueue:get_pid(Q), fun rabbit_fifo:query_messages_total/1), N; \
             _ -> proplists:get_value(messages, I) end";
        self.erlang(&format!("{}, {count}.", info_of(queue, "messages"))).await.parse().unwrap()
    }

    /// Deletes the messages of a queue that no consumer holds.
    pub async fn purge_queue(&self, queue: &str) {
        self.erlang(&format!("{}, {{ok, _}} = rabbit_amqqueue:purge(Q), ok.", queue_record(queue))).await;
    }

    /// Declares queues that receive the progress of all jobs of the default pool. Their names begin with `prefix`.
    pub async fn follow_progress(&self, prefix: &str, count: u32) {
        let queue = format!("rabbit_misc:r(@, queue, iolist_to_binary([<<\"{prefix}\">>, integer_to_list(N)]))");
        let declare = "{new, _} = rabbit_amqqueue:declare(Q, false, false, [], none, <<\"scenario\">>)";
        let exchange = format!("rabbit_misc:r(@, exchange, <<\"{PROGRESS}\">>)");
        let key = progress_of_pool(&PoolName::default());
        let bind = format!("ok = rabbit_binding:add({{binding, {exchange}, <<\"{key}\">>, Q, []}}, <<\"scenario\">>)");
        self.erlang(&format!("[begin Q = {queue}, {declare}, {bind} end || N <- lists:seq(1, {count})], ok.")).await;
    }

    /// Returns the different counts of messages in the queues of [`Ground::follow_progress`].
    pub async fn counts_of_followers(&self, prefix: &str) -> Vec<u64> {
        let messages = "proplists:get_value(messages, rabbit_amqqueue:info(Q, [messages]))";
        let named = "Q <- rabbit_amqqueue:list(@), {resource, _, queue, N} <- [amqqueue:get_name(Q)]";
        let prefixed = format!("string:prefix(N, <<\"{prefix}\">>) =/= nomatch");
        let found = self.erlang(&format!("list_to_tuple(lists:usort([{messages} || {named}, {prefixed}])).")).await;
        let counts = found.trim_matches(['{', '}']).split(',');
        counts.map(|count| count.trim().parse().expect("a number of messages")).collect()
    }

    /// Waits until no reply queue of a client exists. One node of a cluster may learn that later than another. Without a deletion, a reply
    /// queue would last longer than the wait.
    pub async fn poll_no_reply_queue(&self) {
        let named = "[N || Q <- rabbit_amqqueue:list(@), {resource, _, queue, N} <- [amqqueue:get_name(Q)]";
        let found = format!("{named}, binary:match(N, <<\"gpufleet.v1.replies.\">>) =/= nomatch].");
        poll_until("no reply queue is left", async || self.erlang(&found).await == "[]").await;
    }

    /// Applies a policy of the broker to the queues of this name. `definition` is an Erlang tuple such as `{<<"max-length">>, 3}`.
    pub async fn set_policy(&self, queue: &str, definition: &str) {
        let set = format!(
            "ok = rabbit_policy:set(@, <<\"scenario\">>, <<\"^{queue}$\">>, [{definition}], 0, <<\"queues\">>, <<\"scenario\">>)."
        );
        self.erlang(&set).await;
    }

    /// Sets the fraction of memory above which the broker blocks publishers. A fraction near zero raises the alarm at once.
    pub async fn watermark(&self, part: &str) {
        set_watermark(self.services(), part).await;
    }

    /// Sets the broker's acknowledgement timeout and the interval of its checks, for new channels.
    pub async fn consumer_timeout(&self, timeout: Duration, tick: Duration) {
        set_consumer_timeout(self.services(), timeout, tick).await;
    }
}

/// An Erlang expression for the node that leads the queue `Q`.
pub(crate) const LEADER: &str = "case amqqueue:get_pid(Q) of {_, Node} -> Node; Pid -> node(Pid) end";

/// Returns an Erlang expression that finds a queue as `Q`.
pub(crate) fn queue_record(queue: &str) -> String {
    format!("{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(@, queue, <<\"{queue}\">>))")
}

/// Returns an Erlang expression that reads these items of the queue as `I`, such as `messages,consumers`. It asks the queue's leader,
/// because other nodes of a cluster count nothing.
pub(crate) fn info_of(queue: &str, items: &str) -> String {
    format!("{}, L = {LEADER}, I = erpc:call(L, rabbit_amqqueue, info, [Q, [{items}]])", queue_record(queue))
}

/// Returns an Erlang expression that finds the processes of a quorum queue as `Members`, one on each node.
fn members_of(queue: &str) -> String {
    let nodes = "maps:get(nodes, amqqueue:get_type_state(Q))";
    format!("{}, {{Name, _}} = amqqueue:get_pid(Q), Members = [{{Name, N}} || N <- {nodes}]", queue_record(queue))
}

fn process_of(queue: &str) -> String {
    format!("{}, P = amqqueue:get_pid(Q)", queue_record(queue))
}

/// Restores the settings with which a fleet starts its broker.
pub(crate) async fn restore_defaults(services: &Services) {
    set_watermark(services, WATERMARK).await;
    set_consumer_timeout(services, CONSUMER_TIMEOUT, CHANNEL_TICK).await;
}

async fn set_watermark(services: &Services, part: &str) {
    let expression = format!("ok = vm_memory_monitor:set_vm_memory_high_watermark({part}).");
    services.broker().eval(&expression).await.unwrap();
}

async fn set_consumer_timeout(services: &Services, timeout: Duration, tick: Duration) {
    for (name, value) in [("consumer_timeout", timeout), ("channel_tick_interval", tick)] {
        let expression = format!("ok = application:set_env(rabbit, {name}, {}).", value.as_millis());
        services.broker().eval(&expression).await.unwrap();
    }
}

/// Returns the first node that answers.
fn serving(services: &Services) -> &RabbitMq {
    let answers = |node: &&RabbitMq| node.pid().is_some_and(|pid| !is_suspended(pid));
    services.nodes().iter().find(answers).expect("a node runs")
}

pub(crate) async fn evaluate(fleet: &LocalFleet, expression: &str) -> String {
    let expression = expression.replace('@', &format!("<<\"{}\">>", fleet.space()));
    let answered = serving(fleet.services()).eval(&expression).await;
    answered.unwrap_or_else(|error| panic!("{expression}: {error}"))
}

pub(crate) async fn declare_queue(fleet: &LocalFleet, name: &str, arguments: &str) {
    let queue = format!("rabbit_misc:r(@, queue, <<\"{name}\">>)");
    let declared = format!("rabbit_amqqueue:declare({queue}, true, false, {arguments}, none, <<\"scenario\">>)");
    evaluate(fleet, &format!("{{new, _}} = {declared}, ok.")).await;
}

pub(crate) async fn bind_queue(fleet: &LocalFleet, queue: &str, exchange: &str, key: &str) {
    let (from, to) = (
        format!("rabbit_misc:r(@, exchange, <<\"{exchange}\">>)"),
        format!("rabbit_misc:r(@, queue, <<\"{queue}\">>)"),
    );
    evaluate(
        fleet,
        &format!("ok = rabbit_binding:add({{binding, {from}, <<\"{key}\">>, {to}, []}}, <<\"scenario\">>)."),
    )
    .await;
}
