//! The supervisor's side of a compilation: starts a compiler child, sends it the request and reads its answer.

use std::{env, path::Path, process::Stdio, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use crate::own_executable;

use super::{
    CompileError, CompileRequest, Compiled,
    check::Checked,
    child::{ANSWER_BYTES_MAX, Answer, Compilation, Request, TIME_LIMIT},
    diagnostics::{cut, first_error},
    headers::with_advice,
    library::Nvrtc,
    micros_since,
    sandbox::Sandbox,
    toolkit::Loaded,
};

/// Maximum size of a dead compiler's stderr that is read for the error, in bytes.
const STDERR_BYTES_MAX: u64 = 4 << 10;

pub(super) async fn compile(
    request: &CompileRequest,
    sandbox: Sandbox,
    user: Option<String>,
    executable: Option<&Path>,
) -> Result<Compiled, CompileError> {
    let started = Instant::now();
    let nvrtc = Nvrtc::locate(request.nvrtc.as_deref()).map_err(CompileError::NotFound)?;
    let job = Compilation {
        code: request.code.clone(),
        options: request.options.clone(),
        expressions: request.expressions.clone(),
        arch: request.target.arch,
        cubin: request.target.cubin_for.is_some(),
        nvrtc,
        strict: sandbox == Sandbox::Strict,
        user,
    };
    understand(ask(&Request::Compile(job), executable).await?, started)
}

/// Starts a child that loads and identifies the compiler.
pub(super) async fn identify(nvrtc: Nvrtc, executable: Option<&Path>) -> Result<Loaded, CompileError> {
    match ask(&Request::Identify(nvrtc), executable).await? {
        Answer::Identified(loaded) => Ok(loaded),
        Answer::NoLibrary(why) => Err(CompileError::NotFound(why)),
        Answer::Failed(why) => Err(CompileError::Internal(why)),
        _ => Err(CompileError::Internal("the compiler sent an unexpected answer".to_owned())),
    }
}

/// Starts a child that enters the sandbox and tries forbidden operations.
pub(super) async fn check(user: Option<String>, executable: Option<&Path>) -> Result<Checked, CompileError> {
    match ask(&Request::Check { user }, executable).await? {
        Answer::Checked(checked) => Ok(checked),
        Answer::Failed(why) => Err(CompileError::Internal(why)),
        _ => Err(CompileError::Internal("the compiler sent an unexpected answer".to_owned())),
    }
}

async fn ask(request: &Request, executable: Option<&Path>) -> Result<Answer, CompileError> {
    let child =
        start(&own_executable::or_running(executable)).map_err(|error| internal("start the compiler", &error))?;
    // Dropping the child kills it. This happens at the time limit, and when the last waiting job is cancelled.
    timeout(TIME_LIMIT, converse(child, request)).await.unwrap_or(Err(CompileError::Timeout { limit: TIME_LIMIT }))
}

fn internal(what: &str, error: &dyn std::fmt::Display) -> CompileError {
    CompileError::Internal(format!("could not {what}: {error}"))
}

fn start(executable: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(executable);
    command
        .arg0("gpufleet-worker")
        .arg("compile-child")
        .env_clear()
        .current_dir("/")
        .kill_on_drop(true)
        .process_group(0);
    // With these folders the system's loader finds a toolkit that was not installed by gpufleet.
    if let Some(folders) = env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", folders);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

async fn converse(mut child: Child, request: &Request) -> Result<Answer, CompileError> {
    let body = rmp_serde::to_vec(request).map_err(|error| internal("encode the request", &error))?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    // If the child dies early, writing fails. Its exit status explains more than that error.
    let said = async {
        stdin.write_all(&(body.len() as u32).to_le_bytes()).await?;
        stdin.write_all(&body).await?;
        stdin.flush().await?;
        // Standard input stays open, because the child exits when it is closed.
        let length = stdout.read_u32_le().await? as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other(format!("an answer of {length} bytes is too long")));
        }
        let mut answer = vec![0; length];
        stdout.read_exact(&mut answer).await?;
        Ok(answer)
    };
    let mut complaint = Vec::new();
    let mut limited = stderr.take(STDERR_BYTES_MAX);
    let (said, _) = tokio::join!(said, limited.read_to_end(&mut complaint));
    match said {
        Ok(answer) => rmp_serde::from_slice(&answer).map_err(|error| internal("read the answer", &error)),
        Err(_) => {
            let status = child.wait().await.map_err(|error| internal("wait for the compiler", &error))?;
            let complaint = String::from_utf8_lossy(&complaint);
            let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Err(CompileError::Died(format!("{status}{}{last}", if last.is_empty() { "" } else { ": " })))
        }
    }
}

fn understand(answer: Answer, started: Instant) -> Result<Compiled, CompileError> {
    match answer {
        Answer::Compiled { ptx, cubin, log, version, symbols } => {
            let cubin = cubin.map(serde_bytes::ByteBuf::into_vec);
            Ok(Compiled { ptx, cubin, log: cut(log), micros: micros_since(started), version, symbols })
        }
        Answer::Rejected { problem, log } => {
            let log = with_advice(&log);
            let (message, line) = first_error(&log).unwrap_or((problem, None));
            Err(CompileError::Source { message, log: cut(log), line })
        }
        Answer::Refused { message, line } => {
            Err(CompileError::Source { message, log: String::new(), line: Some(line) })
        }
        Answer::NoLibrary(why) => Err(CompileError::NotFound(why)),
        Answer::Open(missing) => Err(CompileError::Open(missing)),
        Answer::Checked(_) | Answer::Identified(_) => {
            Err(CompileError::Internal("the compiler sent an unexpected answer".to_owned()))
        }
        Answer::Failed(why) => Err(CompileError::Internal(why)),
    }
}
