//! Tests of connections, with a thread for each process.

use super::super::join::{Joined, join};
use super::super::options::JoinPlan;
use super::*;
use std::net::TcpListener;
use std::sync::mpsc;

/// Joins `n` processes of this test, each on a thread, which then run `program`.
fn run(n: usize, patience: Option<Duration>, program: impl Fn(usize, Joined) + Sync) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::thread::scope(|scope| {
        for process in 0..n {
            let program = &program;
            scope.spawn(move || {
                let plan = JoinPlan {
                    launcher: "test",
                    process,
                    processes: n,
                    local_process: None,
                    coordinator: format!("127.0.0.1:{port}"),
                    job: String::new(),
                    devices: None,
                    patience,
                    join_timeout: Duration::from_secs(20),
                };
                program(process, join(&plan, &[]).unwrap_or_else(|fault| panic!("{fault:?}")));
            });
        }
    });
}
fn leave(joined: Joined) {
    joined.connection.goodbye(None);
    joined.server.into_iter().for_each(|server| server.finish());
}

#[test]
fn values_are_shared_and_waited_for() {
    run(3, None, |process, joined| {
        let store = &joined.connection;
        assert_eq!(store.members().len(), 3);
        assert_eq!(store.get(b"missing", Duration::ZERO), Ok(None));
        let start = Instant::now();
        assert_eq!(store.get(b"missing", Duration::from_millis(100)), Ok(None));
        assert!(start.elapsed() >= Duration::from_millis(100));
        // each waits for the value of the next process, which stores it later
        std::thread::sleep(Duration::from_millis(30 * process as u64));
        let large = vec![process as u8; 1 << 20];
        store.set(format!("key {process}").as_bytes(), &large).unwrap();
        let next = (process + 1) % 3;
        let value = store.get(format!("key {next}").as_bytes(), Duration::from_secs(20));
        assert_eq!(value, Ok(Some(vec![next as u8; 1 << 20])));
        let message = store.set(b"too large", &vec![0; MAX_FRAME_BYTES]).unwrap_err().message;
        assert!(message.contains("does not fit"), "{message}");
        leave(joined);
    });
}

#[test]
fn many_threads_of_a_process_ask_at_the_same_time() {
    run(2, None, |process, joined| {
        let store = &joined.connection;
        std::thread::scope(|scope| {
            for k in 0..16 {
                scope.spawn(move || {
                    let other = format!("{} {k}", 1 - process);
                    // half of them ask before there is a value
                    if k % 2 == 0 {
                        store.set(format!("{process} {k}").as_bytes(), &[k]).unwrap();
                    }
                    let value = match k % 2 {
                        0 => store.get(other.as_bytes(), Duration::from_secs(20)),
                        _ => Ok(Some(vec![k])),
                    };
                    assert_eq!(value, Ok(Some(vec![k])));
                });
            }
        });
        leave(joined);
    });
}

#[test]
fn a_fault_ends_what_waits_and_calls_the_hooks_once() {
    run(3, None, |process, joined| {
        let (send, calls) = mpsc::channel();
        joined.connection.on_fault(move |fault| send.send(fault.process).unwrap());
        if process == 2 {
            // it ends without a goodbye
            std::thread::sleep(Duration::from_millis(200));
            joined.connection.stream.shutdown(Shutdown::Both).unwrap();
            return;
        }
        let start = Instant::now();
        let fault = joined.connection.get(b"never", Duration::from_secs(3600)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(
            fault.process == Some(2) && fault.message.contains("is gone: its connection closed"),
            "{fault:?}"
        );
        assert_eq!(joined.connection.set(b"a", b"b").unwrap_err(), fault);
        assert_eq!(joined.connection.fault(), Some(fault));
        assert_eq!(calls.recv_timeout(Duration::from_secs(2)), Ok(Some(2)));
        // a hook that comes later is called immediately
        let (send, late) = mpsc::channel();
        joined.connection.on_fault(move |fault| send.send(fault.process).unwrap());
        assert_eq!((late.try_recv(), calls.try_recv().is_err()), (Ok(Some(2)), true));
        leave(joined);
    });
}
