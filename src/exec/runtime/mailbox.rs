//! Mailboxes: messages between devices.
//!
//! Each device has one channel, from which it receives the messages of all other devices; messages
//! are distinguished by sender and tag. A message that arrives before it is expected is kept.

use super::deadlock::{DeadlockDetector, Wait};
use super::sync::channel::{Receiver, Sender, TryRecvError, unbounded};
use super::sync::{Mutex, spin_rounds, yield_now};
use crate::core::{Axes, Error, Mesh, Result};
use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;

/// The contents of a message, which are shared, never copied.
pub(crate) type Payload = Arc<dyn Any + Send + Sync>;

/// The exchange that a message belongs to. Messages of one sender with one tag arrive in the order
/// of sending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tag {
    /// A message that the user sends with `send`.
    Peer,
    /// A collective: its axes, its number among those over these axes, and the round within it.
    Collective(Axes, u64, u8),
    /// A step of a program.
    Step(u64),
    /// The end of the run.
    Stop,
}

/// A message between devices.
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) tag: Tag,
    pub(crate) payload: Payload,
}

/// The number of yields before a device sleeps. There is no spinning, because there may be more
/// threads than cores.
const NUM_YIELDS: usize = spin_rounds(50);

/// The channels between the devices of one run.
pub(crate) struct Network {
    senders: Vec<Sender<Message>>,
    inboxes: Vec<Mutex<Option<Receiver<Message>>>>,
    pub(crate) detector: DeadlockDetector,
}

impl Network {
    pub(crate) fn new(devices: usize, mesh: Option<Mesh>) -> Network {
        let (senders, inboxes) = (0..devices).map(|_| unbounded()).unzip::<_, _, Vec<_>, Vec<_>>();
        let inboxes = inboxes.into_iter().map(|r| Mutex::new(Some(r))).collect();
        Network { senders, inboxes, detector: DeadlockDetector::new(devices, mesh) }
    }
    /// Returns the mailbox of `device`. It can be taken only once, by the thread that runs the
    /// device.
    pub(crate) fn mailbox(self: &Arc<Network>, device: usize) -> Mailbox {
        let inbox = self.inboxes[device].lock().unwrap_or_else(|e| e.into_inner()).take();
        let inbox = inbox.expect("one thread runs each device");
        Mailbox {
            network: self.clone(),
            device,
            inbox,
            early: EarlyMessages::default(),
            knows_verdict: Cell::new(false),
        }
    }
    /// Ends the run with this error, unless it has already ended.
    pub(crate) fn stop(&self, error: Error) {
        if self.detector.stop(error) {
            self.wake_all();
        }
    }
    fn wake_all(&self) {
        for (device, line) in self.senders.iter().enumerate() {
            self.detector.message_sent(device);
            // a device that has returned does not need to be woken
            let _ = line.send(Message { from: device, tag: Tag::Stop, payload: Arc::new(()) });
        }
    }
    /// Records that the device's code has returned.
    fn ended(&self, device: usize) {
        if self.detector.ended(device) {
            self.wake_all();
        }
    }
    /// Returns the hook for
    /// [`CallerHooks::on_timeout`](super::device_threads::CallerHooks::on_timeout).
    ///
    /// If a run has failed but has still not ended at the second timeout, the hook prints once, on
    /// stderr, why it failed and which devices still run.
    pub(crate) fn timeout_reporter(&self) -> impl Fn() {
        let times = Cell::new(0);
        move || {
            if let Some(text) = self.detector.stall_report() {
                times.set(times.get() + 1);
                if times.get() == 2 {
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
            }
        }
    }
    /// Returns a guard that records the end of the device when it is dropped, even by a panic.
    pub(crate) fn end_on_drop(&self, device: usize) -> impl Drop {
        struct EndOnDrop<'a>(&'a Network, usize);
        impl Drop for EndOnDrop<'_> {
            fn drop(&mut self) {
                self.0.ended(self.1);
            }
        }
        EndOnDrop(self, device)
    }
    /// Returns the error that ended the run.
    pub(crate) fn verdict(&self) -> Error {
        self.detector.stopped().cloned().unwrap_or_else(|| fault!(Aborted, "the run has ended").into())
    }
}

/// Messages that arrived before they were expected, by sender and tag.
#[derive(Default)]
pub(crate) struct EarlyMessages(HashMap<(usize, Tag), VecDeque<Payload>>);
impl EarlyMessages {
    fn put(&mut self, message: Message) {
        self.0.entry((message.from, message.tag)).or_default().push_back(message.payload);
    }
    fn take(&mut self, from: usize, tag: &Tag) -> Option<Payload> {
        if self.0.is_empty() {
            return None;
        }
        let key = (from, tag.clone());
        let messages = self.0.get_mut(&key)?;
        let body = messages.pop_front();
        if messages.is_empty() {
            self.0.remove(&key);
        }
        body
    }
    /// Returns true if there is a message of this sender with this tag.
    pub(crate) fn has(&self, from: usize, tag: &Tag) -> bool {
        self.0.contains_key(&(from, tag.clone()))
    }
}

/// A device's endpoint of the network.
pub(crate) struct Mailbox {
    pub(crate) network: Arc<Network>,
    pub(crate) device: usize,
    inbox: Receiver<Message>,
    early: EarlyMessages,
    /// True once the device knows that the run has ended. Its later failures are consequences of
    /// that.
    knows_verdict: Cell<bool>,
}

impl Mailbox {
    /// Returns the error that ended the run, and records that the device knows it.
    pub(crate) fn verdict(&self) -> Error {
        self.knows_verdict.set(true);
        self.network.verdict()
    }
    /// Returns true if the device knows that the run has ended.
    pub(crate) fn knows_verdict(&self) -> bool {
        self.knows_verdict.get()
    }
    /// Sends a message to a device without waiting. A device that has returned gets nothing.
    pub(crate) fn send(&self, to: usize, tag: Tag, body: Payload) -> Result<()> {
        if self.network.detector.stopped().is_some() {
            return Err(self.verdict());
        }
        self.network.detector.message_sent(to);
        let _ = self.network.senders[to].send(Message { from: self.device, tag, payload: body });
        Ok(())
    }
    /// Receives the next message of `from` with this tag.
    ///
    /// If the device must sleep, `wait` describes what it waits for, given the messages that came
    /// early.
    pub(crate) fn receive(
        &mut self,
        from: usize,
        tag: &Tag,
        wait: &dyn Fn(&EarlyMessages) -> Wait,
    ) -> Result<Payload> {
        if let Some(body) = self.early.take(from, tag) {
            return Ok(body);
        }
        // each device is notified once that the run ends; one that goes on after that is not woken
        // again
        if self.knows_verdict.get() || self.network.detector.stopped().is_some() {
            return Err(self.verdict());
        }
        loop {
            let message = self.next(wait)?;
            if message.tag == Tag::Stop {
                return Err(self.verdict());
            }
            if message.from == from && message.tag == *tag {
                return Ok(message.payload);
            }
            self.early.put(message);
        }
    }
    fn next(&self, wait: &dyn Fn(&EarlyMessages) -> Wait) -> Result<Message> {
        let board = &self.network.detector;
        for _ in 0..NUM_YIELDS {
            match self.inbox.try_recv() {
                Ok(message) => {
                    board.message_taken(self.device);
                    return Ok(message);
                }
                Err(TryRecvError::Disconnected) => return Err(self.verdict()),
                Err(TryRecvError::Empty) => yield_now(),
            }
        }
        if board.sleep(self.device, wait(&self.early)) {
            self.network.wake_all();
        }
        let message = self.inbox.recv().map_err(|_| self.verdict())?;
        board.woke(self.device);
        Ok(message)
    }
}
