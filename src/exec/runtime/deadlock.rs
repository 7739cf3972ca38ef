//! The deadlock detector of a run on device threads: records what each device waits for.
//!
//! A device that is about to sleep records that here. If every device that has not returned is
//! waiting and no message is in flight, none of them can ever wake up, so the run ends with an
//! error that lists what each device waits for (the roll call). The detector does not depend on a
//! timeout.

use crate::core::{Axes, DType, Error, ErrorKind, Fault, Mesh, Shape, SourceLocation};
use crate::exec::runtime::sync::atomic::Ordering::*;
use crate::exec::runtime::sync::atomic::{AtomicBool, AtomicUsize};
use crate::exec::runtime::sync::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// A description of what a device waits for.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The name of the operation, such as `psum` or `recv`.
    pub(crate) op: &'static str,
    /// The axes of the collective, and the number of earlier collectives of this device over them.
    /// `None` if the device waits for a `recv`.
    pub(crate) collective: Option<(Axes, u64)>,
    /// The devices whose messages have not arrived.
    pub(crate) missing: Vec<usize>,
    /// The location of the call in the user's source.
    pub(crate) location: Option<SourceLocation>,
}

#[derive(Clone, Debug)]
enum DeviceState {
    Running,
    Waiting(Wait),
    Ended,
}

/// The states of all devices.
#[derive(Debug)]
struct DeviceStates {
    states: Vec<DeviceState>,
    /// The number of devices in state `Running`.
    running: usize,
}
impl DeviceStates {
    fn post(&mut self, device: usize, at: DeviceState) {
        let runs = |at: &DeviceState| usize::from(matches!(at, DeviceState::Running));
        self.running = self.running + runs(&at) - runs(&self.states[device]);
        self.states[device] = at;
    }
}

/// The properties of a collective that must match on all its devices, and the call's location.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveCall {
    pub(crate) op: &'static str,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) params: String,
    pub(crate) location: SourceLocation,
}
impl CollectiveCall {
    pub(crate) fn matches(&self, other: &CollectiveCall) -> bool {
        (self.op, self.dtype, &self.shape, &self.params)
            == (other.op, other.dtype, &other.shape, &other.params)
    }
    fn describe(&self, axes: &Axes) -> String {
        let params = if self.params.is_empty() { String::new() } else { format!(", {}", self.params) };
        format!("{}({}{}, over {axes}{params}) at {}", self.op, self.dtype, self.shape, self.location)
    }
}

/// A permutation that a device took part in.
///
/// The messages of a permutation do not reach every other device, so a mismatch between two calls
/// cannot be found from the messages alone.
#[derive(Debug)]
struct PastPermutation {
    /// The axes, and the number of earlier collectives of this device over them.
    collective: (Axes, u64),
    call: Arc<CollectiveCall>,
}
/// The number of recent permutations that are remembered per device.
///
/// Devices rarely are more permutations apart.
const MAX_PAST_PERMUTATIONS: usize = 64;

/// The state of all devices of a run, from which a deadlock is detected.
#[derive(Debug)]
pub(crate) struct DeadlockDetector {
    mesh: Option<Mesh>,
    devices: Mutex<DeviceStates>,
    /// The most recent permutations of each device, oldest first.
    past_permutations: Vec<CachePadded<Mutex<VecDeque<PastPermutation>>>>,
    /// The number of messages sent to each device that it has not taken yet.
    in_flight: Vec<CachePadded<AtomicUsize>>,
    stopped: AtomicBool,
    verdict: OnceLock<Error>,
}

impl DeadlockDetector {
    pub(crate) fn new(devices: usize, mesh: Option<Mesh>) -> DeadlockDetector {
        DeadlockDetector {
            mesh,
            devices: Mutex::new(DeviceStates {
                states: vec![DeviceState::Running; devices],
                running: devices,
            }),
            past_permutations: (0..devices).map(|_| Default::default()).collect(),
            in_flight: (0..devices).map(|_| Default::default()).collect(),
            stopped: AtomicBool::new(false),
            verdict: OnceLock::new(),
        }
    }
    fn lock(&self) -> MutexGuard<'_, DeviceStates> {
        self.devices.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Records that a message to `device` is about to be sent.
    pub(crate) fn message_sent(&self, device: usize) {
        self.in_flight[device].fetch_add(1, SeqCst);
    }
    /// Records that a running device took a message.
    pub(crate) fn message_taken(&self, device: usize) {
        self.in_flight[device].fetch_sub(1, SeqCst);
    }
    /// Returns the error that ends the run, or `None` if the run goes on.
    pub(crate) fn stopped(&self) -> Option<&Error> {
        if self.stopped.load(Acquire) { self.verdict.get() } else { None }
    }
    /// Ends the run with this error, unless it has already ended. Returns true for the first error.
    pub(crate) fn stop(&self, error: Error) -> bool {
        let first = self.verdict.set(error).is_ok();
        self.stopped.store(true, Release);
        first
    }
    /// Records that the device goes to sleep. Returns true if all devices are now deadlocked; the
    /// verdict is set in that case.
    pub(crate) fn sleep(&self, device: usize, wait: Wait) -> bool {
        let mut all = self.lock();
        all.post(device, DeviceState::Waiting(wait));
        self.check_deadlock(&all)
    }
    /// Records that the sleeping device took a message and runs again.
    pub(crate) fn woke(&self, device: usize) {
        let mut all = self.lock();
        all.post(device, DeviceState::Running);
        self.message_taken(device);
    }
    /// Records that the device has returned. The result is that of [`DeadlockDetector::sleep`].
    pub(crate) fn ended(&self, device: usize) -> bool {
        let mut all = self.lock();
        all.post(device, DeviceState::Ended);
        self.check_deadlock(&all)
    }
    /// Returns true, and sets the verdict, if the run is deadlocked: no device runs, at least one
    /// waits, and no message is in flight to a waiting one.
    ///
    /// A device that runs, or has taken a message, is not recorded as waiting, and only such
    /// devices send. A message to a sleeping device is counted from before it is sent until the
    /// device is recorded as running.
    fn check_deadlock(&self, all: &DeviceStates) -> bool {
        if all.running > 0 {
            return false;
        }
        let mut waiting = false;
        for (at, under_way) in all.states.iter().zip(&self.in_flight) {
            match at {
                DeviceState::Waiting(_) if under_way.load(SeqCst) > 0 => return false,
                DeviceState::Waiting(_) => waiting = true,
                DeviceState::Running | DeviceState::Ended => {}
            }
        }
        waiting
            && self
                .stop(self.permutation_mismatch(&all.states).unwrap_or_else(|| self.roll_call(&all.states)))
    }
    /// Records that a device takes part in a permutation.
    pub(crate) fn record_permutation(&self, device: usize, over: (Axes, u64), call: Arc<CollectiveCall>) {
        let mut calls = self.past_permutations[device].lock().unwrap_or_else(|e| e.into_inner());
        if calls.len() == MAX_PAST_PERMUTATIONS {
            calls.pop_front();
        }
        calls.push_back(PastPermutation { collective: over, call });
    }
    /// Returns the error for two devices whose permutations differ, if one of them waits for the
    /// other.
    fn permutation_mismatch(&self, all: &[DeviceState]) -> Option<Error> {
        let call = |device: usize, over: &(Axes, u64)| {
            let calls = self.past_permutations[device].lock().unwrap_or_else(|e| e.into_inner());
            calls.iter().find(|c| c.collective == *over).map(|c| c.call.clone())
        };
        let waits = all.iter().enumerate().filter_map(|(d, at)| match at {
            DeviceState::Waiting(Wait { collective: Some(over), missing, .. }) => Some((d, over, missing)),
            _ => None,
        });
        for (d, over, missing) in waits {
            let Some(own) = call(d, over) else { continue };
            let other = |m: &usize| call(*m, over).filter(|c| !c.matches(&own)).map(|c| (*m, c));
            if let Some((e, other)) = missing.iter().find_map(other) {
                let (one, other) =
                    if d < e { ((d, &*own), (e, &*other)) } else { ((e, &*other), (d, &*own)) };
                return Some(self.mismatch_error(&over.0, one, other));
            }
        }
        None
    }
    /// Builds the error for two devices that call different collectives over these axes.
    pub(crate) fn mismatch_error(
        &self,
        axes: &Axes,
        one: (usize, &CollectiveCall),
        other: (usize, &CollectiveCall),
    ) -> Error {
        let what = if one.1.op == other.1.op {
            "do not agree in a collective"
        } else {
            "called different collectives"
        };
        let says = |(device, call): (usize, &CollectiveCall)| {
            format!("{} calls {}", self.name(device), call.describe(axes))
        };
        let fault = fault!(CollectiveMismatch, "devices {what}:\n  {}\n  {}", says(one), says(other))
            .help("every device of the axes calls the same collectives in the same order, with the same element type and shape");
        Error::new(fault, one.1.op, Vec::new(), Some(one.1.location))
            .related(other.1.location, format!("{} is here", self.name(other.0)))
    }
    /// Describes, in one line, the first failure of the run and the devices that still run.
    pub(crate) fn stall_report(&self) -> Option<String> {
        let error = self.stopped()?;
        let all = self.lock();
        let running: Vec<usize> =
            (0..all.states.len()).filter(|d| matches!(all.states[*d], DeviceState::Running)).collect();
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
    /// Returns the device's name and coordinates, such as `device 3 (x=1, y=1)`.
    pub(crate) fn name(&self, device: usize) -> String {
        let Some(mesh) = &self.mesh else { return format!("device {device}") };
        let c = mesh.coordinates(device);
        let c: Vec<_> = mesh.axis_names().iter().zip(c).map(|(a, i)| format!("{a}={i}")).collect();
        format!("device {device} ({})", c.join(", "))
    }
    fn roll_call(&self, all: &[DeviceState]) -> Error {
        let waits: Vec<(usize, &Wait)> = (all.iter().enumerate())
            .filter_map(|(d, at)| if let DeviceState::Waiting(w) = at { Some((d, w)) } else { None })
            .collect();
        let ended = |d: &usize| matches!(all[*d], DeviceState::Ended);
        let early: Vec<usize> = (waits.iter().filter(|w| w.1.collective.is_some()))
            .flat_map(|w| w.1.missing.iter().copied().filter(ended))
            .collect();
        let differ = waits.iter().find_map(|(d, w)| {
            let other = waits.iter().find(|(e, v)| {
                let stuck = w.missing.contains(e) && v.collective.is_some() && w.collective.is_some();
                stuck && (v.op, &v.collective) != (w.op, &w.collective)
            });
            other.map(|(e, v)| ((*d, *w), (*e, *v)))
        });
        let (kind, headline, help) = if let Some(((d, w), (e, v))) = differ {
            let headline = format!(
                "devices called different collectives: {} calls {}, {} calls {}",
                self.name(d),
                describe_wait(w),
                self.name(e),
                describe_wait(v)
            );
            (
                ErrorKind::CollectiveMismatch,
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
            (ErrorKind::CollectiveMismatch, headline, "each `recv` needs a `send` of that device to this one")
        };
        let mut lines = vec![headline];
        for (d, at) in all.iter().enumerate() {
            lines.push(match at {
                DeviceState::Running => format!("  {} runs", self.name(d)),
                DeviceState::Ended => format!("  {} has returned", self.name(d)),
                DeviceState::Waiting(w) => {
                    let of: Vec<_> = w.missing.iter().map(|m| m.to_string()).collect();
                    let devices = if of.len() == 1 { "device" } else { "devices" };
                    let line = w.location.map_or(String::new(), |p| format!(", at {p}"));
                    format!(
                        "  {} waits in {} for {devices} {}{line}",
                        self.name(d),
                        describe_wait(w),
                        of.join(", ")
                    )
                }
            });
        }
        let location = waits.first().and_then(|w| w.1.location);
        let op = waits.first().map_or("", |w| w.1.op);
        let mut error = Error::new(Fault::new(kind, lines.join("\n")).help(help), op, Vec::new(), location);
        for (d, w) in waits.iter().skip(1) {
            if let Some(p) = w.location.filter(|p| Some(*p) != location) {
                error = error.related(p, format!("{} waits here", self.name(*d)));
            }
        }
        error
    }
}

fn describe_wait(w: &Wait) -> String {
    let Some((axes, _)) = &w.collective else { return w.op.to_string() };
    format!("{} over {axes}", w.op)
}
