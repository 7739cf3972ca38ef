//! Connections between the processes, over which waiting can be aborted.

use crate::errors::Code;
use crate::real::Call;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// The time after which waiting looks whether it is aborted.
const POLL: Duration = Duration::from_millis(20);
/// The maximum size of a message, in bytes.
const MAX_BYTES: u64 = 1 << 36;

/// A connection to another process.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    peer: usize,
}

/// A function that returns the reason why waiting is aborted, if it is.
pub(crate) type Abort<'a> = &'a dyn Fn() -> Option<String>;

impl Link {
    pub(crate) fn new(stream: TcpStream, peer: usize) -> std::io::Result<Link> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(POLL))?;
        Ok(Link { stream, peer })
    }
    /// Sets the process on the other side, once it is known.
    pub(crate) fn set_peer(&mut self, peer: usize) {
        self.peer = peer;
    }
    /// Decides how to go on after an error of the socket: it is a timeout, or the end.
    fn retry(&self, error: &std::io::Error, abort: Abort<'_>) -> Result<(), Call> {
        if let Some(why) = abort() {
            return Err(Call::own(Code::Unavailable, why));
        }
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
            // XLA's collectives would wait for a lost process until they are aborted
            _ => {
                for _ in 0..500 {
                    std::thread::sleep(POLL);
                    if let Some(why) = abort() {
                        return Err(Call::own(Code::Unavailable, why));
                    }
                }
                Err(Call::own(Code::Internal, format!("the collective with task {} has ended", self.peer)))
            }
        }
    }
    fn write(&mut self, bytes: &[u8], abort: Abort<'_>) -> Result<(), Call> {
        let mut done = 0;
        while done < bytes.len() {
            match self.stream.write(&bytes[done..]) {
                Ok(n) => done += n,
                Err(e) => self.retry(&e, abort)?,
            }
        }
        Ok(())
    }
    fn read(&mut self, to: &mut [u8], abort: Abort<'_>) -> Result<(), Call> {
        let mut done = 0;
        while done < to.len() {
            match self.stream.read(&mut to[done..]) {
                Ok(0) => self.retry(&ErrorKind::UnexpectedEof.into(), abort)?,
                Ok(n) => done += n,
                Err(e) => self.retry(&e, abort)?,
            }
        }
        Ok(())
    }
    /// Sends a message.
    pub(crate) fn send(&mut self, message: &[u8], abort: Abort<'_>) -> Result<(), Call> {
        self.write(&(message.len() as u64).to_le_bytes(), abort)?;
        self.write(message, abort)
    }
    /// Waits for a message.
    pub(crate) fn receive(&mut self, abort: Abort<'_>) -> Result<Vec<u8>, Call> {
        let mut len = [0; 8];
        self.read(&mut len, abort)?;
        let len = u64::from_le_bytes(len);
        if len > MAX_BYTES {
            return Err(Call::own(Code::Internal, format!("task {} sent {len} bytes", self.peer)));
        }
        let mut message = vec![0; len as usize];
        self.read(&mut message, abort)?;
        Ok(message)
    }
}
