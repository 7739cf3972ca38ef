//! The messages between processes, and their bytes.
//!
//! A frame is the length of its body as four little-endian bytes, followed by the body: a tag of
//! one byte, and the fields in order. Reading checks every length, so that arbitrary bytes are an
//! error and never more than a bounded allocation.

use std::fmt;
use std::io::{self, Read};

/// The maximum length of a body, in bytes. Keys, values and broadcasts must fit.
pub(super) const MAX_FRAME_BYTES: usize = 64 << 20;
/// The maximum length of the first body that a connection sends, in bytes.
pub(super) const MAX_HELLO_BYTES: usize = 1 << 16;
/// The first field of the first message in both directions.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"atmesh\r\n");
/// The version of these messages. Processes with different versions do not join.
pub(super) const PROTOCOL: u32 = 1;

/// A value that is part of a message.
pub(super) trait WireField: Sized {
    /// Appends the bytes of this value.
    fn encode(&self, to: &mut Vec<u8>);
    /// Removes a value from the front of `from`; `None` if it does not start with one.
    fn decode(from: &mut &[u8]) -> Option<Self>;
}

/// Removes `n` bytes from the front.
fn take_bytes<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (first, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(first)
}

macro_rules! integer_fields { ($($ty:ty)*) => {$(
    impl WireField for $ty {
        fn encode(&self, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.to_le_bytes());
        }
        fn decode(from: &mut &[u8]) -> Option<$ty> {
            Some(<$ty>::from_le_bytes(take_bytes(from, size_of::<$ty>())?.try_into().ok()?))
        }
    }
)*} }
integer_fields! { u8 u32 u64 }

impl WireField for bool {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }
    fn decode(from: &mut &[u8]) -> Option<bool> {
        match u8::decode(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}
impl WireField for usize {
    fn encode(&self, to: &mut Vec<u8>) {
        (*self as u64).encode(to);
    }
    fn decode(from: &mut &[u8]) -> Option<usize> {
        usize::try_from(u64::decode(from)?).ok()
    }
}
impl WireField for Vec<u8> {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u32).encode(to);
        to.extend_from_slice(self);
    }
    fn decode(from: &mut &[u8]) -> Option<Vec<u8>> {
        let len = u32::decode(from)? as usize;
        Some(take_bytes(from, len)?.to_vec())
    }
}
impl WireField for String {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u32).encode(to);
        to.extend_from_slice(self.as_bytes());
    }
    fn decode(from: &mut &[u8]) -> Option<String> {
        String::from_utf8(Vec::decode(from)?).ok()
    }
}
impl<T: WireField> WireField for Option<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.is_some().encode(to);
        if let Some(value) = self {
            value.encode(to);
        }
    }
    fn decode(from: &mut &[u8]) -> Option<Option<T>> {
        Some(if bool::decode(from)? { Some(T::decode(from)?) } else { None })
    }
}
/// A list, as a field; bytes have their own form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WireList<T>(pub(super) Vec<T>);
impl<T: WireField> WireField for WireList<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.0.len() as u32).encode(to);
        self.0.iter().for_each(|item| item.encode(to));
    }
    fn decode(from: &mut &[u8]) -> Option<WireList<T>> {
        let mut list = Vec::new();
        for _ in 0..u32::decode(from)? {
            // a length that is not true ends here, when the bytes are used up
            list.push(T::decode(from)?);
        }
        Some(WireList(list))
    }
}

/// Declares structs that are fields of messages.
macro_rules! records { ($($(#[$meta:meta])* $vis:vis struct $name:ident {
    $($(#[$field_meta:meta])* $field:ident: $ty:ty,)*
})*) => {$(
    $(#[$meta])*
    #[derive(Clone, Debug, PartialEq, Eq)]
    $vis struct $name { $($(#[$field_meta])* pub(super) $field: $ty,)* }
    impl WireField for $name {
        fn encode(&self, to: &mut Vec<u8>) {
            $(self.$field.encode(to);)*
        }
        fn decode(from: &mut &[u8]) -> Option<$name> {
            Some($name { $($field: <$ty>::decode(from)?,)* })
        }
    }
)*} }

/// Declares messages: an enum whose variants have a tag and fields.
macro_rules! messages { ($($(#[$meta:meta])* $name:ident {
    $($(#[$variant_meta:meta])* $variant:ident = $tag:literal { $($field:ident: $ty:ty),* $(,)? })*
})*) => {$(
    $(#[$meta])*
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) enum $name { $($(#[$variant_meta])* $variant { $($field: $ty),* },)* }
    impl $name {
        /// Returns the bytes of this message, with their length in front.
        pub(super) fn frame(&self) -> Vec<u8> {
            let mut to = vec![0; 4];
            match self {$(
                $name::$variant { $($field),* } => {
                    to.push($tag);
                    $($field.encode(&mut to);)*
                }
            )*}
            let len = (to.len() - 4) as u32;
            to[..4].copy_from_slice(&len.to_le_bytes());
            to
        }
        /// Returns the message with this body; `None` if it is not the body of one.
        pub(super) fn from_body(mut body: &[u8]) -> Option<$name> {
            let from = &mut body;
            let message = match u8::decode(from)? {
                $($tag => $name::$variant { $($field: <$ty>::decode(from)?),* },)*
                _ => return None,
            };
            from.is_empty().then_some(message)
        }
    }
)*} }

records! {
    /// A process of a cluster, and where it runs.
    pub(super) struct ProcessInfo {
        /// The rank of the process.
        process: usize,
        /// The name of its host.
        host: String,
        /// Its id on that host.
        pid: u32,
        /// Its rank among the processes on its host.
        local_process: usize,
        /// The number of its devices.
        devices: usize,
    }

    /// A property that must be the same in all processes, such as a version.
    pub(super) struct SharedProperty {
        name: String,
        value: String,
    }

    /// The first message of a process.
    pub(super) struct Hello {
        info: ProcessInfo,
        /// The number of processes that it expects.
        processes: usize,
        /// The launcher's name of the job; empty if it has none.
        job: String,
        properties: WireList<SharedProperty>,
    }

    /// A call in the list of a process.
    pub(super) struct CallRecord {
        /// Its index among the calls of the process; the first is 1.
        number: u64,
        what: String,
        location: String,
    }

    /// The hash of all calls of a process up to one of them.
    #[derive(Default)]
    pub(super) struct CallMark {
        number: u64,
        hash: u64,
    }

    /// A process's progress, as its heartbeat reports it.
    #[derive(Default)]
    pub(super) struct Position {
        /// The number of calls that it has begun.
        calls: u64,
        /// True if it is in the last of them.
        is_inside: bool,
        /// The time since it began or left that call, in milliseconds.
        since_ms: u64,
        /// The operation of that call.
        what: String,
        /// The source location of that call.
        location: String,
        /// The hashes of its calls, at some of them.
        marks: WireList<CallMark>,
    }

    /// A call in which all processes take part.
    pub(super) struct Meeting {
        /// Its index among the meetings of a process; the first is 1.
        number: u64,
        /// The operation, as messages name it.
        what: String,
        /// The source location of the call.
        location: String,
        /// The hash of all calls of the process.
        mark: CallMark,
        /// Bytes that must be the same in all processes.
        check: Vec<u8>,
        /// True if the process can send a text that explains a difference of `check`.
        has_text: bool,
        /// The reason why this process cannot go on with the call; all processes receive it.
        failure: Option<String>,
        /// The process whose payload all processes receive; `None` if nothing is sent.
        root: Option<usize>,
        /// The bytes of the root. Other processes send none.
        payload: Vec<u8>,
    }

    /// The reason why a cluster cannot go on.
    pub(super) struct ClusterFault {
        kind: FaultKind,
        message: String,
        /// The suggested fix; empty if there is none.
        help: String,
        /// The process that is gone; `None` for other reasons.
        process: Option<usize>,
    }
}

/// The kind of a [`ClusterFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// A process is gone, or has not arrived in time.
    Process,
    /// Processes made different calls.
    Mismatch,
    /// The processes cannot join.
    Join,
}
impl WireField for FaultKind {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(*self as u8);
    }
    fn decode(from: &mut &[u8]) -> Option<FaultKind> {
        [FaultKind::Process, FaultKind::Mismatch, FaultKind::Join]
            .get(usize::from(u8::decode(from)?))
            .copied()
    }
}

messages! {
    /// A message to the store.
    Request {
        /// Introduces a process. It is the first message of each.
        Hello = 1 { magic: u64, protocol: u32, hello: Hello }
        /// Reports progress.
        Beat = 2 { position: Position }
        /// Stores a value under a key.
        Set = 3 { id: u64, key: Vec<u8>, value: Vec<u8> }
        /// Asks for a value; with `wait`, the answer comes when there is one.
        Get = 4 { id: u64, key: Vec<u8>, wait: bool }
        /// Gives up a question.
        Cancel = 5 { id: u64 }
        /// Arrives at a meeting; the answer comes when all processes have.
        Meet = 6 { id: u64, meeting: Meeting }
        /// Ends an orderly run, or one that failed for this reason.
        Goodbye = 7 { failure: Option<String> }
        /// Reports a failure in a call of all processes, which they cannot complete.
        Fail = 8 { message: String }
        /// Answers `Ask`.
        Evidence = 9 { text: Vec<u8>, calls: WireList<CallRecord> }
    }
    /// A message from the store.
    Reply {
        /// Introduces the store, which process 0 serves.
        Greeting = 1 { magic: u64, protocol: u32, host: String, pid: u32 }
        /// Says that all processes have joined.
        Welcome = 2 { members: WireList<ProcessInfo> }
        /// Says that the store lives, and what process 0 does.
        Beat = 3 { position: Position }
        /// Answers `Get`.
        Value = 4 { id: u64, value: Option<Vec<u8>> }
        /// Answers `Set`.
        Stored = 5 { id: u64, error: Option<String> }
        /// Answers `Meet` with the bytes of the root, and the failure of the first process that has
        /// one.
        Met = 6 { id: u64, payload: Vec<u8>, failure: Option<String> }
        /// Says that the cluster has failed. No other answer follows.
        Failed = 7 { fault: ClusterFault }
        /// Answers `Goodbye`.
        Farewell = 8 {}
        /// Asks for the text of the current meeting and the last calls, because processes differ.
        Ask = 9 {}
    }
}

/// Reads the body of a frame, of at most `max` bytes.
pub(super) fn read_body(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > max {
        let message = format!("a message of {len} bytes; the maximum is {max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // memory is allocated as the bytes arrive: the length alone may be wrong
    let mut body = Vec::with_capacity(len.min(1 << 16));
    from.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

impl fmt::Display for ProcessInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}, pid {})", self.process, self.host, self.pid)
    }
}
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { calls, what, location, .. } = self;
        match (calls, self.is_inside) {
            (0, _) => f.write_str("has begun no call"),
            (_, true) => write!(f, "is in call {calls}, {what}, {location}"),
            (_, false) => write!(f, "left call {calls}, {what}, {location}, and has not begun the next"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let info = ProcessInfo { process: 2, host: "node7".into(), pid: 4711, local_process: 0, devices: 4 };
        let property = SharedProperty { name: "atmesh".into(), value: "0.1.0".into() };
        let position = Position {
            calls: 5,
            is_inside: true,
            since_ms: 9,
            what: "psum".into(),
            location: "a.rs:1".into(),
            marks: WireList(vec![CallMark { number: 4, hash: 99 }]),
        };
        let call = CallRecord { number: 4, what: "psum".into(), location: "a.rs:1".into() };
        let meeting = Meeting {
            number: 1,
            what: "barrier `x`".into(),
            location: "src/main.rs:20".into(),
            mark: CallMark { number: 5, hash: 7 },
            check: vec![1, 2],
            has_text: true,
            failure: Some("out of memory".into()),
            root: Some(0),
            payload: vec![7; 300],
        };
        let properties = WireList(vec![property]);
        let hello = Hello { info, processes: 4, job: String::new(), properties };
        vec![
            Request::Hello { magic: MAGIC, protocol: PROTOCOL, hello },
            Request::Beat { position },
            Request::Set { id: 1, key: b"k".to_vec(), value: vec![] },
            Request::Get { id: u64::MAX, key: vec![], wait: true },
            Request::Cancel { id: 3 },
            Request::Meet { id: 4, meeting },
            Request::Goodbye { failure: Some("it panicked".into()) },
            Request::Fail { message: "out of memory".into() },
            Request::Evidence { text: b"module {}".to_vec(), calls: WireList(vec![call]) },
        ]
    }

    #[test]
    fn messages_are_read_as_written() {
        for request in requests() {
            let frame = request.frame();
            let body = read_body(&mut &frame[..], MAX_FRAME_BYTES).unwrap();
            assert_eq!(Request::from_body(&body), Some(request));
        }
    }

    #[test]
    fn other_bytes_are_an_error_and_allocate_little() {
        for request in requests() {
            let frame = request.frame();
            // each shorter body, each longer one, and each changed byte is an error or a message
            for len in 4..frame.len() {
                assert_eq!(Request::from_body(&frame[4..len]), None, "{request:?}");
            }
            assert_eq!(Request::from_body(&[&frame[4..], &[0]].concat()), None);
            for at in 4..frame.len() {
                for change in [1, 0x80, 0xff] {
                    let mut bytes = frame.clone();
                    bytes[at] ^= change;
                    let _ = Request::from_body(&bytes[4..]);
                }
            }
        }
        let endless = [&u32::MAX.to_le_bytes()[..], &[6; 100]].concat();
        assert!(read_body(&mut &endless[..], MAX_FRAME_BYTES).is_err());
        let short = [&(MAX_FRAME_BYTES as u32).to_le_bytes()[..], &[6; 100]].concat();
        let error = read_body(&mut &short[..], MAX_FRAME_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        // a list that claims 2^32 - 1 entries of no bytes
        assert_eq!(WireList::<u8>::decode(&mut &[255, 255, 255, 255, 1][..]), None);
    }
}
