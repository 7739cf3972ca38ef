//! The store's sockets: process 0 accepts the others, and serves each on two threads.

use super::outbox::Outbox;
use super::progress::Progress;
use super::roll_call::{HEARTBEAT_PERIOD, show_seconds};
use super::store::{Outgoing, Rejection, Store};
use super::wire::{
    ClusterFault, FaultKind, Hello, MAGIC, MAX_FRAME_BYTES, MAX_HELLO_BYTES, PROTOCOL, Reply, Request,
    read_body,
};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The time in which a connection must introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of connections that may be open without having introduced themselves, in addition to
/// one for each process.
const MAX_STRANGERS: usize = 64;
/// The time between two reports of the processes that are awaited.
pub(super) const REPORT_PERIOD: Duration = Duration::from_secs(5);
/// The time that process 0 waits for the others to end after a failure.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// The stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// The store, as process 0 serves it.
#[derive(Debug)]
pub(super) struct StoreServer {
    shared: Arc<ServerShared>,
    acceptor: Option<JoinHandle<()>>,
}

/// The part of the server that its threads share.
#[derive(Debug)]
struct ServerShared {
    state: Mutex<ServerState>,
    /// Signals that a process has ended.
    changed: Condvar,
    start: Instant,
    own: Hello,
    /// The calls of process 0, which its heartbeats report.
    progress: Arc<Progress>,
    patience: Option<Duration>,
    join_timeout: Duration,
    address: String,
    strangers: AtomicUsize,
    is_closing: AtomicBool,
}

#[derive(Debug)]
struct ServerState {
    store: Store,
    /// The connections, by rank.
    outboxes: Vec<Option<Arc<Outbox>>>,
}

/// The settings of a server.
pub(super) struct ServerOptions {
    pub(super) own: Hello,
    pub(super) progress: Arc<Progress>,
    pub(super) patience: Option<Duration>,
    pub(super) join_timeout: Duration,
    /// The address, as reports name it.
    pub(super) address: String,
}

/// Starts a thread of the cluster.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(format!("atmesh {name}")).stack_size(STACK_BYTES).spawn(run)
}

/// Prints a report of the cluster.
pub(super) fn report(text: &str) {
    // one write, so that reports of several processes do not mix
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

impl StoreServer {
    /// Serves a listener until [`finish`](StoreServer::finish).
    pub(super) fn start(listener: TcpListener, options: ServerOptions) -> io::Result<StoreServer> {
        // it polls, so that one thread accepts, checks and ends
        listener.set_nonblocking(true)?;
        let ServerOptions { own, progress, patience, join_timeout, address } = options;
        let outboxes = (0..own.processes).map(|_| None).collect();
        let shared = Arc::new(ServerShared {
            state: Mutex::new(ServerState { store: Store::new(own.clone()), outboxes }),
            changed: Condvar::new(),
            start: Instant::now(),
            own,
            progress,
            patience,
            join_timeout,
            address,
            strangers: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
        });
        let acceptor = shared.clone();
        let acceptor = spawn("store", move || accept_all(&acceptor, &listener))?;
        Ok(StoreServer { shared, acceptor: Some(acceptor) })
    }
    /// Waits until the other processes have ended, and stops. Process 0 calls it last.
    ///
    /// After a failure it waits a short time only: a stopped process would never end.
    pub(super) fn finish(mut self) {
        let shared = &self.shared;
        let start = Instant::now();
        let mut next_report = REPORT_PERIOD;
        let mut state = shared.lock();
        while state.store.present().next().is_some() {
            let time = start.elapsed();
            if state.store.fault().is_some() && time > FAREWELL_TIMEOUT {
                break;
            }
            if time > next_report {
                next_report += REPORT_PERIOD;
                report(&format!("atmesh: {} ({})", state.store.unfinished_report(), show_seconds(time)));
            }
            let wait = shared.changed.wait_timeout(state, HEARTBEAT_PERIOD);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        let outboxes: Vec<Arc<Outbox>> = state.outboxes.iter_mut().filter_map(Option::take).collect();
        drop(state);
        outboxes.iter().for_each(|outbox| outbox.close());
        outboxes.iter().for_each(|outbox| outbox.wait_until_written(HEARTBEAT_PERIOD));
        self.stop();
    }
    fn stop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}
impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServerShared {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Changes the store, and sends its answers.
    fn with_store<R>(&self, change: impl FnOnce(&mut Store, Duration, &mut Outgoing) -> R) -> R {
        let mut out = Outgoing::new();
        let mut state = self.lock();
        let result = change(&mut state.store, self.start.elapsed(), &mut out);
        self.send(&state, out);
        result
    }
    /// Lets a process join, whose answers go to `outbox`. Returns its rank.
    fn admit(&self, hello: Hello, outbox: &Arc<Outbox>) -> Result<usize, Rejection> {
        let mut out = Outgoing::new();
        let mut state = self.lock();
        let admitted = state.store.admit(hello, self.start.elapsed(), &mut out);
        if let Ok(process) = &admitted {
            state.outboxes[*process] = Some(outbox.clone());
        }
        self.send(&state, out);
        admitted
    }
    fn send(&self, state: &ServerState, out: Outgoing) {
        for (process, reply) in out {
            // a process that does not read its answers is dropped
            if let Some(outbox) = &state.outboxes[process]
                && !outbox.push(reply.frame())
            {
                outbox.close();
            }
        }
        self.changed.notify_all();
    }
}

/// Accepts connections, and checks the members, until the server closes.
fn accept_all(shared: &Arc<ServerShared>, listener: &TcpListener) {
    let (mut next_check, mut next_report) = (Duration::ZERO, REPORT_PERIOD);
    while !shared.is_closing.load(Ordering::Acquire) {
        let has_room = shared.strangers.load(Ordering::Relaxed) < MAX_STRANGERS + shared.own.processes;
        if has_room && let Ok((stream, _)) = listener.accept() {
            shared.strangers.fetch_add(1, Ordering::Relaxed);
            let serving = shared.clone();
            if spawn("store connection", move || serve(&serving, &stream)).is_err() {
                shared.strangers.fetch_sub(1, Ordering::Relaxed);
            }
            continue;
        }
        let now = shared.start.elapsed();
        if now >= next_check {
            next_check = now + HEARTBEAT_PERIOD;
            let reports = shared.with_store(|store, now, out| store.tick(now, shared.patience, out));
            reports.iter().for_each(|text| report(text));
        }
        let has_all = check_joining(shared, now, &mut next_report);
        // after the joining only strangers connect
        std::thread::sleep(Duration::from_millis(if has_all { 50 } else { 5 }));
    }
}

/// Reports who has not joined, and gives up when the time is over. Returns true if all have joined.
fn check_joining(shared: &ServerShared, now: Duration, next_report: &mut Duration) -> bool {
    let state = shared.lock();
    if state.store.has_all() || state.store.fault().is_some() {
        return true;
    }
    let text = state.store.absent_report();
    drop(state);
    if now >= shared.join_timeout {
        shared.with_store(|store, _, out| store.give_up_joining(&show_seconds(shared.join_timeout), out));
    } else if now >= *next_report {
        *next_report += REPORT_PERIOD;
        report(&format!(
            "atmesh: {text} after {} ({} listens at {})",
            show_seconds(now),
            shared.own.info,
            shared.address
        ));
    }
    false
}

/// Serves a connection until it ends.
fn serve(shared: &Arc<ServerShared>, stream: &TcpStream) {
    let introduced = introduce(shared, stream);
    shared.strangers.fetch_sub(1, Ordering::Relaxed);
    let Some((process, outbox)) = introduced else {
        let _ = stream.shutdown(Shutdown::Both);
        return;
    };
    let writer = stream.try_clone().and_then(|stream| {
        let (outbox, progress) = (outbox.clone(), shared.progress.clone());
        spawn("store writer", move || {
            let beat = || Some(Reply::Beat { position: progress.position() }.frame());
            outbox.write_all(&stream, HEARTBEAT_PERIOD, beat);
        })
    });
    let why = match &writer {
        Ok(_) => read_requests(shared, process, stream),
        Err(e) => Some(format!("process 0 cannot start a thread for it: {e}")),
    };
    if let Some(why) = why {
        shared.with_store(|store, _, out| store.lose(process, &why, out));
    }
    outbox.close();
    if let Ok(writer) = writer {
        outbox.wait_until_written(FAREWELL_TIMEOUT);
        let _ = stream.shutdown(Shutdown::Both);
        let _ = writer.join();
    }
}

/// Greets a connection, and lets its process join. Returns its rank and its queue.
fn introduce(shared: &ServerShared, mut stream: &TcpStream) -> Option<(usize, Arc<Outbox>)> {
    let end = Instant::now() + HELLO_TIMEOUT;
    // accepted sockets inherit the polling of the listener on some systems
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(HELLO_TIMEOUT)).ok()?;
    let info = &shared.own.info;
    let (magic, protocol) = (MAGIC, PROTOCOL);
    let greeting = Reply::Greeting { magic, protocol, host: info.host.clone(), pid: info.pid };
    stream.write_all(&greeting.frame()).ok()?;
    let body = read_body(&mut DeadlineReader { stream, end }, MAX_HELLO_BYTES).ok()?;
    let hello = match Request::from_body(&body)? {
        Request::Hello { magic: MAGIC, protocol: PROTOCOL, hello } => hello,
        _ => return None,
    };
    stream.set_read_timeout(None).ok()?;
    stream.set_write_timeout(None).ok()?;
    let outbox = Arc::new(Outbox::default());
    match shared.admit(hello, &outbox) {
        Ok(process) => Some((process, outbox)),
        Err(Rejection { fault, .. }) => {
            let _ = stream.write_all(&Reply::Failed { fault }.frame());
            // the peer reads the reason before it sees the end of the stream
            let _ = stream.shutdown(Shutdown::Write);
            let _ = read_body(&mut DeadlineReader { stream, end }, MAX_HELLO_BYTES);
            None
        }
    }
}

/// Handles the messages of a process. Returns the reason if it did not say goodbye.
fn read_requests(shared: &ServerShared, process: usize, mut stream: &TcpStream) -> Option<String> {
    loop {
        let request = match read_body(&mut stream, MAX_FRAME_BYTES) {
            Ok(body) => Request::from_body(&body),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => None,
            Err(_) => return Some("its connection closed".into()),
        };
        let Some(request) = request else {
            return Some("it sent bytes that are not a message".into());
        };
        let is_last = matches!(request, Request::Goodbye { .. });
        shared.with_store(|store, now, out| store.handle(process, request, now, out));
        if is_last {
            return None;
        }
    }
}

/// Reads from a socket until a deadline.
pub(super) struct DeadlineReader<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) end: Instant,
}
impl Read for DeadlineReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        match stream.read(to) {
            // systems differ in the error of a timeout
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            result => result,
        }
    }
}

/// Returns the fault of a process that serves something else, or another version.
pub(super) fn other_service(address: &str, what: &str) -> ClusterFault {
    ClusterFault {
        kind: FaultKind::Join,
        message: format!("{address} is not served by process 0: {what}"),
        help: "choose a free port of the host of process 0: `ATMESH_COORDINATOR=host:port`".into(),
        process: None,
    }
}
