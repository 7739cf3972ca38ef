//! The board of a run on device threads: what each device waits for.
//!
//! A device that is about to sleep posts it here. When every device that still runs is posted and no message is under way,
//! none will ever wake: the run ends at once, with the roll call. Nothing depends on a time limit.

use crate::diagnostic::{Error, ErrorKind, Fault, Place};
use crate::mesh::{Axes, Mesh};
use crate::runtime::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use crate::runtime::sync::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;

/// What a device waits for.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The operation: `psum`, `recv`.
    pub(crate) op: &'static str,
    /// The axes of a collective, and how many over these the device called before.
    pub(crate) over: Option<(Axes, u64)>,
    /// The devices of whom something is missing.
    pub(crate) missing: Vec<usize>,
    /// The user's line.
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug)]
enum At {
    Running,
    Waiting(Wait),
    Ended,
}

/// The state of all devices of a run.
#[derive(Debug)]
pub(crate) struct Board {
    mesh: Option<Mesh>,
    devices: Mutex<Vec<At>>,
    /// Messages sent to each device that it has not taken.
    under_way: Vec<CachePadded<AtomicUsize>>,
    stopped: AtomicBool,
    verdict: OnceLock<Error>,
}

impl Board {
    pub(crate) fn new(devices: usize, mesh: Option<Mesh>) -> Board {
        Board {
            mesh,
            devices: Mutex::new(vec![At::Running; devices]),
            under_way: (0..devices).map(|_| Default::default()).collect(),
            stopped: AtomicBool::new(false),
            verdict: OnceLock::new(),
        }
    }
    fn lock(&self) -> MutexGuard<'_, Vec<At>> {
        self.devices.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// A message to `device` is about to be sent.
    pub(crate) fn sent(&self, device: usize) {
        self.under_way[device].fetch_add(1, SeqCst);
    }
    /// A running device took a message.
    pub(crate) fn taken(&self, device: usize) {
        self.under_way[device].fetch_sub(1, SeqCst);
    }
    /// Why the run ends, if it does.
    pub(crate) fn stopped(&self) -> Option<&Error> {
        if self.stopped.load(Acquire) { self.verdict.get() } else { None }
    }
    /// Ends the run for this reason, unless it has ended for another; true for the first.
    pub(crate) fn stop(&self, error: Error) -> bool {
        let first = self.verdict.set(error).is_ok();
        self.stopped.store(true, Release);
        first
    }
    /// The device sleeps from here on. True if with it all sleep for ever: then the verdict is made.
    pub(crate) fn sleep(&self, device: usize, wait: Wait) -> bool {
        let mut all = self.lock();
        all[device] = At::Waiting(wait);
        self.judge(&all)
    }
    /// The device took a message in its sleep.
    pub(crate) fn woke(&self, device: usize) {
        let mut all = self.lock();
        all[device] = At::Running;
        self.taken(device);
    }
    /// The device has returned. True as for [`Board::sleep`].
    pub(crate) fn ended(&self, device: usize) -> bool {
        let mut all = self.lock();
        all[device] = At::Ended;
        self.judge(&all)
    }
    /// Whether nobody runs, somebody waits, and no message can wake them. A device that runs, or took a message, is not posted as waiting,
    /// and only these send; a message to a sleeper is counted before it is sent and until the sleeper is posted as running.
    fn judge(&self, all: &[At]) -> bool {
        let mut waiting = false;
        for (at, under_way) in all.iter().zip(&self.under_way) {
            match at {
                At::Running => return false,
                At::Waiting(_) if under_way.load(SeqCst) > 0 => return false,
                At::Waiting(_) => waiting = true,
                At::Ended => {}
            }
        }
        waiting && self.stop(self.roll_call(all))
    }
    /// `device 3 (x=1, y=1)`.
    pub(crate) fn name(&self, device: usize) -> String {
        let Some(mesh) = &self.mesh else { return format!("device {device}") };
        let c = mesh.coordinates(device);
        let c: Vec<_> = mesh.axis_names().iter().zip(c).map(|(a, i)| format!("{a}={i}")).collect();
        format!("device {device} ({})", c.join(", "))
    }
    fn roll_call(&self, all: &[At]) -> Error {
        let waits: Vec<(usize, &Wait)> = (all.iter().enumerate())
            .filter_map(|(d, at)| if let At::Waiting(w) = at { Some((d, w)) } else { None })
            .collect();
        let ended = |d: &usize| matches!(all[*d], At::Ended);
        let early: Vec<usize> = (waits.iter().filter(|w| w.1.over.is_some()))
            .flat_map(|w| w.1.missing.iter().copied().filter(ended))
            .collect();
        let differ = waits.iter().find_map(|(d, w)| {
            let other = waits.iter().find(|(e, v)| {
                let stuck = w.missing.contains(e) && v.over.is_some() && w.over.is_some();
                stuck && (v.op, &v.over) != (w.op, &w.over)
            });
            other.map(|(e, v)| ((*d, *w), (*e, *v)))
        });
        let (kind, headline, help) = if let Some(((d, w), (e, v))) = differ {
            let headline = format!(
                "devices called different collectives: {} calls {}, {} calls {}",
                self.name(d),
                call(w),
                self.name(e),
                call(v)
            );
            (
                ErrorKind::Mismatch,
                headline,
                "every device of the axes calls the same collectives in the same order",
            )
        } else if let Some(first) = early.first() {
            let headline =
                format!("{} returned early: others wait for it in a collective", self.name(*first));
            (
                ErrorKind::Device,
                headline,
                "every device of the axes calls the same collectives in the same order",
            )
        } else {
            let headline = "the devices wait for one another, and no message is under way".to_string();
            (ErrorKind::Mismatch, headline, "each `recv` needs a `send` of that device to this one")
        };
        let mut lines = vec![headline];
        for (d, at) in all.iter().enumerate() {
            lines.push(match at {
                At::Running => format!("  {} runs", self.name(d)),
                At::Ended => format!("  {} has returned", self.name(d)),
                At::Waiting(w) => {
                    let of: Vec<_> = w.missing.iter().map(|m| m.to_string()).collect();
                    let devices = if of.len() == 1 { "device" } else { "devices" };
                    let line = w.place.map_or(String::new(), |p| format!(", at {p}"));
                    format!("  {} waits in {} for {devices} {}{line}", self.name(d), call(w), of.join(", "))
                }
            });
        }
        let place = waits.first().and_then(|w| w.1.place);
        let op = waits.first().map_or("", |w| w.1.op);
        let mut error = Error::at(Fault::new(kind, lines.join("\n")).help(help), op, Vec::new(), place);
        for (d, w) in waits.iter().skip(1) {
            if let Some(p) = w.place.filter(|p| Some(*p) != place) {
                error = error.related(p, format!("{} waits here", self.name(*d)));
            }
        }
        error
    }
}

fn call(w: &Wait) -> String {
    match &w.over {
        Some((axes, _)) => format!("{} over {axes}", w.op),
        None => w.op.to_string(),
    }
}
