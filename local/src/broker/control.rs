//! A fast way to control the broker: the node evaluates Erlang expressions from a Unix socket in its own directory,
//! which only its user can enter. `rabbitmqctl` can do the same, but starts an Erlang VM each time, which takes a
//! second of CPU time.

use std::{path::Path, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

pub(super) const SOCKET: &str = "control";
/// Time limit for an answer. Creating a vhost takes 25 ms on an idle machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Maximum length of an answer. Even the list of all queues of a test broker is shorter.
const ANSWER_BYTES_MAX: u32 = 1 << 20;

/// The node evaluates this once it has booted, which creates the socket. Each frame starts with four bytes of length,
/// in both directions. Answers start with `ok ` or `error `. The socket's path is relative to the node's working
/// directory.
pub(super) const SERVER: &str = r#"
Path = os:getenv("RABBITMQ_GPUFLEET_SOCKET"),
_ = file:delete(Path),
{ok, Listener} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {backlog, 128}, {ifaddr, {local, Path}}]),
Evaluate = fun(Text) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = erl_eval:exprs(Expressions, []),
    Value
end,
Answer = fun(Text) ->
    try {"ok ", Evaluate(Text)} catch Class:Reason -> {"error ", {Class, Reason}} end
end,
Serve = fun(Socket) ->
    {ok, Text} = gen_tcp:recv(Socket, 0),
    {Tag, Value} = Answer(Text),
    ok = gen_tcp:send(Socket, unicode:characters_to_binary([Tag, io_lib:format("~0tp", [Value])])),
    gen_tcp:close(Socket)
end,
HandOver = fun(Socket, Then) ->
    Pid = spawn(fun() -> receive go -> Then() end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go
end,
Accept = fun Loop() ->
    {ok, Socket} = gen_tcp:accept(Listener),
    HandOver(Socket, fun() -> Serve(Socket) end),
    Loop()
end,
HandOver(Listener, Accept),
ok.
"#;

/// The value of `expression`, or the broker's error.
pub(super) async fn evaluate(socket: &Path, expression: &str) -> Result<String, String> {
    let answer = timeout(ANSWER_WITHIN, exchange(socket, expression))
        .await
        .map_err(|_| format!("no answer in {} s", ANSWER_WITHIN.as_secs()))?
        .map_err(|error| error.to_string())?;
    match answer.split_once(' ') {
        Some(("ok", value)) => Ok(value.to_owned()),
        _ => Err(answer),
    }
}

async fn exchange(socket: &Path, expression: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let length = u32::try_from(expression.len()).map_err(std::io::Error::other)?;
    stream.write_u32(length).await?;
    stream.write_all(expression.as_bytes()).await?;
    let length = stream.read_u32().await?;
    if length > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other(format!("an answer of {length} bytes")));
    }
    let mut answer = String::new();
    stream.take(u64::from(length)).read_to_string(&mut answer).await?;
    Ok(answer)
}
