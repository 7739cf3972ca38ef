//! The threads engine: one operating-system thread per device, synchronised by messages only.
//!
//! It runs the kernels of the lock-step engine, so that both engines give the same bits. Each level
//! of the plan is divided into one share per device, whatever the sharding, and each device runs
//! one share; there is no work queue. After a level the devices meet at a barrier that is made of
//! messages; then they read the values of other devices in place. The messages carry no data; the
//! channels order the memory accesses.

use crate::core::{Error, Mesh, Result};
use crate::exec::compile::plan::{ExecutionPlan, NodeKernel};
use crate::exec::runtime::device_threads::{CallerHooks, catch_panic, on_threads};
use crate::exec::runtime::mailbox::{EarlyMessages, Mailbox, Network, Tag};
use crate::exec::runtime::thread_pool::{Worker, WorkerBarrier};
use crate::exec::{runtime::deadlock::Wait, runtime::park::Signal, runtime::print_queue::PrintQueue};
use crate::partition::SpmdProgram;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The number and names of the devices that run a program.
#[derive(Clone, Debug)]
pub(super) struct ProgramDevices {
    pub(super) count: usize,
    mesh: Option<Mesh>,
}

impl ProgramDevices {
    pub(super) fn of_program(program: &SpmdProgram) -> ProgramDevices {
        ProgramDevices { count: program.devices.max(1), mesh: program.mesh.clone() }
    }
    /// Runs a job on one thread for each device.
    /// `prints` receives the printed texts; the signal wakes the caller to write them.
    pub(super) fn run(
        &self,
        wakeup: Arc<Signal>,
        prints: &PrintQueue,
        job: &(dyn Fn(&Worker) + Sync),
    ) -> Result<()> {
        let network = Arc::new(Network::new(self.count, self.mesh.clone()));
        let caller =
            CallerHooks { wakeup, on_wake: &|| prints.flush(), on_timeout: &network.timeout_reporter() };
        on_threads(self.count, &caller, &|device| {
            let _ended = network.end_on_drop(device);
            let meeting =
                MessageBarrier { mail: RefCell::new(network.mailbox(device)), rounds: Cell::new(0) };
            let member = Worker::new(device, self.count, &meeting);
            if let Err(panic) = catch_panic(|| job(&member)) {
                let name = network.detector.name(device);
                let fault = panic.into_fault().unwrap_or_else(|panic| {
                    let at = panic.location.as_ref().map_or(String::new(), |p| format!(" at {p}"));
                    fault!(Device, "{name} panicked{at}: {}", panic.into_message())
                });
                network.stop(Error::new(fault, "run", Vec::new(), None));
            }
        })?;
        network.detector.stopped().map_or(Ok(()), |verdict| Err(verdict.clone()))
    }
}

/// A dissemination barrier: a barrier between devices that is made of point-to-point messages.
///
/// In round `k` each device sends a message to the device `2^k` positions ahead and receives one
/// from the device `2^k` positions back. After `⌈log₂ n⌉` rounds, a chain of messages connects
/// every device to every other one.
struct MessageBarrier {
    mail: RefCell<Mailbox>,
    rounds: Cell<u64>,
}
impl WorkerBarrier for MessageBarrier {
    fn wait_all(&self, count: usize) -> bool {
        let mut mail = self.mail.borrow_mut();
        let me = mail.device;
        let nothing: Arc<()> = Arc::new(());
        let mut far = 1;
        while far < count {
            let tag = Tag::Step(self.rounds.replace(self.rounds.get() + 1));
            let (to, from) = ((me + far) % count, (me + count - far) % count);
            let wait =
                |_: &EarlyMessages| Wait { op: "run", collective: None, missing: vec![from], location: None };
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

/// Divides each level of a plan into one share for each of `n` devices.
pub(super) fn limit_tasks(plan: &mut ExecutionPlan, n: usize) {
    for level in &mut plan.levels {
        for node in &mut level.nodes {
            match &mut node.kernel {
                // (two nodes share a kernel with two stages, which keeps its tasks)
                NodeKernel::Task(kernel, _) => {
                    if let Some(kernel) = Arc::get_mut(kernel) {
                        kernel.limit_tasks(n as i64);
                        node.num_tasks = kernel.num_tasks();
                    }
                }
                NodeKernel::Print(_) => {}
                NodeKernel::Control(k) => k.nested_plans_mut().into_iter().for_each(|p| limit_tasks(p, n)),
            }
        }
        level.num_tasks = level.nodes.iter().map(|n| n.num_tasks).sum();
    }
}

#[cfg(all(test, shuttle))]
mod shuttle_tests {
    use super::*;
    use crate::exec::runtime::device_threads::end_idle_threads;
    use crate::exec::runtime::sync::atomic::AtomicUsize;
    use crate::exec::runtime::sync::atomic::Ordering::SeqCst;
    use crate::exec::runtime::sync::explore;

    fn devices(count: usize) -> ProgramDevices {
        ProgramDevices { count, mesh: None }
    }
    fn run(devices: ProgramDevices, job: impl Fn(&Worker) + Sync) -> Result<()> {
        let bell: Arc<Signal> = Arc::default();
        devices.run(bell.clone(), &PrintQueue::with_wakeup(bell), &job)
    }

    /// Checks that no device starts a level before all five devices have finished the previous one.
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
            end_idle_threads();
        });
    }

    /// Checks that a panic ends the run of all devices, and that the threads can run another job.
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
            end_idle_threads();
        });
    }

    /// Checks that the deadlock report names a device that has returned early.
    #[test]
    fn a_device_that_leaves_is_missed() {
        explore(|| {
            let ran = run(devices(3), |m| {
                let more = m.index() != 2;
                assert!(!(more && m.barrier()));
            });
            let text = ran.unwrap_err().to_string();
            assert!(text.contains("device 2 has returned"), "{text}");
            end_idle_threads();
        });
    }
}
