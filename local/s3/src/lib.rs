//! A private S3 server over a folder, on a loopback port and with credentials of its own. Tests run it in their process; `gpufleet local`
//! starts it as a program.
//!
//! The server is s3s-fs, which keeps each bucket as a folder. It is made for tests: it syncs nothing to the disk.

mod access;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::Ordering},
    thread::JoinHandle,
};

use hyper::{
    Method, Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::rt::TokioIo;
use s3s::{
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tokio::{net::TcpListener, runtime, sync::oneshot};
use uuid::Uuid;

use self::access::Access;

/// A key that clients sign their requests with.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: String,
}

/// A request that the server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub method: Method,
    /// The path, with the bucket first, and the query.
    pub target: String,
}

/// A server on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    folder: PathBuf,
    credentials: Credentials,
    received: Arc<Mutex<Vec<Received>>>,
    access: Access,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Credentials {
    /// A key that no other process knows.
    pub fn random() -> Self {
        let word = || Uuid::new_v4().simple().to_string();
        Self { access_key_id: word(), secret_access_key: word() }
    }
}

/// Shows no secrets.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves a folder on a free port of 127.0.0.1. Returns when the server accepts connections.
    pub fn start(folder: &Path) -> io::Result<Self> {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), folder, Credentials::random())
    }

    pub fn start_on(address: SocketAddr, folder: &Path, credentials: Credentials) -> io::Result<Self> {
        let (received, access) = (Arc::default(), Access::default());
        let mut server = Self { address, folder: folder.to_owned(), credentials, received, access, running: None };
        server.resume()?;
        Ok(server)
    }

    /// `http://127.0.0.1:<port>`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Creates a bucket, and returns the folder of its objects.
    pub fn create_bucket(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).map(|()| folder)
    }

    /// The requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no thread panics while it holds the list").clone()
    }

    /// From now on, replaces objects that exist even if a request says to create them, as some servers do.
    pub fn ignore_conditions(&self) {
        self.access.ignores_conditions.store(true, Ordering::Relaxed);
    }

    /// Closes all connections and the port. Does nothing if the server is stopped.
    pub fn stop(&mut self) {
        let Some(Running { stop, thread }) = self.running.take() else { return };
        // An error means that the thread has ended.
        let _ended = stop.send(());
        drop(thread.join());
    }

    /// Starts again after [`Server::stop`], on the same port.
    pub fn resume(&mut self) -> io::Result<()> {
        let listener = std::net::TcpListener::bind(self.address)?;
        listener.set_nonblocking(true)?;
        self.address = listener.local_addr()?;
        let service = service(&self.folder, &self.credentials, self.access.clone())?;
        let received = Arc::clone(&self.received);
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("the listener is valid");
                tokio::select! {
                    () = serve(listener, service, received) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        self.running = Some(Running { stop, thread });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn service(folder: &Path, credentials: &Credentials, access: Access) -> io::Result<S3Service> {
    let files = FileSystem::new(folder).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut builder = S3ServiceBuilder::new(files);
    let Credentials { access_key_id, secret_access_key } = credentials.clone();
    builder.set_auth(SimpleAuth::from_single(access_key_id, secret_access_key));
    builder.set_access(access);
    Ok(builder.build())
}

async fn serve(listener: TcpListener, service: S3Service, received: Arc<Mutex<Vec<Received>>>) {
    loop {
        // A client that has already gone.
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Nagle's algorithm would delay the end of each answer.
        drop(stream.set_nodelay(true));
        let (service, received) = (service.clone(), Arc::clone(&received));
        let service = service_fn(move |request: Request<Incoming>| {
            let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
            let one = Received { method: request.method().clone(), target };
            received.lock().expect("no thread panics while it holds the list").push(one);
            Service::call(&service, request)
        });
        // An error concerns one connection, and its client sees it too.
        tokio::spawn(async move { drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await) });
    }
}
