//! A process's connection to the store: one socket, a thread that reads it and one that writes.

use super::options::{JoinPlan, unreachable_help};
use super::outbox::Outbox;
use super::progress::Progress;
use super::roll_call::{HEARTBEAT_PERIOD, SILENCE_LIMIT, show_seconds, silence_report, silent_fault};
use super::server::{DeadlineReader, REPORT_PERIOD, other_service, report, spawn};
use super::wire::{
    ClusterFault, FaultKind, Hello, MAGIC, MAX_FRAME_BYTES, MAX_HELLO_BYTES, Meeting, PROTOCOL, Position,
    ProcessInfo, Reply, Request, WireList, read_body,
};
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time for one attempt to connect, and for the greeting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two attempts to connect.
const RETRY_PERIOD: Duration = Duration::from_millis(20);
/// The time that the store has to say that the joining failed, after its own limit.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a process waits for the answer to its goodbye.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// The bytes of a request in addition to its key and value.
const MAX_OVERHEAD_BYTES: usize = 1 << 16;

/// A function that is called once, when the cluster fails.
type FaultHook = Box<dyn FnOnce(&ClusterFault) + Send>;

/// A connection to the store, on which all processes have joined.
pub(super) struct StoreConnection {
    link: Arc<StoreLink>,
    stream: TcpStream,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// The processes, by rank.
    members: Vec<ProcessInfo>,
}

/// The outcome of a meeting.
#[derive(Debug, Default)]
pub(super) struct MeetingResult {
    /// The bytes of the root.
    pub(super) payload: Vec<u8>,
    /// The failure of a process, which the message names.
    #[cfg_attr(not(feature = "xla"), expect(dead_code, reason = "only the engine xla compiles together"))]
    pub(super) failure: Option<String>,
}

/// The part of a connection that its threads share.
struct StoreLink {
    state: Mutex<LinkState>,
    /// Signals an answer, or the failure of the cluster.
    changed: Condvar,
    outbox: Outbox,
    progress: Arc<Progress>,
    patience: Option<Duration>,
    /// The rank of this process.
    process: usize,
    /// Process 0, which serves the store.
    server: ProcessInfo,
}

struct LinkState {
    next_id: u64,
    /// The questions that wait, with the answers that have arrived.
    answers: HashMap<u64, Option<Reply>>,
    fault: Option<ClusterFault>,
    hooks: Vec<FaultHook>,
    /// The text that explains the current meeting.
    text: Option<Arc<str>>,
    /// True once the store has answered the goodbye, or its connection has closed.
    is_over: bool,
    /// The time of the last message, and the position of process 0 then.
    heard: Instant,
    server_position: Position,
    is_silent: bool,
}

impl StoreConnection {
    /// Joins the other processes: returns when all of them have.
    pub(super) fn join(
        plan: &JoinPlan,
        hello: Hello,
        progress: Arc<Progress>,
    ) -> Result<StoreConnection, ClusterFault> {
        let process = hello.info.process;
        let end = Instant::now() + plan.join_timeout;
        let (stream, server) = connect(plan, &hello.info, end)?;
        let request = Request::Hello { magic: MAGIC, protocol: PROTOCOL, hello };
        let fail = |e: io::Error| server_gone(&server, &format!("its connection failed: {e}"));
        let welcome = send_hello(&stream, &request, end + VERDICT_TIMEOUT);
        let members = match welcome {
            Ok(Reply::Welcome { members }) => members.0,
            Ok(Reply::Failed { fault }) => return Err(fault),
            Ok(_) => return Err(other_service(&plan.coordinator, "its answer is not one of the store")),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Err(server_gone(&server, "it did not say that all processes have joined"));
            }
            Err(_) => return Err(server_gone(&server, "its connection closed while the processes joined")),
        };
        stream.set_read_timeout(None).map_err(fail)?;
        let server = members.first().cloned().unwrap_or(server);
        let link = Arc::new(StoreLink {
            state: Mutex::new(LinkState {
                next_id: 0,
                answers: HashMap::new(),
                fault: None,
                hooks: Vec::new(),
                text: None,
                is_over: false,
                heard: Instant::now(),
                server_position: Position::default(),
                is_silent: false,
            }),
            changed: Condvar::new(),
            outbox: Outbox::default(),
            progress,
            patience: plan.patience,
            process,
            server,
        });
        StoreConnection::start(link, stream, members)
    }
    fn start(
        link: Arc<StoreLink>,
        stream: TcpStream,
        members: Vec<ProcessInfo>,
    ) -> Result<StoreConnection, ClusterFault> {
        let fail = |e: io::Error| ClusterFault {
            kind: FaultKind::Join,
            message: format!("cannot start the threads of the connection: {e}"),
            help: String::new(),
            process: None,
        };
        let (to_read, to_write) = (stream.try_clone().map_err(fail)?, stream.try_clone().map_err(fail)?);
        let (reading, writing) = (link.clone(), link.clone());
        let reader = spawn("reader", move || reading.read_all(&to_read)).map_err(fail)?;
        spawn("heartbeat", move || {
            let mut last = Instant::now();
            writing.outbox.write_all(&to_write, HEARTBEAT_PERIOD, || Some(writing.beat(&mut last)));
        })
        .map_err(fail)?;
        Ok(StoreConnection { link, stream, reader: Mutex::new(Some(reader)), members })
    }
    /// Returns the processes, by rank.
    pub(super) fn members(&self) -> &[ProcessInfo] {
        &self.members
    }
    /// Returns the reason why the cluster cannot go on, if there is one.
    pub(super) fn fault(&self) -> Option<ClusterFault> {
        self.link.lock().fault.clone()
    }
    /// Calls `hook` when the cluster fails, or immediately if it has.
    #[cfg(any(test, feature = "xla"))]
    pub(super) fn on_fault(&self, hook: impl FnOnce(&ClusterFault) + Send + 'static) {
        let mut state = self.link.lock();
        match state.fault.clone() {
            Some(fault) => {
                drop(state);
                hook(&fault);
            }
            None => state.hooks.push(Box::new(hook)),
        }
    }
    /// Stores a value under a key, for all processes.
    #[cfg(any(test, feature = "xla"))]
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), ClusterFault> {
        let too_large = |n: usize| oversized(&format!("a value of {n} bytes"));
        if key.len() + value.len() > MAX_FRAME_BYTES - MAX_OVERHEAD_BYTES {
            return Err(too_large(key.len() + value.len()));
        }
        let (key, value) = (key.to_vec(), value.to_vec());
        match self.link.ask(None, |id| Request::Set { id, key, value })? {
            Some(Reply::Stored { error: Some(error), .. }) => Err(oversized(&error)),
            _ => Ok(()),
        }
    }
    /// Returns the value of a key. Waits up to `wait` for one; `None` if none is stored by then.
    #[cfg(any(test, feature = "xla"))]
    pub(super) fn get(&self, key: &[u8], wait: Duration) -> Result<Option<Vec<u8>>, ClusterFault> {
        let key = key.to_vec();
        let end = Instant::now().checked_add(wait).filter(|_| !wait.is_zero());
        match self.link.ask(end, |id| Request::Get { id, key, wait: !wait.is_zero() })? {
            Some(Reply::Value { value, .. }) => Ok(value),
            _ => Ok(None),
        }
    }
    /// Reports a failure of this process, which ends the cluster.
    #[cfg(feature = "xla")]
    pub(super) fn report_failure(&self, message: &str) {
        self.link.outbox.push(Request::Fail { message: message.into() }.frame());
    }
    /// Arrives at a meeting, and waits for all processes. Returns the bytes of the root.
    ///
    /// `text` explains a difference of `meeting.check`.
    pub(super) fn meet(
        &self,
        meeting: Meeting,
        text: Option<Arc<str>>,
    ) -> Result<MeetingResult, ClusterFault> {
        if meeting.payload.len() + meeting.check.len() > MAX_FRAME_BYTES - MAX_OVERHEAD_BYTES {
            return Err(oversized(&format!("a message of {} bytes", meeting.payload.len())));
        }
        self.link.lock().text = text;
        let reply = self.link.ask(None, |id| Request::Meet { id, meeting });
        self.link.lock().text = None;
        Ok(match reply? {
            Some(Reply::Met { payload, failure, .. }) => MeetingResult { payload, failure },
            _ => MeetingResult::default(),
        })
    }
    /// Ends the connection. The other processes do not wait for this one, or receive its failure.
    pub(super) fn goodbye(&self, failure: Option<String>) {
        self.link.outbox.push(Request::Goodbye { failure }.frame());
        self.link.outbox.close();
        let end = Instant::now() + FAREWELL_TIMEOUT;
        let mut state = self.link.lock();
        // a store that is gone or stopped does not answer
        while !state.is_over && state.fault.as_ref().is_none_or(|fault| fault.process != Some(0)) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.link.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = reader.join();
        }
        // threads of a plugin may still wait for values
        self.link.fail(ClusterFault {
            kind: FaultKind::Process,
            message: "this process has left the others".into(),
            help: "keep the `Cluster` until the end of the program".into(),
            process: None,
        });
    }
}

impl StoreLink {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Asks the store, and waits for the answer; `None` if there is none at time `end`.
    fn ask(
        &self,
        end: Option<Instant>,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<Option<Reply>, ClusterFault> {
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        state.next_id += 1;
        let id = state.next_id;
        state.answers.insert(id, None);
        drop(state);
        if !self.outbox.push(request(id).frame()) {
            self.fail(server_gone(&self.server, "it does not read its messages"));
        }
        let mut state = self.lock();
        loop {
            if let Some(Some(_)) = state.answers.get(&id) {
                return Ok(state.answers.remove(&id).flatten());
            }
            if let Some(fault) = state.fault.clone() {
                state.answers.remove(&id);
                return Err(fault);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.answers.remove(&id);
                drop(state);
                self.outbox.push(Request::Cancel { id }.frame());
                return Ok(None);
            }
            state = match left {
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
    /// Records why the cluster cannot go on, and wakes everything that waits.
    fn fail(&self, fault: ClusterFault) {
        let mut state = self.lock();
        if state.fault.is_some() {
            return;
        }
        state.fault = Some(fault.clone());
        let hooks = std::mem::take(&mut state.hooks);
        self.changed.notify_all();
        drop(state);
        hooks.into_iter().for_each(|hook| hook(&fault));
    }
    /// Reads the store's messages until the connection ends.
    fn read_all(&self, mut stream: &TcpStream) {
        loop {
            let reply = read_body(&mut stream, MAX_FRAME_BYTES).ok().and_then(|body| Reply::from_body(&body));
            let Some(reply) = reply else {
                let last = self.lock().server_position.clone();
                self.fail(server_gone(&self.server, &format!("its connection closed; last it {last}")));
                self.lock().is_over = true;
                self.changed.notify_all();
                return;
            };
            let mut state = self.lock();
            state.heard = Instant::now();
            match &reply {
                Reply::Value { id, .. } | Reply::Stored { id, .. } | Reply::Met { id, .. } => {
                    let id = *id;
                    // the question may have been given up
                    if let Some(answer) = state.answers.get_mut(&id) {
                        *answer = Some(reply);
                    }
                }
                Reply::Beat { position } => state.server_position = position.clone(),
                Reply::Failed { fault } => {
                    drop(state);
                    self.fail(fault.clone());
                }
                Reply::Farewell {} => {
                    state.is_over = true;
                    self.changed.notify_all();
                    return;
                }
                Reply::Ask {} => {
                    let text = state.text.as_deref().map(str::as_bytes).unwrap_or_default();
                    let text = text[..text.len().min(MAX_FRAME_BYTES / 2)].to_vec();
                    let calls = WireList(self.progress.last_calls());
                    self.outbox.push(Request::Evidence { text, calls }.frame());
                }
                Reply::Greeting { .. } | Reply::Welcome { .. } => {}
            }
            self.changed.notify_all();
        }
    }
    /// Returns the next heartbeat, after a check that the store is not silent.
    fn beat(&self, last: &mut Instant) -> Vec<u8> {
        let was_stopped = std::mem::replace(last, Instant::now()).elapsed() > SILENCE_LIMIT / 2;
        let mut state = self.lock();
        if was_stopped {
            state.heard = Instant::now();
        }
        let (time, position) = (state.heard.elapsed(), state.server_position.clone());
        if self.patience.is_some_and(|patience| time > patience.max(SILENCE_LIMIT)) {
            drop(state);
            self.fail(silent_fault(&self.server, &position, time));
        } else if (time > SILENCE_LIMIT) != state.is_silent {
            state.is_silent = time > SILENCE_LIMIT;
            // process 0 itself reports the silence of others
            if self.process == 1 {
                report(&match state.is_silent {
                    true => silence_report(&self.server, &position, time),
                    false => format!("atmesh: {} sends again", self.server),
                });
            }
        }
        Request::Beat { position: self.progress.position() }.frame()
    }
}

fn oversized(what: &str) -> ClusterFault {
    ClusterFault {
        kind: FaultKind::Join,
        message: format!("{what} does not fit into the store of process 0"),
        help: format!("send at most {} bytes at a time", MAX_FRAME_BYTES - MAX_OVERHEAD_BYTES),
        process: None,
    }
}

fn server_gone(server: &ProcessInfo, why: &str) -> ClusterFault {
    ClusterFault {
        kind: FaultKind::Process,
        message: format!("{server} is gone: {why}"),
        help: "look at the output of that process, and start all processes again".into(),
        process: Some(0),
    }
}

/// Connects to process 0, which may start later. Returns what it says of itself.
fn connect(
    plan: &JoinPlan,
    own: &ProcessInfo,
    end: Instant,
) -> Result<(TcpStream, ProcessInfo), ClusterFault> {
    let start = Instant::now();
    let mut next_report = REPORT_PERIOD;
    loop {
        let why = match try_connect(&plan.coordinator) {
            Ok(Greeted::Store(stream, server)) => return Ok((stream, server)),
            Ok(Greeted::Other(what)) => return Err(other_service(&plan.coordinator, &what)),
            Err(e) => e,
        };
        let time = start.elapsed();
        if Instant::now() >= end {
            let message = format!(
                "{own} found no process 0 at {} within {}: {why}",
                plan.coordinator,
                show_seconds(plan.join_timeout)
            );
            let help = unreachable_help(&plan.coordinator);
            return Err(ClusterFault { kind: FaultKind::Join, message, help, process: None });
        }
        if time > next_report {
            next_report += REPORT_PERIOD;
            let address = &plan.coordinator;
            report(&format!(
                "atmesh: {own} waits for process 0 at {address} ({}): {why}",
                show_seconds(time)
            ));
        }
        std::thread::sleep(RETRY_PERIOD);
    }
}

/// The service at an address.
enum Greeted {
    Store(TcpStream, ProcessInfo),
    /// Another program, or another version of this one.
    Other(String),
}

fn try_connect(address: &str) -> io::Result<Greeted> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name of its host is not known");
    for socket_address in address.to_socket_addrs()? {
        let stream = match TcpStream::connect_timeout(&socket_address, CONNECT_TIMEOUT) {
            Ok(stream) => stream,
            Err(e) => {
                error = e;
                continue;
            }
        };
        // a connection to a free port of this host may find itself
        if stream.local_addr()? == stream.peer_addr()? {
            continue;
        }
        stream.set_nodelay(true)?;
        let end = Instant::now() + CONNECT_TIMEOUT;
        let body = match read_body(&mut DeadlineReader { stream: &stream, end }, MAX_HELLO_BYTES) {
            Ok(body) => body,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Ok(Greeted::Other("another program answers".into()));
            }
            Err(e) => {
                error = io::Error::new(e.kind(), format!("it does not answer ({e})"));
                continue;
            }
        };
        return Ok(match Reply::from_body(&body) {
            Some(Reply::Greeting { magic: MAGIC, protocol: PROTOCOL, host, pid }) => {
                let info = ProcessInfo { process: 0, host, pid, local_process: 0, devices: 0 };
                Greeted::Store(stream, info)
            }
            Some(Reply::Greeting { magic: MAGIC, protocol, .. }) => {
                Greeted::Other(format!("it has version {protocol} of the store, this process has {PROTOCOL}"))
            }
            _ => Greeted::Other("another program answers".into()),
        });
    }
    Err(error)
}

/// Sends the first message, and returns the first answer that is not a heartbeat.
fn send_hello(mut stream: &TcpStream, request: &Request, end: Instant) -> io::Result<Reply> {
    stream.write_all(&request.frame())?;
    loop {
        let body = read_body(&mut DeadlineReader { stream, end }, MAX_FRAME_BYTES)?;
        match Reply::from_body(&body) {
            Some(Reply::Beat { .. }) => {}
            Some(reply) => return Ok(reply),
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
#[path = "tests/connection.rs"]
mod tests;
