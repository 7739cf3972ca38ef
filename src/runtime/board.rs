//! The board of a run on device threads: what each device waits for.
//!
//! A device that is about to sleep posts it here. When every device that still runs is posted and no message is under way,
//! none will ever wake: the run ends at once, with the roll call. Nothing depends on a time limit.

use crate::diagnostic::{Error, ErrorKind, Fault, Place};
use crate::mesh::{Axes, Mesh};
use crate::runtime::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use crate::runtime::sync::{Mutex, MutexGuard};
use crate::types::{DType, Shape};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

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

/// What all devices do.
#[derive(Debug)]
struct Devices {
    at: Vec<At>,
    /// How many run.
    running: usize,
}
impl Devices {
    fn post(&mut self, device: usize, at: At) {
        let runs = |at: &At| usize::from(matches!(at, At::Running));
        self.running = self.running + runs(&at) - runs(&self.at[device]);
        self.at[device] = at;
    }
}

/// What must be the same on all devices of a collective; and where this one calls it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) op: &'static str,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) params: String,
    pub(crate) place: Place,
}
impl Call {
    pub(crate) fn same(&self, other: &Call) -> bool {
        (self.op, self.dtype, &self.shape, &self.params)
            == (other.op, other.dtype, &other.shape, &other.params)
    }
    fn text(&self, axes: &Axes) -> String {
        let params = if self.params.is_empty() { String::new() } else { format!(", {}", self.params) };
        format!("{}({}{}, over {axes}{params}) at {}", self.op, self.dtype, self.shape, self.place)
    }
}

/// A permutation that a device took part in: its letters do not tell all others of it.
#[derive(Debug)]
struct Permuted {
    /// The axes, and how many collectives over these the device called before.
    over: (Axes, u64),
    call: Arc<Call>,
}
/// So many permutations of a device are remembered: others are seldom further behind.
const REMEMBERED: usize = 64;

/// The state of all devices of a run.
#[derive(Debug)]
pub(crate) struct Board {
    mesh: Option<Mesh>,
    devices: Mutex<Devices>,
    /// The last permutations of each device.
    permuted: Vec<CachePadded<Mutex<VecDeque<Permuted>>>>,
    /// Messages sent to each device that it has not taken.
    under_way: Vec<CachePadded<AtomicUsize>>,
    stopped: AtomicBool,
    verdict: OnceLock<Error>,
}

impl Board {
    pub(crate) fn new(devices: usize, mesh: Option<Mesh>) -> Board {
        Board {
            mesh,
            devices: Mutex::new(Devices { at: vec![At::Running; devices], running: devices }),
            permuted: (0..devices).map(|_| Default::default()).collect(),
            under_way: (0..devices).map(|_| Default::default()).collect(),
            stopped: AtomicBool::new(false),
            verdict: OnceLock::new(),
        }
    }
    fn lock(&self) -> MutexGuard<'_, Devices> {
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
        all.post(device, At::Waiting(wait));
        self.judge(&all)
    }
    /// The device took a message in its sleep.
    pub(crate) fn woke(&self, device: usize) {
        let mut all = self.lock();
        all.post(device, At::Running);
        self.taken(device);
    }
    /// The device has returned. True as for [`Board::sleep`].
    pub(crate) fn ended(&self, device: usize) -> bool {
        let mut all = self.lock();
        all.post(device, At::Ended);
        self.judge(&all)
    }
    /// Whether nobody runs, somebody waits, and no message can wake them. A device that runs, or took a message, is not posted as waiting,
    /// and only these send; a message to a sleeper is counted before it is sent and until the sleeper is posted as running.
    fn judge(&self, all: &Devices) -> bool {
        if all.running > 0 {
            return false;
        }
        let mut waiting = false;
        for (at, under_way) in all.at.iter().zip(&self.under_way) {
            match at {
                At::Waiting(_) if under_way.load(SeqCst) > 0 => return false,
                At::Waiting(_) => waiting = true,
                At::Running | At::Ended => {}
            }
        }
        waiting && self.stop(self.disagreement(&all.at).unwrap_or_else(|| self.roll_call(&all.at)))
    }
    /// A device takes part in a permutation.
    pub(crate) fn permutes(&self, device: usize, over: (Axes, u64), call: Arc<Call>) {
        let mut calls = self.permuted[device].lock().unwrap_or_else(|e| e.into_inner());
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back(Permuted { over, call });
    }
    /// The error of two devices that permute differently, if one of them waits for the other.
    fn disagreement(&self, all: &[At]) -> Option<Error> {
        let call = |device: usize, over: &(Axes, u64)| {
            let calls = self.permuted[device].lock().unwrap_or_else(|e| e.into_inner());
            calls.iter().find(|c| c.over == *over).map(|c| c.call.clone())
        };
        let waits = all.iter().enumerate().filter_map(|(d, at)| match at {
            At::Waiting(Wait { over: Some(over), missing, .. }) => Some((d, over, missing)),
            _ => None,
        });
        for (d, over, missing) in waits {
            let Some(own) = call(d, over) else { continue };
            let other = |m: &usize| call(*m, over).filter(|c| !c.same(&own)).map(|c| (*m, c));
            if let Some((e, other)) = missing.iter().find_map(other) {
                let (one, other) =
                    if d < e { ((d, &*own), (e, &*other)) } else { ((e, &*other), (d, &*own)) };
                return Some(self.differ(&over.0, one, other));
            }
        }
        None
    }
    /// The error of two devices that do not call the same over these axes.
    pub(crate) fn differ(&self, axes: &Axes, one: (usize, &Call), other: (usize, &Call)) -> Error {
        let what = if one.1.op == other.1.op {
            "do not agree in a collective"
        } else {
            "called different collectives"
        };
        let says =
            |(device, call): (usize, &Call)| format!("{} calls {}", self.name(device), call.text(axes));
        let message = format!("devices {what}:\n  {}\n  {}", says(one), says(other));
        let fault = Fault::new(ErrorKind::Mismatch, message)
            .help("every device of the axes calls the same collectives in the same order, with the same element type and shape");
        Error::at(fault, one.1.op, Vec::new(), Some(one.1.place))
            .related(other.1.place, format!("{} is here", self.name(other.0)))
    }
    /// The first failure of a run and who still runs, as one line.
    pub(crate) fn held_up(&self) -> Option<String> {
        let error = self.stopped()?;
        let all = self.lock();
        let running: Vec<usize> = (0..all.at.len()).filter(|d| matches!(all.at[*d], At::Running)).collect();
        drop(all);
        let (first, others) = running.split_first()?;
        let who = match others.len() {
            0 => format!("{} still runs", self.name(*first)),
            1 => format!("{} and {} still run", self.name(*first), self.name(others[0])),
            n => format!("{} and {n} others still run", self.name(*first)),
        };
        let fault = error.diagnostics().first().map(|d| d.fault.message.as_str()).unwrap_or_default();
        let why = fault.lines().next().unwrap_or_default();
        Some(format!("atmesh: {why}; the call has not returned, since {who}"))
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
