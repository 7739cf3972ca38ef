//! The queue of frames of a connection, which one thread writes.
//!
//! A stopped peer blocks this thread only, and never one that has something to send.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum size of frames that wait, in bytes. A peer that reads none of them is dropped.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// A queue of frames.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<FrameQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FrameQueue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    is_closed: bool,
    /// True once the thread has written everything, or cannot write any more.
    has_ended: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, FrameQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Appends a frame. Returns false if the connection is closed, or its peer reads too slowly.
    pub(super) fn push(&self, frame: Vec<u8>) -> bool {
        let mut queue = self.lock();
        if queue.is_closed || queue.bytes + frame.len() > MAX_WAITING_BYTES {
            return false;
        }
        queue.bytes += frame.len();
        queue.frames.push_back(frame);
        self.changed.notify_all();
        true
    }
    /// Accepts no more frames; the thread ends after those that wait.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
    /// Waits until the thread has written everything, at most for `time`.
    pub(super) fn wait_until_written(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut queue = self.lock();
        while !queue.has_ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    /// Writes frames until the outbox is closed and empty, or the connection fails.
    ///
    /// Calls `beat` every `period`; it returns the next heartbeat.
    pub(super) fn write_all(
        &self,
        mut stream: &TcpStream,
        period: Duration,
        mut beat: impl FnMut() -> Option<Vec<u8>>,
    ) {
        let mut next_beat = Instant::now() + period;
        loop {
            let frame = match self.next(next_beat) {
                NextFrame::Frame(frame) => Some(frame),
                NextFrame::Beat => {
                    next_beat = Instant::now() + period;
                    beat()
                }
                NextFrame::End => break,
            };
            if frame.is_some_and(|frame| stream.write_all(&frame).is_err()) {
                break;
            }
        }
        let mut queue = self.lock();
        (queue.is_closed, queue.has_ended) = (true, true);
        queue.frames.clear();
        self.changed.notify_all();
        drop(queue);
        // the peer's reader sees the end of the stream
        let _ = stream.shutdown(Shutdown::Write);
    }
    fn next(&self, next_beat: Instant) -> NextFrame {
        let mut queue = self.lock();
        loop {
            let left = next_beat.saturating_duration_since(Instant::now());
            if left.is_zero() && !queue.is_closed {
                return NextFrame::Beat;
            }
            if let Some(frame) = queue.frames.pop_front() {
                queue.bytes -= frame.len();
                return NextFrame::Frame(frame);
            }
            if queue.is_closed {
                return NextFrame::End;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The next task of the thread of an outbox.
enum NextFrame {
    Frame(Vec<u8>),
    Beat,
    End,
}
