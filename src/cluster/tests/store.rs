//! Tests of the store's state, without sockets.

use super::super::wire::{CallMark, CallRecord};
use super::*;

fn hello(process: usize, processes: usize) -> Hello {
    Hello {
        info: ProcessInfo {
            process,
            host: "h".into(),
            pid: 100 + process as u32,
            local_process: 0,
            devices: 1,
        },
        processes,
        job: String::new(),
        properties: WireList(vec![SharedProperty { name: "atmesh".into(), value: "1".into() }]),
    }
}
/// Returns a store on which `n` processes have joined.
fn joined(n: usize) -> Store {
    let mut store = Store::new(hello(0, n));
    for k in 0..n {
        let mut out = Outgoing::new();
        assert_eq!(store.admit(hello(k, n), Duration::ZERO, &mut out), Ok(k));
        assert_eq!(out.len(), if k + 1 == n { n } else { 0 });
    }
    store
}
fn send(store: &mut Store, process: usize, request: Request) -> Outgoing {
    let mut out = Outgoing::new();
    store.handle(process, request, Duration::ZERO, &mut out);
    out
}
fn meeting(number: u64, what: &str, location: &str) -> Meeting {
    Meeting {
        number,
        what: what.into(),
        location: location.into(),
        mark: CallMark { number, hash: 0 },
        check: vec![],
        has_text: false,
        failure: None,
        root: Some(0),
        payload: vec![number as u8],
    }
}
/// Returns the message of the failure that all of `processes` receive.
fn failure(out: &Outgoing, processes: &[usize]) -> String {
    let mut messages = Vec::new();
    for (process, reply) in out {
        if let Reply::Failed { fault } = reply {
            messages.push((*process, fault.message.clone()));
        }
    }
    assert_eq!(messages.iter().map(|m| m.0).collect::<Vec<_>>(), processes, "{out:?}");
    messages[0].1.clone()
}

#[test]
fn values_are_answered_when_they_are_there() {
    let mut store = joined(2);
    let get = |id, wait| Request::Get { id, key: b"k".to_vec(), wait };
    assert_eq!(send(&mut store, 0, get(1, false)), [(0, Reply::Value { id: 1, value: None })]);
    assert_eq!(send(&mut store, 0, get(2, true)), []);
    assert_eq!(send(&mut store, 0, get(3, true)), []);
    assert_eq!(send(&mut store, 0, Request::Cancel { id: 3 }), []);
    let value = Some(b"v".to_vec());
    let set = Request::Set { id: 1, key: b"k".to_vec(), value: b"v".to_vec() };
    assert_eq!(
        send(&mut store, 1, set),
        [(0, Reply::Value { id: 2, value: value.clone() }), (1, Reply::Stored { id: 1, error: None })]
    );
    assert_eq!(send(&mut store, 0, get(4, true)), [(0, Reply::Value { id: 4, value })]);
}

#[test]
fn the_last_process_of_a_meeting_completes_it() {
    let mut store = joined(3);
    for k in [2, 0] {
        let request = Request::Meet { id: 7, meeting: meeting(1, "barrier `a`", "a.rs:1") };
        assert_eq!(send(&mut store, k, request), []);
    }
    let out = send(&mut store, 1, Request::Meet { id: 8, meeting: meeting(1, "barrier `a`", "b.rs:9") });
    let met = |id| Reply::Met { id, payload: vec![1], failure: None };
    assert_eq!(out, [(2, met(7)), (0, met(7)), (1, met(8))]);
}

#[test]
fn different_calls_fail_in_all_processes_with_both_locations() {
    let mut store = joined(3);
    send(&mut store, 2, Request::Meet { id: 1, meeting: meeting(1, "barrier `a`", "a.rs:1") });
    let out = send(&mut store, 0, Request::Meet { id: 1, meeting: meeting(1, "to_vec", "a.rs:2") });
    assert_eq!(
        failure(&out, &[0, 1, 2]),
        "processes made different calls: process 0 (h, pid 100) is in to_vec, a.rs:2, but process 2 (h, pid 102) \
         is in barrier `a`, a.rs:1"
    );
    // the first reason stays
    let mut out = Outgoing::new();
    store.lose(1, "its connection closed", &mut out);
    assert_eq!(out, []);
}

#[test]
fn different_programs_are_explained_by_both_processes() {
    let compile =
        |check: u8| Meeting { check: vec![check], has_text: true, ..meeting(1, "a compilation", "a.rs:1") };
    let request = |check| Request::Meet { id: 1, meeting: compile(check) };
    let text = |text: &str| Request::Evidence { text: text.into(), calls: WireList(vec![]) };
    let mut store = joined(3);
    send(&mut store, 2, request(1));
    assert_eq!(send(&mut store, 0, request(2)), [(0, Reply::Ask {}), (2, Reply::Ask {})]);
    // a third process does not open another dispute, and completes no meeting
    assert_eq!(send(&mut store, 1, request(1)), []);
    assert_eq!(send(&mut store, 0, text("add")), []);
    let out = send(&mut store, 2, text("multiply"));
    assert!(
        failure(&out, &[0, 1, 2]).ends_with("line 1:\nprocess 0, a.rs:1: add\nprocess 2, a.rs:1: multiply")
    );
    // one that does not answer, and one that dies
    let mut store = joined(2);
    send(&mut store, 0, request(1));
    send(&mut store, 1, request(2));
    let mut out = Outgoing::new();
    store.tick(Duration::from_millis(500), None, &mut out);
    assert_eq!(out, []);
    store.tick(Duration::from_millis(900), None, &mut out);
    assert!(
        failure(&out, &[0, 1])
            .starts_with("processes compile different programs: process 0 (h, pid 100) at a.rs:1")
    );
    assert_eq!(send(&mut store, 1, text("late")), []);
}

#[test]
fn different_orders_of_calls_are_found_by_their_marks() {
    let position = |hash| {
        let marks = WireList(vec![CallMark { number: 8, hash }]);
        Request::Beat { position: Position { calls: 9, marks, ..Position::default() } }
    };
    let calls = |what: &str| {
        let call = CallRecord { number: 7, what: what.into(), location: format!("{what}.rs:1") };
        Request::Evidence { text: vec![], calls: WireList(vec![call]) }
    };
    let mut store = joined(2);
    assert_eq!(send(&mut store, 0, position(1)), []);
    assert_eq!(send(&mut store, 1, position(2)), [(0, Reply::Ask {}), (1, Reply::Ask {})]);
    send(&mut store, 0, calls("f"));
    let message = failure(&send(&mut store, 1, calls("g")), &[0, 1]);
    assert!(message.contains("call 7 was f, f.rs:1 in process 0 (h, pid 100), but g, g.rs:1 in process 1"));
}

#[test]
fn all_processes_receive_the_first_failure_of_a_meeting() {
    let mut store = joined(3);
    let with = |failure: Option<&str>| {
        let failure = failure.map(String::from);
        Request::Meet { id: 1, meeting: Meeting { failure, root: None, ..meeting(1, "a call", "a.rs:1") } }
    };
    send(&mut store, 2, with(Some("no memory")));
    send(&mut store, 1, with(Some("no disk")));
    let failure = Some("process 1 (h, pid 101): no disk".to_string());
    let met = Reply::Met { id: 1, payload: vec![], failure };
    assert_eq!(send(&mut store, 0, with(None)), [(2, met.clone()), (1, met.clone()), (0, met)]);
}

#[test]
fn a_process_that_ends_early_fails_the_meeting_of_the_others() {
    let goodbye = Request::Goodbye { failure: None };
    let barrier = Request::Meet { id: 1, meeting: meeting(1, "barrier `a`", "a.rs:1") };
    let mut store = joined(2);
    assert_eq!(send(&mut store, 1, goodbye.clone()), [(1, Reply::Farewell {})]);
    let out = send(&mut store, 0, barrier.clone());
    assert!(
        failure(&out, &[0])
            .contains("process 1 (h, pid 101) has ended, and does not come to barrier `a`, a.rs:1")
    );
    let mut store = joined(2);
    send(&mut store, 0, barrier);
    assert!(failure(&send(&mut store, 1, goodbye), &[0]).contains("process 1 (h, pid 101) has ended"));
    let mut store = joined(2);
    let out = send(&mut store, 1, Request::Goodbye { failure: Some("it panicked".into()) });
    assert!(failure(&out, &[0]).contains("it panicked"));
}

#[test]
fn a_lost_process_is_named_with_its_last_call() {
    let mut store = joined(3);
    let position = Position {
        calls: 2,
        is_inside: true,
        what: "psum".into(),
        location: "a.rs:5".into(),
        ..Position::default()
    };
    send(&mut store, 1, Request::Beat { position });
    let mut out = Outgoing::new();
    store.lose(1, "its connection closed", &mut out);
    let message = "process 1 (h, pid 101) is gone: its connection closed; last it is in call 2, psum, a.rs:5";
    assert_eq!(failure(&out, &[0, 2]), message);
    assert_eq!(store.present().map(|info| info.process).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn processes_that_do_not_belong_together_are_rejected() {
    let mut store = Store::new(hello(0, 3));
    store.admit(hello(0, 3), Duration::ZERO, &mut Outgoing::new()).unwrap();
    let mut other_version = hello(1, 3);
    other_version.properties.0[0].value = "2".into();
    let mut other_job = hello(1, 3);
    other_job.job = "b".into();
    let mut own_job = hello(0, 3);
    own_job.job = "a".into();
    for (own, other, words, concerns_all) in [
        (hello(0, 3), hello(1, 4), "process 1 (h, pid 101) is one of 4 processes, but process 0", true),
        (hello(0, 3), hello(7, 3), "process 7 (h, pid 107) is one of 3", true),
        (hello(0, 3), hello(0, 3), "two processes have rank 0", true),
        (hello(0, 3), other_version, "has atmesh 2, but process 0 (h, pid 100) has atmesh 1", true),
        (own_job, other_job, "is of job `b`, but process 0 (h, pid 100) is of job `a`", false),
    ] {
        let mut store = Store::new(own.clone());
        let mut out = Outgoing::new();
        store.admit(own, Duration::ZERO, &mut out).unwrap();
        let rejection = store.admit(other, Duration::ZERO, &mut out).unwrap_err();
        assert!(rejection.fault.message.contains(words), "{}", rejection.fault.message);
        assert_eq!((rejection.concerns_all, out.len()), (concerns_all, usize::from(concerns_all)));
    }
    // a stranger does not disturb processes that have joined
    let (mut store, mut out) = (joined(2), Outgoing::new());
    let rejection = store.admit(hello(1, 2), Duration::ZERO, &mut out).unwrap_err();
    assert!(!rejection.concerns_all && out.is_empty() && store.fault().is_none());
}

#[test]
fn the_missing_processes_are_named() {
    let mut store = Store::new(hello(0, 4));
    store.admit(hello(2, 4), Duration::ZERO, &mut Outgoing::new()).unwrap();
    assert_eq!(store.absent_report(), "processes 0, 1 and 3 of 4 have not joined");
    let mut out = Outgoing::new();
    store.give_up_joining("5.0 s", &mut out);
    assert_eq!(failure(&out, &[2]), "processes 0, 1 and 3 of 4 have not joined within 5.0 s");
}

#[test]
fn any_messages_leave_the_store_consistent() {
    // a small generator of random numbers, so that the cases are the same everywhere
    let mut seed = 1u64;
    let mut random = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    for _ in 0..200 {
        let mut store = joined(3);
        for id in 0..100 {
            let process = random(4) as usize;
            let key = vec![random(3) as u8];
            let request = match random(10) {
                0 => Request::Set { id, key, value: vec![0; random(5) as usize] },
                1 | 2 => Request::Get { id, key, wait: random(2) == 0 },
                3 => Request::Cancel { id: random(100) },
                4 | 5 => Request::Meet { id, meeting: meeting(random(3), "barrier `a`", "a.rs:1") },
                6 => Request::Evidence { text: vec![0xff], calls: WireList(vec![]) },
                7 => {
                    let check = vec![random(2) as u8];
                    let of = meeting(random(3), "barrier `a`", "a.rs:1");
                    Request::Meet { id, meeting: Meeting { check, has_text: random(2) == 0, ..of } }
                }
                8 => Request::Hello { magic: 0, protocol: 0, hello: hello(0, 3) },
                _ => Request::Goodbye { failure: (random(2) == 0).then(|| "it panicked".into()) },
            };
            if random(10) == 0 || !matches!(request, Request::Hello { .. } | Request::Goodbye { .. }) {
                send(&mut store, process, request);
            }
            store.tick(Duration::from_millis(200 * id), None, &mut Outgoing::new());
            let stored: usize = store.values.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert_eq!(store.stored_bytes, stored);
        }
    }
}
