//! Messages between devices: one channel to each, letters told apart by sender and tag.

use super::board::{Board, Wait};
use super::sync::channel::{Receiver, Sender, TryRecvError, unbounded};
use super::sync::{Mutex, rounds, yield_now};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::{Axes, Mesh};
use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;

/// What is sent: shared, never copied.
pub(crate) type Body = Arc<dyn Any + Send + Sync>;

/// What a letter belongs to. Letters of one sender with one tag arrive in the order in which they were sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tag {
    /// A message of the user's.
    Peer,
    /// A collective: over which axes, which one in order, and which exchange of it.
    Group(Axes, u64, u8),
    /// A step of a program.
    Step(u64),
    /// The run ends.
    Stop,
}

/// A message.
pub(crate) struct Letter {
    pub(crate) from: usize,
    pub(crate) tag: Tag,
    pub(crate) body: Body,
}

/// Threads are more than cores: no spinning, some yields, then sleep.
const YIELDS: usize = rounds(50);

/// The channels among the devices of one run.
pub(crate) struct Network {
    lines: Vec<Sender<Letter>>,
    inboxes: Vec<Mutex<Option<Receiver<Letter>>>>,
    pub(crate) board: Board,
}

impl Network {
    pub(crate) fn new(devices: usize, mesh: Option<Mesh>) -> Network {
        let (lines, inboxes) = (0..devices).map(|_| unbounded()).unzip::<_, _, Vec<_>, Vec<_>>();
        let inboxes = inboxes.into_iter().map(|r| Mutex::new(Some(r))).collect();
        Network { lines, inboxes, board: Board::new(devices, mesh) }
    }
    /// The end of `device`; each is taken once, by the thread that runs it.
    pub(crate) fn mailbox(self: &Arc<Network>, device: usize) -> Mailbox {
        let inbox = self.inboxes[device].lock().unwrap_or_else(|e| e.into_inner()).take();
        let inbox = inbox.expect("one thread runs each device");
        Mailbox { network: self.clone(), device, inbox, kept: Kept::default(), told: Cell::new(false) }
    }
    /// Ends the run with this error, unless it ends already.
    pub(crate) fn stop(&self, error: Error) {
        if self.board.stop(error) {
            self.wake_all();
        }
    }
    fn wake_all(&self) {
        for (device, line) in self.lines.iter().enumerate() {
            self.board.sent(device);
            // a device that has returned needs no waking
            let _ = line.send(Letter { from: device, tag: Tag::Stop, body: Arc::new(()) });
        }
    }
    /// The device's code has returned.
    fn ended(&self, device: usize) {
        if self.board.ended(device) {
            self.wake_all();
        }
    }
    /// For a caller who is [late](super::devices::Caller::late): when a run that had failed before has still not ended, it is told once, on
    /// stderr, why and who still runs.
    pub(crate) fn late(&self) -> impl Fn() {
        let times = Cell::new(0);
        move || {
            if let Some(text) = self.board.held_up() {
                times.set(times.get() + 1);
                if times.get() == 2 {
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
            }
        }
    }
    /// Ends the device's part when dropped, whatever its code does.
    pub(crate) fn end(&self, device: usize) -> impl Drop {
        struct End<'a>(&'a Network, usize);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.ended(self.1);
            }
        }
        End(self, device)
    }
    /// Why the run ended.
    pub(crate) fn verdict(&self) -> Error {
        self.board
            .stopped()
            .cloned()
            .unwrap_or_else(|| Fault::new(ErrorKind::Stopped, "the run has ended").into())
    }
}

/// Letters that came before they were asked for, by sender and tag.
#[derive(Default)]
pub(crate) struct Kept(HashMap<(usize, Tag), VecDeque<Body>>);
impl Kept {
    fn put(&mut self, letter: Letter) {
        self.0.entry((letter.from, letter.tag)).or_default().push_back(letter.body);
    }
    fn take(&mut self, from: usize, tag: &Tag) -> Option<Body> {
        if self.0.is_empty() {
            return None;
        }
        let key = (from, tag.clone());
        let letters = self.0.get_mut(&key)?;
        let body = letters.pop_front();
        if letters.is_empty() {
            self.0.remove(&key);
        }
        body
    }
    /// Whether there is a letter of this sender with this tag.
    pub(crate) fn has(&self, from: usize, tag: &Tag) -> bool {
        self.0.contains_key(&(from, tag.clone()))
    }
}

/// A device's end of the network.
pub(crate) struct Mailbox {
    pub(crate) network: Arc<Network>,
    pub(crate) device: usize,
    inbox: Receiver<Letter>,
    kept: Kept,
    /// Whether the device was told that the run had ended: what fails after that fails because of it.
    told: Cell<bool>,
}

impl Mailbox {
    /// Why the run ended; the device knows it from now on.
    pub(crate) fn verdict(&self) -> Error {
        self.told.set(true);
        self.network.verdict()
    }
    /// Whether the device was told that the run had ended.
    pub(crate) fn told(&self) -> bool {
        self.told.get()
    }
    /// Sends to a device; never waits. A device that has returned gets nothing.
    pub(crate) fn send(&self, to: usize, tag: Tag, body: Body) -> Result<()> {
        if self.network.board.stopped().is_some() {
            return Err(self.verdict());
        }
        self.network.board.sent(to);
        let _ = self.network.lines[to].send(Letter { from: self.device, tag, body });
        Ok(())
    }
    /// The next letter of `from` with this tag. `wait` says what the device waits for, if it must sleep, given the letters that came early.
    pub(crate) fn receive(&mut self, from: usize, tag: &Tag, wait: &dyn Fn(&Kept) -> Wait) -> Result<Body> {
        if let Some(body) = self.kept.take(from, tag) {
            return Ok(body);
        }
        // each device is told once that the run ends: whoever goes on after that is not woken again
        if self.told.get() || self.network.board.stopped().is_some() {
            return Err(self.verdict());
        }
        loop {
            let letter = self.next(wait)?;
            if letter.tag == Tag::Stop {
                return Err(self.verdict());
            }
            if letter.from == from && letter.tag == *tag {
                return Ok(letter.body);
            }
            self.kept.put(letter);
        }
    }
    fn next(&self, wait: &dyn Fn(&Kept) -> Wait) -> Result<Letter> {
        let board = &self.network.board;
        for _ in 0..YIELDS {
            match self.inbox.try_recv() {
                Ok(letter) => {
                    board.taken(self.device);
                    return Ok(letter);
                }
                Err(TryRecvError::Disconnected) => return Err(self.verdict()),
                Err(TryRecvError::Empty) => yield_now(),
            }
        }
        if board.sleep(self.device, wait(&self.kept)) {
            self.network.wake_all();
        }
        let letter = self.inbox.recv().map_err(|_| self.verdict())?;
        board.woke(self.device);
        Ok(letter)
    }
}
