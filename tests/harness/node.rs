//! What scenarios do to the broker from inside, where AMQP or our own transport would not let them.

use gpufleet_local::Fleet;

use crate::Ground;

impl Ground {
    /// Evaluates Erlang inside the broker. `@` stands for this ground's vhost.
    pub async fn erlang(&self, expression: &str) -> String {
        evaluate(self.fleet(), expression).await
    }

    /// Makes a durable queue with arguments in Erlang's words, such as `[{<<"x-max-length">>, long, 3}]`.
    pub async fn declare_queue(&self, name: &str, arguments: &str) {
        declare_queue(self.fleet(), name, arguments).await;
    }
}

pub(crate) async fn evaluate(fleet: &Fleet, expression: &str) -> String {
    let expression = expression.replace('@', &format!("<<\"{}\">>", fleet.space()));
    fleet.services().broker().eval(&expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
}

pub(crate) async fn declare_queue(fleet: &Fleet, name: &str, arguments: &str) {
    let queue = format!("rabbit_misc:r(@, queue, <<\"{name}\">>)");
    let declared = format!("rabbit_amqqueue:declare({queue}, true, false, {arguments}, none, <<\"scenario\">>)");
    evaluate(fleet, &format!("{{new, _}} = {declared}, ok.")).await;
}

pub(crate) async fn bind_queue(fleet: &Fleet, queue: &str, exchange: &str, key: &str) {
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
