//! The state of the store: who has joined, the values, and the meetings.
//!
//! It has no sockets, threads or clock. The server passes it messages and times, and sends what it
//! answers.

use super::dispute::{CallMarks, Dispute, DisputeKind, DisputeSide};
use super::roll_call::{Findings, MemberState, Presence, RollCall, SAME_CALLS_HELP, list_names, missed};
use super::wire::{
    ClusterFault, FaultKind, Hello, Meeting, Position, ProcessInfo, Reply, Request, SharedProperty, WireList,
};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The maximum size of all keys and values, in bytes.
const MAX_STORED_BYTES: usize = 1 << 30;

/// The help of an error about values that must be equal.
const EQUAL_VALUES_HELP: &str =
    "compute equal values in all processes, or send those of process 0: `cluster.broadcast(&bytes)`";

/// Messages to processes, each with its rank.
pub(super) type Outgoing = Vec<(usize, Reply)>;

/// The state of the store.
#[derive(Debug)]
pub(super) struct Store {
    /// The first message of process 0, with which those of the others must agree.
    own: Hello,
    /// The processes, by rank; `None` if it has not joined.
    members: Vec<Option<MemberState>>,
    has_all: bool,
    values: HashMap<Vec<u8>, Vec<u8>>,
    stored_bytes: usize,
    /// For each key, the questions that wait for it: rank and id.
    questions: HashMap<Vec<u8>, Vec<(usize, u64)>>,
    /// The meetings at which some processes have arrived, by number: the rank and the id of the
    /// question of each, and its description.
    meetings: BTreeMap<u64, Vec<(usize, u64, Meeting)>>,
    /// The first reason why the cluster cannot go on.
    fault: Option<ClusterFault>,
    /// A difference of which two processes are asked; it becomes the fault.
    dispute: Option<Dispute>,
    marks: CallMarks,
    roll_call: RollCall,
}

/// The reason why a process may not join.
#[derive(Debug, PartialEq)]
pub(super) struct Rejection {
    pub(super) fault: ClusterFault,
    /// True if the others cannot go on without it.
    pub(super) concerns_all: bool,
}

fn join_fault(message: String, help: &str) -> ClusterFault {
    ClusterFault { kind: FaultKind::Join, message, help: help.into(), process: None }
}

impl Store {
    pub(super) fn new(own: Hello) -> Store {
        Store {
            members: (0..own.processes).map(|_| None).collect(),
            own,
            has_all: false,
            values: HashMap::new(),
            stored_bytes: 0,
            questions: HashMap::new(),
            meetings: BTreeMap::new(),
            fault: None,
            dispute: None,
            marks: CallMarks::default(),
            roll_call: RollCall::default(),
        }
    }
    /// Returns true once all processes have joined.
    pub(super) fn has_all(&self) -> bool {
        self.has_all
    }
    pub(super) fn fault(&self) -> Option<&ClusterFault> {
        self.fault.as_ref()
    }
    /// Returns the ranks that have not joined.
    pub(super) fn absent(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|k| self.members[*k].is_none()).collect()
    }
    /// Returns the processes whose connection is open.
    pub(super) fn present(&self) -> impl Iterator<Item = &ProcessInfo> {
        self.members.iter().flatten().filter(|m| m.presence == Presence::Present).map(|m| &m.info)
    }

    /// Lets a process join, and welcomes all if it is the last one.
    pub(super) fn admit(
        &mut self,
        hello: Hello,
        now: Duration,
        out: &mut Outgoing,
    ) -> Result<usize, Rejection> {
        if let Err(rejection) = self.check_hello(&hello) {
            if rejection.concerns_all && !self.has_all {
                self.fail(rejection.fault.clone(), out);
            }
            return Err(rejection);
        }
        let process = hello.info.process;
        self.members[process] = Some(MemberState {
            info: hello.info,
            presence: Presence::Present,
            position: Position::default(),
            heard: now,
            returned: now,
            is_silent: false,
        });
        if self.members.iter().all(Option::is_some) {
            self.has_all = true;
            let infos: Vec<ProcessInfo> = self.members.iter().flatten().map(|m| m.info.clone()).collect();
            for k in 0..infos.len() {
                out.push((k, Reply::Welcome { members: WireList(infos.clone()) }));
            }
        }
        Ok(process)
    }

    fn check_hello(&self, hello: &Hello) -> Result<(), Rejection> {
        let (info, own) = (&hello.info, &self.own);
        let reject = |message: String, help: &str, concerns_all: bool| {
            Err(Rejection { fault: join_fault(message, help), concerns_all })
        };
        if hello.job != own.job && !hello.job.is_empty() && !own.job.is_empty() {
            let message =
                format!("{info} is of job `{}`, but {} is of job `{}`", hello.job, own.info, own.job);
            return reject(message, "use another port for each job: `ATMESH_COORDINATOR=host:port`", false);
        }
        if self.has_all {
            let message = format!("{info} cannot join: all {} processes have joined already", own.processes);
            return reject(message, "use another port for each job: `ATMESH_COORDINATOR=host:port`", false);
        }
        if let Some(fault) = &self.fault {
            return Err(Rejection { fault: fault.clone(), concerns_all: true });
        }
        if hello.processes != own.processes || info.process >= own.processes {
            let message = format!(
                "{info} is one of {} processes, but {} is one of {}",
                hello.processes, own.info, own.processes
            );
            return reject(message, "start all processes with the same number of processes", true);
        }
        if let Some(other) = &self.members[info.process] {
            let message = format!("two processes have rank {}: {} and {info}", info.process, other.info);
            return reject(
                message,
                "start each process with another rank: `ATMESH_PROCESS=0/4`, `1/4`, …",
                true,
            );
        }
        match property_conflict(own, hello) {
            Some(message) => {
                reject(message, "start the same program with the same libraries on all hosts", true)
            }
            None => Ok(()),
        }
    }

    /// Handles a message of a process that has joined; `Goodbye` is the last one.
    pub(super) fn handle(&mut self, process: usize, request: Request, now: Duration, out: &mut Outgoing) {
        let Some(Some(member)) = self.members.get_mut(process) else { return };
        member.heard = now;
        match request {
            Request::Hello { .. } => self.lose(process, "it sent a message that is not expected", out),
            Request::Beat { position } => {
                member.position = position;
                self.compare_marks(process, now, out);
            }
            Request::Set { id, key, value } => self.set(process, id, key, value, out),
            Request::Get { id, key, wait } => match self.values.get(&key) {
                Some(value) => out.push((process, Reply::Value { id, value: Some(value.clone()) })),
                None if wait => self.questions.entry(key).or_default().push((process, id)),
                None => out.push((process, Reply::Value { id, value: None })),
            },
            Request::Cancel { id } => self.questions.retain(|_, list| {
                list.retain(|question| *question != (process, id));
                !list.is_empty()
            }),
            Request::Meet { id, meeting } => self.meet(process, id, meeting, now, out),
            Request::Goodbye { failure } => self.end(process, failure, out),
            Request::Fail { message } => {
                let fault = ClusterFault {
                    kind: FaultKind::Process,
                    message: format!("{} failed: {message}", name_of(&self.members, process)),
                    help: "look at the output of that process, and start all processes again".into(),
                    process: Some(process),
                };
                self.fail(fault, out);
            }
            Request::Evidence { text, calls } => {
                if self.dispute.as_mut().is_some_and(|dispute| dispute.answer(process, text, calls.0)) {
                    self.decide_dispute(out);
                }
            }
        }
    }

    /// Compares the calls of a process with those of the others.
    fn compare_marks(&mut self, process: usize, now: Duration, out: &mut Outgoing) {
        let Some(Some(member)) = self.members.get(process) else { return };
        if let Some((number, other)) = self.marks.compare(process, &member.position.marks.0) {
            let position = |k: usize| self.members[k].as_ref().map(|m| m.position.to_string());
            let side = |k: usize| (k, position(k).unwrap_or_default());
            self.open_dispute(DisputeKind::Calls(number), [side(other), side(process)], now, out);
        }
    }

    /// Asks two processes, each with its call, why they differ.
    fn open_dispute(
        &mut self,
        kind: DisputeKind,
        sides: [(usize, String); 2],
        now: Duration,
        out: &mut Outgoing,
    ) {
        if self.fault.is_some() || self.dispute.is_some() {
            return;
        }
        let side = |(process, location): (usize, String)| {
            let info = self.members.get(process)?.as_ref()?.info.clone();
            Some((process, DisputeSide::new(info, location)))
        };
        let [Some((a, one)), Some((b, other))] = sides.map(side) else { return };
        let ((a, one), (b, other)) = if a < b { ((a, one), (b, other)) } else { ((b, other), (a, one)) };
        self.dispute = Some(Dispute::new(kind, [one, other], now));
        out.extend([a, b].map(|process| (process, Reply::Ask {})));
    }
    fn decide_dispute(&mut self, out: &mut Outgoing) {
        if let Some(dispute) = self.dispute.take() {
            self.fail(dispute.fault(), out);
        }
    }

    fn set(&mut self, process: usize, id: u64, key: Vec<u8>, value: Vec<u8>, out: &mut Outgoing) {
        let old = self.values.get(&key).map_or(0, |old| old.len() + key.len());
        let total = self.stored_bytes - old + key.len() + value.len();
        if total > MAX_STORED_BYTES {
            let error = format!("the store holds at most {MAX_STORED_BYTES} bytes");
            out.push((process, Reply::Stored { id, error: Some(error) }));
            return;
        }
        self.stored_bytes = total;
        for (asker, question) in self.questions.remove(&key).unwrap_or_default() {
            out.push((asker, Reply::Value { id: question, value: Some(value.clone()) }));
        }
        self.values.insert(key, value);
        out.push((process, Reply::Stored { id, error: None }));
    }

    /// Lets a process arrive at a meeting, and answers all of them if it is the last one.
    fn meet(&mut self, process: usize, id: u64, meeting: Meeting, now: Duration, out: &mut Outgoing) {
        // after a dispute no meeting is complete
        if self.fault.is_some() || self.dispute.is_some() {
            return;
        }
        let arrivals = self.meetings.entry(meeting.number).or_default();
        if arrivals.iter().any(|(rank, ..)| *rank == process) {
            return self.lose(process, "it arrived twice at one call", out);
        }
        arrivals.push((process, id, meeting));
        let (first, last) = (&arrivals[0], &arrivals[arrivals.len() - 1]);
        let (one, other) = (&first.2, &last.2);
        if one.what == other.what && one.check != other.check && one.has_text && other.has_text {
            let sides = [(first.0, one.location.clone()), (last.0, other.location.clone())];
            return self.open_dispute(DisputeKind::Programs, sides, now, out);
        }
        if (&one.what, &one.check, one.root) != (&other.what, &other.check, other.root) {
            let fault = mismatch(&self.members, first, last);
            return self.fail(fault, out);
        }
        if one.mark != other.mark {
            let call = |m: &Meeting| format!("is in {}, {}", m.what, m.location);
            let (number, sides) = (other.mark.number, [(first.0, call(one)), (last.0, call(other))]);
            return self.open_dispute(DisputeKind::Calls(number), sides, now, out);
        }
        if let Some(ended) = self.members.iter().flatten().find(|m| m.presence == Presence::Ended) {
            let fault = missed(&ended.info, &last.2.what, &last.2.location);
            return self.fail(fault, out);
        }
        if arrivals.len() < self.members.len() {
            return;
        }
        let number = last.2.number;
        let mut arrivals = self.meetings.remove(&number).unwrap_or_default();
        let root = arrivals[0].2.root;
        let sent = arrivals.iter_mut().find(|(rank, ..)| Some(*rank) == root);
        let payload = sent.map(|(_, _, meeting)| std::mem::take(&mut meeting.payload)).unwrap_or_default();
        // the failure of the first process in order of ranks, so that all runs have the same one
        let failed = arrivals.iter().filter_map(|(rank, _, m)| Some((*rank, m.failure.as_ref()?))).min();
        let failure = failed.map(|(rank, why)| format!("{}: {why}", name_of(&self.members, rank)));
        for (rank, id, _) in arrivals {
            out.push((rank, Reply::Met { id, payload: payload.clone(), failure: failure.clone() }));
        }
    }

    fn end(&mut self, process: usize, failure: Option<String>, out: &mut Outgoing) {
        let Some(Some(member)) = self.members.get_mut(process) else { return };
        member.presence = Presence::Ended;
        let info = member.info.clone();
        let waiting = self.meetings.values().flatten().find(|(rank, ..)| *rank != process);
        let fault = match (failure, waiting) {
            (Some(why), _) => Some(self.gone(process, &why)),
            (None, Some((_, _, meeting))) => Some(missed(&info, &meeting.what, &meeting.location)),
            (None, None) => None,
        };
        if let Some(fault) = fault {
            self.fail(fault, out);
        }
        out.push((process, Reply::Farewell {}));
    }

    /// Records that the connection of a process has closed without a goodbye, and why.
    pub(super) fn lose(&mut self, process: usize, why: &str, out: &mut Outgoing) {
        let Some(Some(member)) = self.members.get_mut(process) else { return };
        if member.presence == Presence::Present {
            member.presence = Presence::Gone;
            let fault = self.gone(process, why);
            self.fail(fault, out);
        }
    }

    fn gone(&self, process: usize, why: &str) -> ClusterFault {
        let last = match self.members.get(process) {
            Some(Some(member)) => format!("; last it {}", member.position),
            _ => String::new(),
        };
        ClusterFault {
            kind: FaultKind::Process,
            message: format!("{} is gone: {why}{last}", name_of(&self.members, process)),
            help: "look at the output of that process, and start all processes again".into(),
            process: Some(process),
        }
    }

    /// Ends the cluster for this reason, unless it has ended for another one.
    pub(super) fn fail(&mut self, fault: ClusterFault, out: &mut Outgoing) {
        if self.fault.is_some() {
            return;
        }
        let present = self.members.iter().flatten().filter(|m| m.presence == Presence::Present);
        out.extend(present.map(|m| (m.info.process, Reply::Failed { fault: fault.clone() })));
        self.fault = Some(fault);
        self.dispute = None;
        self.questions.clear();
        self.meetings.clear();
    }

    /// Ends the joining, since the time for it is over.
    pub(super) fn give_up_joining(&mut self, time: &str, out: &mut Outgoing) {
        let message = format!("{} within {time}", self.absent_report());
        self.fail(join_fault(message, "start all processes, or raise `ATMESH_JOIN_TIMEOUT` (seconds)"), out);
    }
    /// Returns the sentence that names the processes that have not joined.
    pub(super) fn absent_report(&self) -> String {
        let absent = self.absent();
        let noun = if absent.len() == 1 { "process" } else { "processes" };
        let verb = if absent.len() == 1 { "has" } else { "have" };
        let ranks = super::roll_call::join_words(absent.iter().map(usize::to_string).collect());
        format!("{noun} {ranks} of {} {verb} not joined", self.members.len())
    }
    /// Returns the sentence that names the processes that have not ended.
    pub(super) fn unfinished_report(&self) -> String {
        format!("{} waits for the end of {}", self.own.info, list_names(self.present()))
    }

    /// Checks silence and lateness; returns texts for stderr.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        patience: Option<Duration>,
        out: &mut Outgoing,
    ) -> Vec<String> {
        if !self.has_all || self.fault.is_some() {
            self.roll_call.skip_check(now);
            return Vec::new();
        }
        if self.dispute.as_ref().is_some_and(|dispute| dispute.is_over(now)) {
            self.decide_dispute(out);
            return Vec::new();
        }
        let mut members: Vec<MemberState> = self.members.drain(..).flatten().collect();
        let Findings { reports, fault } = self.roll_call.check(&mut members, now, patience);
        self.members = members.into_iter().map(Some).collect();
        if let Some(fault) = fault {
            let silent = fault.process;
            self.fail(fault, out);
            // the end of this process does not wait for one that is stopped
            if let Some(Some(member)) = silent.and_then(|process| self.members.get_mut(process)) {
                member.presence = Presence::Gone;
            }
        }
        reports
    }
}

/// Returns the name of a process, also if it has not joined.
fn name_of(members: &[Option<MemberState>], process: usize) -> String {
    match members.get(process) {
        Some(Some(member)) => member.info.to_string(),
        _ => format!("process {process}"),
    }
}

/// Returns the fault of two processes that arrived at different calls.
fn mismatch(
    members: &[Option<MemberState>],
    (a, _, one): &(usize, u64, Meeting),
    (b, _, other): &(usize, u64, Meeting),
) -> ClusterFault {
    let ((a, one), (b, other)) = if a < b { ((a, one), (b, other)) } else { ((b, other), (a, one)) };
    let (a, b) = (name_of(members, *a), name_of(members, *b));
    let (message, help) = match one.what == other.what {
        false => (
            format!(
                "processes made different calls: {a} is in {}, {}, but {b} is in {}, {}",
                one.what, one.location, other.what, other.location
            ),
            SAME_CALLS_HELP,
        ),
        true => (
            format!(
                "{} differs between processes: {a} is at {}, {b} is at {}",
                one.what, one.location, other.location
            ),
            EQUAL_VALUES_HELP,
        ),
    };
    ClusterFault { kind: FaultKind::Mismatch, message, help: help.into(), process: None }
}

/// Returns the message about the first property that two processes do not share.
fn property_conflict(own: &Hello, other: &Hello) -> Option<String> {
    let find = |list: &'_ [SharedProperty], name: &str| {
        list.iter().find(|p| p.name == name).map_or("none", |p| &p.value).to_string()
    };
    let (ours, theirs) = (&own.properties.0, &other.properties.0);
    let names = ours.iter().chain(theirs).map(|p| &p.name);
    names.into_iter().find_map(|name| {
        let (a, b) = (find(ours, name), find(theirs, name));
        (a != b).then(|| format!("{} has {name} {b}, but {} has {name} {a}", other.info, own.info))
    })
}

#[cfg(test)]
#[path = "tests/store.rs"]
mod tests;
