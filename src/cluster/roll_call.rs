//! The roll call: finds processes that are silent, or that others wait for, and reports each once.
//!
//! It sees heartbeats and a clock only, so that tests can run it with any times.

use super::wire::{ClusterFault, FaultKind, Position, ProcessInfo};
use std::time::Duration;

/// The help of an error about different calls.
pub(super) const SAME_CALLS_HELP: &str =
    "make the same calls in the same order in all processes; only host code may differ";
/// The time between two heartbeats of a process.
pub(super) const HEARTBEAT_PERIOD: Duration = Duration::from_millis(200);
/// The time without a heartbeat after which a process is silent.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_millis(1200);
/// The time that a process waits in a call before the missing ones are named.
const LATENESS: Duration = Duration::from_millis(1500);
/// The time after which a heartbeat is overdue. If a check itself is this late, then the process
/// that checks was stopped, and not the others.
const MAX_DELAY: Duration = Duration::from_millis(600);

/// A process as the store sees it.
#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) info: ProcessInfo,
    pub(super) presence: Presence,
    pub(super) position: Position,
    /// The time of the last message.
    pub(super) heard: Duration,
    /// The time at which it joined, or sent again after a silence.
    pub(super) returned: Duration,
    /// True once its silence has been reported.
    pub(super) is_silent: bool,
}

/// Whether a process takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has joined, and its connection is open.
    Present,
    /// It has said goodbye.
    Ended,
    /// Its connection closed without a goodbye.
    Gone,
}

/// The state of the checks.
#[derive(Debug, Default)]
pub(super) struct RollCall {
    /// The last call whose missing processes were reported.
    reported_call: u64,
    last_check: Option<Duration>,
}

/// The findings of a check.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// Texts for stderr.
    pub(super) reports: Vec<String>,
    /// The reason to give up, if there is a patience and it is over.
    pub(super) fault: Option<ClusterFault>,
}

impl RollCall {
    /// Notes a time at which there is nothing to check yet.
    pub(super) fn skip_check(&mut self, now: Duration) {
        self.last_check = Some(now);
    }
    /// Checks all members at time `now`.
    pub(super) fn check(
        &mut self,
        members: &mut [MemberState],
        now: Duration,
        patience: Option<Duration>,
    ) -> Findings {
        let mut findings = Findings::default();
        if self.last_check.replace(now).is_some_and(|last| now.saturating_sub(last) > MAX_DELAY) {
            // heartbeats may have arrived in the meantime without having been read
            members.iter_mut().for_each(|m| (m.heard, m.returned) = (now, now));
        }
        check_silence(members, now, patience, &mut findings);
        if findings.fault.is_none() {
            self.check_lateness(members, now, patience, &mut findings);
        }
        findings
    }

    /// Names the processes that have not come to the call in which others wait.
    fn check_lateness(
        &mut self,
        members: &[MemberState],
        now: Duration,
        patience: Option<Duration>,
        findings: &mut Findings,
    ) {
        let present = || members.iter().filter(|m| m.presence == Presence::Present);
        let waited =
            |m: &MemberState| Duration::from_millis(m.position.since_ms) + now.saturating_sub(m.heard);
        let waits = |m: &&MemberState| m.position.is_inside && !m.is_silent && waited(m) > LATENESS;
        let Some(first) = present().filter(waits).max_by_key(|m| m.position.calls) else { return };
        let (call, position) = (first.position.calls, &first.position);
        let is_other = |m: &&MemberState| m.position.calls == call && m.position.what != position.what;
        if let Some(other) = present().filter(waits).find(is_other) {
            findings.fault = Some(different_calls(first, other));
            return;
        }
        let has_ended = |m: &&MemberState| m.presence == Presence::Ended && m.position.calls < call;
        if let Some(ended) = members.iter().find(has_ended) {
            findings.fault = Some(missed(&ended.info, &position.what, &position.location));
            return;
        }
        let missing: Vec<&MemberState> = present().filter(|m| m.position.calls < call).collect();
        if missing.is_empty() {
            return;
        }
        // a process that was stopped has this time to catch up
        let returned = missing.iter().map(|m| now.saturating_sub(m.returned)).min().unwrap_or_default();
        let time = waited(first).min(returned);
        let names = list_names(missing.iter().map(|m| &m.info));
        let place = format!("call {call} ({}, {})", position.what, position.location);
        if patience.is_some_and(|patience| time > patience) {
            let states: Vec<String> = missing.iter().map(|m| m.position.to_string()).collect();
            findings.fault = Some(ClusterFault {
                kind: FaultKind::Process,
                message: format!(
                    "{names} did not come to {place} within {}: it {}",
                    show_seconds(time),
                    states.join("; it ")
                ),
                help: "all processes make the same calls; if one needs longer, raise `ATMESH_PATIENCE`"
                    .into(),
                process: None,
            });
            return;
        }
        // a process whose heartbeat is overdue may be stopped, which is another report
        let is_overdue = |m: &&MemberState| now.saturating_sub(m.heard) > MAX_DELAY;
        if time <= LATENESS || self.reported_call == call || missing.iter().any(is_overdue) {
            return;
        }
        self.reported_call = call;
        let mut text = format!("atmesh: {place} has waited {} for {names}", show_seconds(time));
        for m in present() {
            text += &format!("\n  process {} {}", m.info.process, m.position);
        }
        findings.reports.push(text);
    }
}

/// Returns the fault of a process that ended before a call of the others.
pub(super) fn missed(ended: &ProcessInfo, what: &str, location: &str) -> ClusterFault {
    ClusterFault {
        kind: FaultKind::Mismatch,
        message: format!("{ended} has ended, and does not come to {what}, {location}"),
        help: "make the same calls in all processes: one of them returned from `main` early".into(),
        process: Some(ended.process),
    }
}

/// Returns the fault of two processes that wait in different calls of the same number.
fn different_calls(one: &MemberState, other: &MemberState) -> ClusterFault {
    let place = |m: &MemberState| format!("{} is in {}, {}", m.info, m.position.what, m.position.location);
    ClusterFault {
        kind: FaultKind::Mismatch,
        message: format!(
            "processes made different calls: as call {}, {}, but {}",
            one.position.calls,
            place(one),
            place(other)
        ),
        help: SAME_CALLS_HELP.into(),
        process: None,
    }
}

/// Reports processes that send nothing, and those that send again.
fn check_silence(
    members: &mut [MemberState],
    now: Duration,
    patience: Option<Duration>,
    findings: &mut Findings,
) {
    for m in members.iter_mut().filter(|m| m.presence == Presence::Present) {
        let time = now.saturating_sub(m.heard);
        if patience.is_some_and(|patience| time > patience.max(SILENCE_LIMIT)) {
            findings.fault = Some(silent_fault(&m.info, &m.position, time));
        } else if time > SILENCE_LIMIT && !m.is_silent {
            m.is_silent = true;
            findings.reports.push(silence_report(&m.info, &m.position, time));
        } else if time <= SILENCE_LIMIT && m.is_silent {
            (m.is_silent, m.returned) = (false, now);
            findings.reports.push(format!("atmesh: {} sends again", m.info));
        }
    }
}

/// Returns the report of a silent process.
pub(super) fn silence_report(info: &ProcessInfo, position: &Position, time: Duration) -> String {
    format!(
        "atmesh: {info} has been silent for {}: it is stopped, or its host does not answer; last it {position}",
        show_seconds(time)
    )
}
/// Returns the fault of a process that was silent for too long.
pub(super) fn silent_fault(info: &ProcessInfo, position: &Position, time: Duration) -> ClusterFault {
    ClusterFault {
        kind: FaultKind::Process,
        message: format!("{info} has been silent for {}; last it {position}", show_seconds(time)),
        help:
            "see whether it is stopped or its host is overloaded; if it needs longer, raise `ATMESH_PATIENCE`"
                .into(),
        process: Some(info.process),
    }
}

/// Returns names as a list: `process 1 (a, pid 2) and process 3 (b, pid 4)`.
pub(super) fn list_names<'a>(infos: impl Iterator<Item = &'a ProcessInfo>) -> String {
    join_words(infos.map(|info| info.to_string()).collect())
}

/// Joins words by commas, and `and` before the last; of a long list, it shows the first ones.
pub(super) fn join_words(mut words: Vec<String>) -> String {
    const MAX_SHOWN: usize = 8;
    if words.len() > MAX_SHOWN {
        let rest = words.len() - MAX_SHOWN;
        words.truncate(MAX_SHOWN);
        words.push(format!("{rest} more"));
    }
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

/// Returns a time in seconds, with one digit after the point.
pub(super) fn show_seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(n: usize) -> Vec<MemberState> {
        let member = |process| MemberState {
            info: ProcessInfo { process, host: "h".into(), pid: 1, local_process: 0, devices: 1 },
            presence: Presence::Present,
            position: in_call(1, true),
            heard: Duration::ZERO,
            returned: Duration::ZERO,
            is_silent: false,
        };
        (0..n).map(member).collect()
    }
    fn in_call(calls: u64, is_inside: bool) -> Position {
        Position { calls, is_inside, what: "psum".into(), location: "a.rs:7".into(), ..Position::default() }
    }
    /// The reports and the fault, each with its time in milliseconds.
    type Timed = (Vec<(u64, String)>, Option<(u64, ClusterFault)>);
    /// Runs the checks up to `end`, every 200 ms; `beats` says who sends, and where it is.
    fn run(
        members: &mut [MemberState],
        end: u64,
        patience: Option<u64>,
        beats: impl Fn(usize, u64) -> Option<Position>,
    ) -> Timed {
        let (mut roll, mut reports) = (RollCall::default(), Vec::new());
        let mut entered = vec![(0u64, false, 0u64); members.len()];
        for ms in (0..end).step_by(200) {
            for (k, m) in members.iter_mut().enumerate() {
                let Some(mut position) = beats(k, ms) else { continue };
                if (entered[k].0, entered[k].1) != (position.calls, position.is_inside) {
                    entered[k] = (position.calls, position.is_inside, ms);
                }
                position.since_ms = ms - entered[k].2;
                (m.position, m.heard) = (position, Duration::from_millis(ms));
            }
            let found = roll.check(members, Duration::from_millis(ms), patience.map(Duration::from_millis));
            reports.extend(found.reports.into_iter().map(|text| (ms, text)));
            if let Some(fault) = found.fault {
                return (reports, Some((ms, fault)));
            }
        }
        (reports, None)
    }

    #[test]
    fn a_long_call_of_all_is_not_reported() {
        assert_eq!(run(&mut members(3), 60_000, Some(3000), |_, _| Some(in_call(4, true))), (vec![], None));
    }

    #[test]
    fn a_stopped_process_is_reported_once_and_again_when_it_continues() {
        // process 1 is stopped before it comes to call 2, and catches up one second after its return
        let beats = |k, ms| {
            let position = if k == 1 && ms < 12_000 { in_call(1, false) } else { in_call(2, true) };
            (k != 1 || !(1000..11_000).contains(&ms)).then_some(position)
        };
        let (reports, fault) = run(&mut members(3), 20_000, None, beats);
        assert_eq!(fault, None);
        let texts: Vec<&str> = reports.iter().map(|(_, text)| &**text).collect();
        assert_eq!(reports.len(), 2, "{texts:?}");
        assert!(
            reports[0].0 <= 3000 && texts[0].contains("process 1 (h, pid 1) has been silent"),
            "{texts:?}"
        );
        assert!(
            texts[0].ends_with("last it left call 1, psum, a.rs:7, and has not begun the next"),
            "{texts:?}"
        );
        assert_eq!(texts[1], "atmesh: process 1 (h, pid 1) sends again");
    }

    #[test]
    fn patience_makes_silence_an_error() {
        let beats = |k, ms| (k != 2 || ms < 1000).then(|| in_call(2, true));
        let (_, fault) = run(&mut members(3), 20_000, Some(3000), beats);
        let (at, fault) = fault.unwrap();
        assert!(at <= 4400 && fault.process == Some(2), "{at} {fault:?}");
    }

    #[test]
    fn processes_that_do_not_come_are_named_once() {
        let beats = |k, _| Some(if k == 1 { in_call(4, false) } else { in_call(5, true) });
        let (reports, _) = run(&mut members(3), 20_000, None, beats);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].0 <= 2000);
        assert!(reports[0].1.contains("call 5 (psum, a.rs:7) has waited 1.6 s for process 1 (h, pid 1)\n"));
        assert!(reports[0].1.contains("\n  process 1 left call 4, psum, a.rs:7, and has not begun the next"));
        let (_, fault) = run(&mut members(3), 20_000, Some(3000), beats);
        let (at, fault) = fault.unwrap();
        assert!(
            at <= 4000 && fault.message.starts_with("process 1 (h, pid 1) did not come to call 5"),
            "{fault:?}"
        );
    }

    #[test]
    fn a_process_that_ended_before_a_call_is_an_error() {
        let mut members = members(3);
        members[2].presence = Presence::Ended;
        let beats = |k, _| (k != 2).then(|| in_call(2, true));
        let (at, fault) = run(&mut members, 20_000, None, beats).1.unwrap();
        assert!(at <= 2000 && fault.message.starts_with("process 2 (h, pid 1) has ended"), "{fault:?}");
    }

    #[test]
    fn different_calls_of_one_number_are_an_error() {
        let beats = |k, _| {
            let what = if k == 1 { "program 2" } else { "psum" };
            Some(Position { what: what.into(), ..in_call(3, true) })
        };
        let (reports, fault) = run(&mut members(3), 20_000, None, beats);
        let (at, fault) = fault.unwrap();
        assert!(reports.is_empty() && at <= 2000);
        assert!(
            fault.message.contains("as call 3, process 2 (h, pid 1) is in psum, a.rs:7, but"),
            "{fault:?}"
        );
        assert!(fault.message.contains("process 1 (h, pid 1) is in program 2"), "{fault:?}");
    }

    #[test]
    fn a_check_that_was_stopped_itself_finds_no_silence() {
        let (mut members, mut roll) = (members(2), RollCall::default());
        roll.check(&mut members, Duration::ZERO, Some(Duration::from_secs(3)));
        let found = roll.check(&mut members, Duration::from_secs(10), Some(Duration::from_secs(3)));
        assert_eq!(found, Findings::default());
    }

    #[test]
    fn long_lists_are_cut() {
        let words = |n: usize| (0..n).map(|k| k.to_string()).collect();
        assert_eq!(join_words(words(1)), "0");
        assert_eq!(join_words(words(3)), "0, 1 and 2");
        assert_eq!(join_words(words(30)), "0, 1, 2, 3, 4, 5, 6, 7 and 22 more");
    }
}
