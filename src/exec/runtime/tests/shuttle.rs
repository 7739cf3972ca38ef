//! Shuttle tests: the thread pool, device threads, mailboxes and the deadlock detector under many
//! thread schedules.

use super::device_threads::{catch_panic, end_idle_threads, on_threads_without_hooks};
use super::mailbox::{EarlyMessages, Mailbox, Network, Tag};
use super::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use super::{deadlock::Wait, park::Signal, sync::explore, thread_pool::ThreadPool};
use crate::core::{Axes, Axis, Error, Result};
use shuttle::thread;
use std::panic::resume_unwind;
use std::sync::Arc;

/// No thread misses its wake-up, whatever happens between its check and its sleep.
#[test]
fn a_number_wakes_those_that_wait() {
    explore(|| {
        let signal: Arc<Signal> = Arc::default();
        let threads: Vec<_> = (0..3)
            .map(|me| {
                let signal = signal.clone();
                thread::spawn(move || {
                    for turn in (me..9).step_by(3) {
                        signal.wait_while(|v| v != turn);
                        signal.set(turn + 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!((signal.get(), signal.sleepers()), (9, 0));
    });
}

/// The last thread that counts down wakes the waiting one, which may then go on immediately.
#[test]
fn the_last_to_count_down_wakes() {
    explore(|| {
        let left: Arc<Signal> = Arc::default();
        left.set(3);
        for _ in 0..3 {
            let left = left.clone();
            thread::spawn(move || left.subtract(1));
        }
        left.wait_without_spinning(|n| n != 0);
        assert_eq!(left.get(), 0);
    });
}

/// Jobs with several barriers run one after the other, whether workers sleep between them or not.
#[test]
fn workers_run_levels_in_step() {
    explore(|| {
        let team = ThreadPool::start(3);
        for job in 0..3 {
            let done: Vec<AtomicUsize> = (0..=job).map(|_| AtomicUsize::new(0)).collect();
            let ran = team.run(&|m| {
                assert_eq!(m.count(), 3);
                for level in &done {
                    level.fetch_add(m.index() + 1, SeqCst);
                    assert!(m.barrier());
                    assert_eq!(level.load(SeqCst), 6);
                }
            });
            assert!(ran.is_ok());
        }
        team.shut_down();
    });
}

/// After a panic of any workers, at a barrier or several at a time, the job ends and the next one
/// runs.
#[test]
fn a_panic_ends_a_job_on_all_workers() {
    explore(|| {
        let team = ThreadPool::start(4);
        for who in [0b0001, 0b0110, 0b1111, 0b1000] {
            let ran = team.run(&|m| {
                assert!(m.index() == 3 || who >> m.index() & 1 == 1 || !(m.barrier() && m.barrier()));
                if who >> m.index() & 1 == 1 {
                    resume_unwind(Box::new(m.index()));
                }
                while m.barrier() {}
            });
            let index = *ran.unwrap_err().downcast::<usize>().unwrap();
            assert_eq!(who >> index & 1, 1);
            team.run(&|m| assert!(m.barrier() && m.count() == 4)).unwrap();
        }
        team.shut_down();
    });
}

/// A caller that finds the pool busy, or is a worker itself, runs its job alone, so no caller
/// waits.
#[test]
fn callers_of_the_workers_do_not_wait() {
    explore(|| {
        let team = ThreadPool::start(2);
        let sum = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let sum = sum.clone();
                thread::spawn(move || {
                    let ran = team.run(&|m| {
                        if m.index() == 0 {
                            sum.fetch_add(1, SeqCst);
                        }
                        assert!(m.barrier());
                        team.run(&|inner| assert_eq!(inner.count(), 1)).unwrap();
                    });
                    ran.unwrap();
                })
            })
            .collect();
        callers.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(sum.load(SeqCst), 2);
        team.shut_down();
    });
}

/// Runs code on device threads that share a network, as the engines do.
///
/// Returns the result of each device, the verdict, and the network.
fn run<R: Send>(
    n: usize,
    code: impl Fn(&mut Mailbox) -> R + Sync,
) -> (Vec<Option<R>>, Option<Error>, Arc<Network>) {
    let network = Arc::new(Network::new(n, None));
    let ends = on_threads_without_hooks(n, &|device| {
        let mut mail = network.mailbox(device);
        let _ended = network.end_on_drop(device);
        let end = catch_panic(|| code(&mut mail));
        if end.is_err() {
            network.stop(Error::other(format!("device {device} panicked")));
        }
        end.ok()
    });
    let ends = ends.unwrap().into_iter().map(|end| end.ok().flatten()).collect();
    let verdict = network.detector.stopped().cloned();
    (ends, verdict, network)
}
fn peer(mail: &mut Mailbox, from: usize) -> Result<usize> {
    let wait = |_: &EarlyMessages| Wait { op: "recv", collective: None, missing: vec![from], location: None };
    Ok(*mail.receive(from, &Tag::Peer, &wait)?.downcast().unwrap())
}
fn send(mail: &Mailbox, to: usize, tag: Tag, x: usize) -> Result<()> {
    mail.send(to, tag, Arc::new(x))
}

/// Messages around a ring arrive in order, and a run with messages in flight is never a deadlock.
#[test]
fn messages_around_a_ring() {
    explore(|| {
        let (ends, verdict, _) = run(3, |mail| {
            let (me, mut sum) = (mail.device, 0);
            for step in 0..2 {
                send(mail, (me + 1) % 3, Tag::Peer, 10 * step + me)?;
                sum = 100 * sum + peer(mail, (me + 2) % 3)?;
            }
            Ok::<_, Error>(sum)
        });
        assert!(verdict.is_none(), "{}", verdict.unwrap());
        let ends: Vec<usize> = ends.into_iter().map(|e| e.unwrap().unwrap()).collect();
        assert_eq!(ends, [212, 10, 111]);
        end_idle_threads();
    });
}

/// Messages that arrive early are kept, and are distinguished by sender and tag.
#[test]
fn messages_are_distinguished() {
    explore(|| {
        let axes: Axes = Axis::new("x").into();
        let (ends, verdict, _) = run(3, |mail| {
            let tag = |round| Tag::Collective(axes.clone(), 1, round);
            if mail.device > 0 {
                let me = mail.device;
                send(mail, 0, tag(1), 100 * me)?;
                send(mail, 0, Tag::Peer, 10 * me)?;
                send(mail, 0, Tag::Peer, 10 * me + 1)?;
                return Ok(0);
            }
            let mut sum = vec![peer(mail, 2)?, peer(mail, 1)?, peer(mail, 1)?, peer(mail, 2)?];
            for from in [2, 1] {
                let wait = |_: &EarlyMessages| Wait {
                    op: "psum",
                    collective: None,
                    missing: vec![from],
                    location: None,
                };
                sum.push(*mail.receive(from, &tag(1), &wait)?.downcast().unwrap());
            }
            assert_eq!(sum, [20, 10, 11, 21, 200, 100]);
            Ok::<_, Error>(1)
        });
        assert!(verdict.is_none(), "{}", verdict.unwrap());
        assert_eq!(ends.into_iter().map(|e| e.unwrap().unwrap()).sum::<usize>(), 1);
        end_idle_threads();
    });
}

/// Devices that wait for each other, or for one that has returned, all end with the same roll call.
#[test]
fn waiting_in_vain_ends_with_the_roll_call() {
    explore(|| {
        let (ends, verdict, network) = run(3, |mail| {
            // device 2 gets its message and returns; the others wait for each other
            let me = mail.device;
            if me == 0 {
                send(mail, 2, Tag::Peer, 7)?;
            }
            let got = peer(mail, [1, 0, 0][me]);
            assert_eq!((got.is_ok(), mail.knows_verdict()), (me == 2, me != 2));
            got
        });
        let text = verdict.unwrap().to_string();
        assert!(text.contains("device 0 waits in recv for device 1"), "{text}");
        assert!(text.contains("device 1 waits in recv for device 0"), "{text}");
        assert!(text.contains("device 2 has returned"), "{text}");
        assert_eq!(ends.into_iter().filter(|e| matches!(e, Some(Ok(7)))).count(), 1);
        // a later error does not replace the verdict
        network.stop(Error::other("late"));
        assert_eq!(network.verdict().to_string(), text);
        end_idle_threads();
    });
}

/// If a panic and an error coincide, one of them becomes the verdict of all devices that wait.
#[test]
fn a_stop_wakes_all() {
    explore(|| {
        let (ends, verdict, network) = run(4, |mail| match mail.device {
            0 => resume_unwind(Box::new("as told")),
            1 => {
                mail.network.stop(Error::other("device 1 stopped it"));
                Ok(1)
            }
            2 => peer(mail, 0),
            _ => peer(mail, 3),
        });
        let text = verdict.unwrap().to_string();
        assert!(text.contains("device 0 panicked") || text.contains("device 1 stopped"), "{text}");
        for end in [&ends[2], &ends[3]] {
            assert_eq!(end.as_ref().unwrap().as_ref().unwrap_err().to_string(), text);
        }
        assert!(ends[0].is_none() && matches!(ends[1], Some(Ok(1))));
        assert_eq!(network.verdict().to_string(), text);
        end_idle_threads();
    });
}

/// Concurrent runs share the idle threads, and a thread never uses the code of a run that has
/// ended.
#[test]
fn runs_share_threads() {
    explore(|| {
        let callers: Vec<_> = (1..3)
            .map(|n| {
                thread::spawn(move || {
                    for round in 0..2 {
                        let local = AtomicUsize::new(round);
                        let ends = on_threads_without_hooks(n, &|i| local.fetch_add(1, SeqCst) + i).unwrap();
                        let sum: usize = ends.into_iter().map(|e| e.ok().unwrap()).sum();
                        assert_eq!(sum, n * round + n * (n - 1));
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|c| c.join().unwrap());
        end_idle_threads();
    });
}
