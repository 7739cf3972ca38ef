//! The threads engine: one operating-system thread per device. They meet by messages only.
//!
//! The tile programs, sums and products are those of the lock-step engine, so that both give the same bits. Each level is cut into as
//! many shares as there are devices, along the dimension that is split among them where there is one, and each device runs its own:
//! no counter, no queue. What others made is read where it is, after a message said that it is made: what is sent is a handle,
//! never a copy, and channels order memory.

use crate::compile::plan::{Kernel, Plan};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Mesh;
use crate::partition::SpmdProgram;
use crate::runtime::board::Wait;
use crate::runtime::devices::{Caller, guarded, on_threads};
use crate::runtime::network::{Kept, Mailbox, Network, Tag};
use crate::runtime::prints::Prints;
use crate::runtime::wait::Signal;
use crate::runtime::workers::{Meeting, Member};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The devices of a program.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    pub(super) count: usize,
    mesh: Option<Mesh>,
}

impl Devices {
    pub(super) fn of(program: &SpmdProgram) -> Devices {
        Devices { count: program.devices.max(1), mesh: program.mesh.clone() }
    }
    /// Runs a job on a thread for each device. `prints` are its texts, with that bell.
    pub(super) fn run(
        &self,
        bell: Arc<Signal>,
        prints: &Prints,
        job: &(dyn Fn(&Member) + Sync),
    ) -> Result<()> {
        let network = Arc::new(Network::new(self.count, self.mesh.clone()));
        let caller = Caller { bell, heed: &|| prints.write(), late: &network.late() };
        on_threads(self.count, &caller, &|device| {
            let _ended = network.end(device);
            let meeting = Messages { mail: RefCell::new(network.mailbox(device)), met: Cell::new(0) };
            let member = Member::of(device, self.count, &meeting);
            if let Err(panic) = guarded(|| job(&member)) {
                let name = network.board.name(device);
                let fault = panic.fault().unwrap_or_else(|panic| {
                    let at = panic.place.as_ref().map_or(String::new(), |p| format!(" at {p}"));
                    let text = format!("{name} panicked{at}: {}", panic.message());
                    Fault::new(ErrorKind::Device, text)
                });
                network.stop(Error::at(fault, "run", Vec::new(), None));
            }
        })?;
        network.board.stopped().map_or(Ok(()), |verdict| Err(verdict.clone()))
    }
}

/// Devices meet by telling each other: in round k each tells the device 2ᵏ places on, and hears from the one as far back, so
/// that after ⌈log₂ n⌉ rounds all have heard, at some remove, from all.
struct Messages {
    mail: RefCell<Mailbox>,
    met: Cell<u64>,
}
impl Meeting for Messages {
    fn meet(&self, count: usize) -> bool {
        let mut mail = self.mail.borrow_mut();
        let me = mail.device;
        let nothing: Arc<()> = Arc::new(());
        let mut far = 1;
        while far < count {
            let tag = Tag::Step(self.met.replace(self.met.get() + 1));
            let (to, from) = ((me + far) % count, (me + count - far) % count);
            let wait = |_: &Kept| Wait { op: "run", over: None, missing: vec![from], place: None };
            if mail.send(to, tag.clone(), nothing.clone()).is_err()
                || mail.receive(from, &tag, &wait).is_err()
            {
                return false;
            }
            far *= 2;
        }
        true
    }
}

/// Cuts each level into a share for each of `n` devices.
pub(super) fn spread(plan: &mut Plan, n: usize) {
    let n = n as i64;
    for level in &mut plan.levels {
        for node in &mut level.nodes {
            match &mut node.kernel {
                Kernel::Tiles { tiles, split, step } => {
                    if tiles.ext[0] >= n {
                        *split = 0;
                    }
                    *step = ((tiles.ext[*split] + n - 1) / n).max(1);
                    node.chunks = ((tiles.ext[*split] + *step - 1) / *step).max(1);
                }
                Kernel::Rows(rows) => node.chunks = rows.most().min(n),
                Kernel::Fold(fold, _) => node.chunks = Arc::make_mut(fold).spread(n),
                Kernel::Lines(lines, _) => node.chunks = Arc::make_mut(lines).spread(n),
                Kernel::Loop(l) => spread(&mut l.body, n as usize),
                Kernel::While(w) => {
                    spread(&mut w.cond, n as usize);
                    spread(&mut w.body, n as usize);
                }
                Kernel::Branch(b) => b.arms.iter_mut().for_each(|a| spread(a, n as usize)),
                Kernel::Seek(seek) => node.chunks = seek.spread(n),
                Kernel::Product(_)
                | Kernel::FoldEnd(..)
                | Kernel::LinesEnd(..)
                | Kernel::Pack(_)
                | Kernel::Print(_) => {}
            }
        }
        level.chunks = level.nodes.iter().map(|n| n.chunks).sum();
    }
}

#[cfg(all(test, shuttle))]
mod orders {
    use super::*;
    use crate::runtime::devices::dismiss;
    use crate::runtime::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use crate::runtime::sync::explore;

    fn devices(count: usize) -> Devices {
        Devices { count, mesh: None }
    }
    fn run(devices: Devices, job: impl Fn(&Member) + Sync) -> Result<()> {
        let bell: Arc<Signal> = Arc::default();
        devices.run(bell.clone(), &Prints::with_bell(bell), &job)
    }

    /// Three levels of five devices: none begins one before all have ended the last.
    #[test]
    fn levels_are_apart() {
        explore(|| {
            let done: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
            let ran = run(devices(5), |m| {
                for level in &done {
                    level.fetch_add(1, SeqCst);
                    assert!(m.barrier());
                    assert_eq!(level.load(SeqCst), 5);
                }
            });
            ran.unwrap();
            dismiss();
        });
    }

    /// A device that panics ends the run of those that wait for it; the same threads then run the next.
    #[test]
    fn a_panic_ends_the_run() {
        explore(|| {
            for first in [true, false] {
                let ran = run(devices(3), |m| {
                    if m.index() == 1 || first && m.index() == 2 {
                        std::panic::resume_unwind(Box::new("as told"));
                    }
                    while m.barrier() {}
                });
                let text = ran.unwrap_err().to_string();
                assert!(text.contains("panicked: as told"), "{text}");
            }
            run(devices(3), |m| assert!(m.barrier())).unwrap();
            dismiss();
        });
    }

    /// A device that returns early is told of in the roll call.
    #[test]
    fn a_device_that_leaves_is_missed() {
        explore(|| {
            let ran = run(devices(3), |m| {
                let more = m.index() != 2;
                assert!(!(more && m.barrier()));
            });
            let text = ran.unwrap_err().to_string();
            assert!(text.contains("device 2 has returned"), "{text}");
            dismiss();
        });
    }
}
