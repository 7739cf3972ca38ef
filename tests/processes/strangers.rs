//! Bytes at the store's port that are not those of a process.

use crate::supervisor::{Process, free_port, start_all, variables, wait_all};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the bytes of a first message.
fn hello(process: u64, processes: u64, version: &str) -> Vec<u8> {
    let mut body = vec![1];
    body.extend(u64::from_be_bytes(*b"atmesh\r\n").to_le_bytes());
    body.extend(1u32.to_le_bytes());
    let text = |body: &mut Vec<u8>, text: &str| {
        body.extend((text.len() as u32).to_le_bytes());
        body.extend(text.as_bytes());
    };
    body.extend(process.to_le_bytes());
    text(&mut body, "elsewhere");
    body.extend(77u32.to_le_bytes());
    [0, 1, processes].iter().for_each(|n: &u64| body.extend(n.to_le_bytes()));
    text(&mut body, "");
    body.extend(2u32.to_le_bytes());
    for (name, value) in [("atmesh", version), ("ATMESH_CHECK", "off")] {
        text(&mut body, name);
        text(&mut body, value);
    }
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// Sends random bytes, changed messages, wrong lengths and nothing at all, until the time is over.
/// Returns the number of connections.
fn disturb(port: u16, time: Duration) -> usize {
    let mut random = Random(now_seed());
    let (end, mut count, mut held) = (Instant::now() + time, 0, Vec::new());
    while Instant::now() < end {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        count += 1;
        let bytes: Vec<u8> = match random.below(5) {
            0 => (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
            // a length, and fewer bytes
            1 => [&(random.below(1 << 32) as u32).to_le_bytes()[..], &[1; 50]].concat(),
            // a changed first message, which is not that of a valid process
            2 => {
                let mut bytes = hello(1 << 40, 3, "9");
                let at = 4 + random.below(13) as usize;
                bytes[at] ^= 1 << random.below(8);
                bytes
            }
            3 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            _ => Vec::new(),
        };
        let _ = stream.write_all(&bytes);
        match random.below(4) {
            // it stays open, and says no more
            0 if held.len() < 30 => held.push(stream),
            1 => drop(stream.shutdown(Shutdown::Write)),
            _ => {}
        }
    }
    count
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) % n
    }
}
fn now_seed() -> u64 {
    std::env::var("ATMESH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn bytes_at_the_port_disturb_neither_joining_nor_a_run() {
    let port = free_port();
    let seconds = ("ATMESH_TEST_SECONDS", "3".to_string());
    let start = |k| Process::start("barriers", &[variables(k, 3, port), vec![seconds.clone()]].concat());
    let mut all = vec![start(0)];
    let during_joining = disturb(port, Duration::from_millis(800));
    all.extend([start(1), start(2)]);
    let during_run = disturb(port, Duration::from_secs(2));
    println!("{during_joining} connections while joining, {during_run} while running");
    assert!(during_joining > 20 && during_run > 5);
    for ended in wait_all(all, LIMIT) {
        ended.assert_success();
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn another_version_is_an_error_in_all() {
    let port = free_port();
    let all: Vec<Process> = [0, 2].iter().map(|k| Process::start("join", &variables(*k, 3, port))).collect();
    std::thread::sleep(Duration::from_millis(500));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&hello(1, 3, "99.0.0")).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("has atmesh 99.0.0, but process 0"));
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(
            error.contains("process 1 (elsewhere, pid 77) has atmesh 99.0.0, but process 0 ("),
            "{error}"
        );
    }
}

#[test]
fn a_late_process_does_not_disturb_those_that_have_joined() {
    let port = free_port();
    let all = start_all("barriers", 2, port, &[("ATMESH_TEST_SECONDS", "2")]);
    all.iter().for_each(|process| process.wait_for("joined"));
    let late = Process::start("join", &variables(1, 2, port)).wait(LIMIT);
    assert!(late.error().1.contains("cannot join: all 2 processes have joined already"), "{late:?}");
    wait_all(all, LIMIT).iter().for_each(|ended| ended.assert_success());
}
