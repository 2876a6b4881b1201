//! A TCP proxy between a process of the fleet and the broker or another server, which causes network faults: delay, silence on
//! connections that stay open (half-open links), and connections that break at once or after a number of bytes.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

use crate::Ground;

/// The faults that the proxy applies to the traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The delay of each piece of data.
    pub delay: Duration,
    /// The delay of each piece of data on consuming connections.
    pub delay_consuming: Duration,
    /// The connections whose traffic is held back while they stay open.
    pub silence: Option<Silence>,
    /// A counter. A change breaks the existing connections.
    generation: u64,
}

/// The connections that a silence affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    All,
    /// The connections on which processes consume and acknowledge. They publish over others.
    Consuming,
    /// The connections on which processes publish. They consume and acknowledge over others.
    Publishing,
}

/// A running proxy, which ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    conditions: Arc<watch::Sender<Conditions>>,
    /// How many bytes to the broker may pass until all connections break.
    budget: Arc<AtomicI64>,
    /// How many pieces of data to the broker the silence has held back.
    held: Arc<watch::Sender<u64>>,
    listening: AbortHandle,
}

/// One connection through the proxy.
#[derive(Clone)]
struct ProxiedConnection {
    conditions: watch::Receiver<Conditions>,
    budget: Arc<AtomicI64>,
    held: Arc<watch::Sender<u64>>,
    breaks: Arc<watch::Sender<Conditions>>,
    /// Whether the client consumes on this connection. It is known once the client has sent the connection's name.
    consuming: Arc<OnceLock<bool>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToBroker,
    FromBroker,
}

const PIECE_BYTES: usize = 16 << 10;
/// The ends of the names of the transport's connections, and whether such a connection consumes.
const ROLES: [(&[u8], bool); 2] = [(b"(publish)", false), (b"(consume)", true)];

impl Ground {
    /// Starts a proxy in front of this ground's vhost.
    pub async fn proxy(&self) -> Proxy {
        Proxy::start(&self.node_url()).await
    }
}

impl Proxy {
    async fn start(amqp_url: &str) -> Self {
        let (login, place) = amqp_url.split_once('@').unwrap();
        let (broker, vhost) = place.split_once('/').unwrap();
        Self::before(broker, |address| format!("{login}@{address}/{vhost}")).await
    }

    /// Starts a proxy in front of an HTTP server.
    pub async fn http(server: SocketAddr) -> Self {
        Self::before(&server.to_string(), |address| format!("http://{address}")).await
    }

    async fn before(server: &str, url: impl FnOnce(SocketAddr) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url(listener.local_addr().unwrap());
        let conditions = Arc::new(watch::Sender::new(Conditions::default()));
        let budget = Arc::new(AtomicI64::new(i64::MAX));
        let held = Arc::new(watch::Sender::new(0));
        let passage = ProxiedConnection {
            conditions: conditions.subscribe(),
            budget: Arc::clone(&budget),
            held: Arc::clone(&held),
            breaks: Arc::clone(&conditions),
            consuming: Arc::default(),
        };
        let listening = tokio::spawn(listen(listener, server.to_owned(), passage));
        Self { url, conditions, budget, held, listening: listening.abort_handle() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn delay(&self, delay: Duration) {
        self.conditions.send_modify(|conditions| conditions.delay = delay);
    }

    /// Delays each piece of data on consuming connections.
    pub fn delay_consuming(&self, delay: Duration) {
        self.conditions.send_modify(|conditions| conditions.delay_consuming = delay);
    }

    pub fn silence(&self, silence: Silence) {
        self.held.send_replace(0);
        self.conditions.send_modify(|conditions| conditions.silence = Some(silence));
    }

    /// Waits until the silence holds back data that a process has sent.
    pub async fn holds_back(&self) {
        self.held.subscribe().wait_for(|held| *held > 0).await.unwrap();
    }

    /// Breaks all connections. New connections pass.
    pub fn cut(&self) {
        self.conditions.send_modify(|conditions| conditions.generation += 1);
    }

    /// Breaks all connections after this many more bytes to the broker, even within a frame.
    pub fn cut_after(&self, bytes: u32) {
        self.budget.store(bytes.into(), Ordering::Relaxed);
    }

    /// Returns how often all connections have been broken.
    pub fn breaks(&self) -> u64 {
        self.conditions.borrow().generation
    }

    /// Ends all faults. Data that was held back is delivered.
    pub fn clear(&self) {
        self.budget.store(i64::MAX, Ordering::Relaxed);
        self.conditions.send_modify(|conditions| {
            *conditions = Conditions { generation: conditions.generation, ..Conditions::default() }
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}

async fn listen(listener: TcpListener, broker: String, passage: ProxiedConnection) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        let passage = ProxiedConnection { consuming: Arc::default(), ..passage.clone() };
        let broker = broker.clone();
        tokio::spawn(async move {
            if let Ok(broker) = TcpStream::connect(broker).await {
                passage.carry(client, broker).await;
            }
        });
    }
}

impl ProxiedConnection {
    /// Forwards data until one side closes or a fault breaks the connection. Then closes both sides.
    async fn carry(self, mut client: TcpStream, mut broker: TcpStream) {
        for stream in [&client, &broker] {
            // With Nagle's algorithm, small frames would be delayed by more than the tested delay.
            let _unimportant = stream.set_nodelay(true);
        }
        let (mut from_client, mut to_client) = client.split();
        let (mut from_broker, mut to_broker) = broker.split();
        let mut conditions = self.conditions.clone();
        let generation = conditions.borrow().generation;
        tokio::select! {
            // When a connection breaks, its held data is lost.
            biased;
            _ = conditions.wait_for(|conditions| conditions.generation != generation) => {}
            _ = self.pump(Direction::ToBroker, &mut from_client, &mut to_broker) => {}
            _ = self.pump(Direction::FromBroker, &mut from_broker, &mut to_client) => {}
        }
    }

    async fn pump(
        &self,
        direction: Direction,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut conditions = self.conditions.clone();
        loop {
            let bytes = from.read(&mut piece).await?;
            if bytes == 0 {
                return Ok(());
            }
            self.learn(&piece[..bytes]);
            if direction == Direction::ToBroker && self.is_silent(*conditions.borrow()) {
                self.held.send_modify(|held| *held += 1);
            }
            // An error means that the proxy has been dropped.
            let now =
                *conditions.wait_for(|conditions| !self.is_silent(*conditions)).await.map_err(io::Error::other)?;
            let delay = if self.is_consuming() { now.delay.max(now.delay_consuming) } else { now.delay };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let allowed = if direction == Direction::ToBroker { self.spend(bytes) } else { bytes };
            to.write_all(&piece[..allowed]).await?;
            if allowed < bytes {
                self.budget.store(i64::MAX, Ordering::Relaxed);
                self.breaks.send_modify(|conditions| conditions.generation += 1);
            }
        }
    }

    fn is_silent(&self, conditions: Conditions) -> bool {
        match conditions.silence {
            None => false,
            Some(Silence::All) => true,
            Some(Silence::Consuming) => self.is_consuming(),
            Some(Silence::Publishing) => self.consuming.get() == Some(&false),
        }
    }

    fn is_consuming(&self) -> bool {
        self.consuming.get() == Some(&true)
    }

    fn learn(&self, piece: &[u8]) {
        if self.consuming.get().is_some() {
            return;
        }
        for (role, consuming) in ROLES {
            if piece.windows(role.len()).any(|window| window == role) {
                self.consuming.get_or_init(|| consuming);
            }
        }
    }

    /// Subtracts bytes to the broker from the budget, and returns how many of them may pass before the connections break.
    fn spend(&self, bytes: usize) -> usize {
        let before = self.budget.fetch_sub(bytes as i64, Ordering::Relaxed);
        usize::try_from(before).unwrap_or(0).min(bytes)
    }
}
