//! Disputes: two processes made different calls, or compile different programs.
//!
//! The store asks both for the texts of their programs and for their last calls, and then names the
//! first difference. It does not wait long: one of them may be gone.

use super::program_text::first_difference;
use super::roll_call::SAME_CALLS_HELP;
use super::wire::{CallMark, CallRecord, ClusterFault, FaultKind, ProcessInfo};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time in which both processes must answer.
const EVIDENCE_TIMEOUT: Duration = Duration::from_millis(800);
/// The number of marks that the store remembers.
const MAX_MARKS: usize = 4096;

/// A difference between two processes, of which they are asked for evidence.
#[derive(Debug)]
pub(super) struct Dispute {
    pub(super) kind: DisputeKind,
    pub(super) sides: [DisputeSide; 2],
    end: Duration,
}

/// The kind of a [`Dispute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisputeKind {
    /// They compile different programs.
    Programs,
    /// They made different calls, up to the call with this number.
    Calls(u64),
}

/// One of the processes of a [`Dispute`].
#[derive(Debug)]
pub(super) struct DisputeSide {
    info: ProcessInfo,
    /// The location of its call if they compile different programs, else what it does.
    call: String,
    /// The text of its program, and its last calls.
    evidence: Option<(String, Vec<CallRecord>)>,
}

impl DisputeSide {
    pub(super) fn new(info: ProcessInfo, call: String) -> DisputeSide {
        DisputeSide { info, call, evidence: None }
    }
}

impl Dispute {
    pub(super) fn new(kind: DisputeKind, sides: [DisputeSide; 2], now: Duration) -> Dispute {
        Dispute { kind, sides, end: now + EVIDENCE_TIMEOUT }
    }
    /// Records the answer of a process. Returns true if both have answered.
    pub(super) fn answer(&mut self, process: usize, text: Vec<u8>, calls: Vec<CallRecord>) -> bool {
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Some(side) = self.sides.iter_mut().find(|side| side.info.process == process) {
            side.evidence = Some((text, calls));
        }
        self.sides.iter().all(|side| side.evidence.is_some())
    }
    /// Returns true if the time for answers is over.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now >= self.end
    }
    /// Returns the fault, with what the answers say.
    pub(super) fn fault(&self) -> ClusterFault {
        let message = match self.kind {
            DisputeKind::Programs => self.different_programs(),
            DisputeKind::Calls(number) => self.different_calls(number),
        };
        ClusterFault { kind: FaultKind::Mismatch, message, help: SAME_CALLS_HELP.into(), process: None }
    }
    fn different_programs(&self) -> String {
        let [a, b] = &self.sides;
        let mut text = format!(
            "processes compile different programs: {} at {}, {} at {}",
            a.info, a.call, b.info, b.call
        );
        let texts = (a.evidence.as_ref(), b.evidence.as_ref());
        let difference = match texts {
            (Some((one, _)), Some((other, _))) => first_difference(one, other),
            _ => None,
        };
        if let Some(difference) = difference {
            text += &format!("; they first differ in line {}:", difference.line);
            for (side, (code, location)) in self.sides.iter().zip(&difference.sides) {
                let location = location.as_deref().unwrap_or(&side.call);
                text += &format!("\nprocess {}, {location}: {code}", side.info.process);
            }
        }
        text
    }
    fn different_calls(&self, number: u64) -> String {
        let [a, b] = &self.sides;
        let calls = |side: &DisputeSide| -> BTreeMap<u64, (String, String)> {
            let list = side.evidence.iter().flat_map(|(_, calls)| calls);
            list.map(|call| (call.number, (call.what.clone(), call.location.clone()))).collect()
        };
        let (one, other) = (calls(a), calls(b));
        let first = one.iter().find_map(|(k, call)| {
            let differs = other.get(k).filter(|theirs| theirs.0 != call.0)?;
            Some((k, call, differs))
        });
        match first {
            Some((k, one, other)) => format!(
                "processes made different calls: call {k} was {}, {} in {}, but {}, {} in {}",
                one.0, one.1, a.info, other.0, other.1, b.info
            ),
            None => format!(
                "processes made different calls, up to call {number}: {} {}, {} {}",
                a.info, a.call, b.info, b.call
            ),
        }
    }
}

/// The hashes of calls that processes have sent, with which those of the others must agree.
#[derive(Debug, Default)]
pub(super) struct CallMarks(BTreeMap<u64, (u64, usize)>);

impl CallMarks {
    /// Compares the marks of a process with earlier ones. Returns the number of the first call at
    /// which they differ, and the other process.
    pub(super) fn compare(&mut self, process: usize, marks: &[CallMark]) -> Option<(u64, usize)> {
        let mut found = None;
        for mark in marks {
            let (hash, other) = *self.0.entry(mark.number).or_insert((mark.hash, process));
            if hash != mark.hash && found.is_none_or(|(number, _)| mark.number < number) {
                found = Some((mark.number, other));
            }
        }
        while self.0.len() > MAX_MARKS {
            self.0.pop_first();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(process: usize) -> DisputeSide {
        let info = ProcessInfo { process, host: "h".into(), pid: 1, local_process: 0, devices: 1 };
        DisputeSide::new(info, format!("a.rs:{process}"))
    }
    fn calls(names: &[&str]) -> Vec<CallRecord> {
        let record = |(k, what): (usize, &&str)| CallRecord {
            number: k as u64 + 5,
            what: what.to_string(),
            location: format!("{what}.rs:1"),
        };
        names.iter().enumerate().map(record).collect()
    }

    #[test]
    fn the_first_different_line_is_named() {
        let mut dispute = Dispute::new(DisputeKind::Programs, [side(0), side(1)], Duration::ZERO);
        let without = "processes compile different programs: process 0 (h, pid 1) at a.rs:0, process 1 (h, pid 1) at a.rs:1";
        assert_eq!(dispute.fault().message, without);
        assert!(!dispute.answer(1, b"module\n  b loc(\"b.rs\":7:1)\n".to_vec(), vec![]));
        assert!(!dispute.answer(2, b"".to_vec(), vec![]));
        assert!(dispute.answer(0, b"module\n  a\n".to_vec(), vec![]));
        let lines = "; they first differ in line 2:\nprocess 0, a.rs:0: a\nprocess 1, b.rs:7: b";
        assert_eq!(dispute.fault().message, format!("{without}{lines}"));
        assert!(!dispute.is_over(Duration::from_millis(100)) && dispute.is_over(Duration::from_secs(1)));
    }

    #[test]
    fn the_first_different_call_is_named() {
        let mut dispute = Dispute::new(DisputeKind::Calls(9), [side(0), side(1)], Duration::ZERO);
        dispute.answer(0, vec![], calls(&["x", "f", "g"]));
        let text = dispute.fault().message;
        assert!(
            text.contains("up to call 9: process 0 (h, pid 1) a.rs:0, process 1 (h, pid 1) a.rs:1"),
            "{text}"
        );
        dispute.answer(1, vec![], calls(&["x", "g", "f"]));
        let text = dispute.fault().message;
        assert!(
            text.contains(
                "call 6 was f, f.rs:1 in process 0 (h, pid 1), but g, g.rs:1 in process 1 (h, pid 1)"
            ),
            "{text}"
        );
    }

    #[test]
    fn marks_are_compared_by_call() {
        let mut marks = CallMarks::default();
        let mark = |number, hash| CallMark { number, hash };
        assert_eq!(marks.compare(0, &[mark(13, 1), mark(12, 2), mark(8, 3)]), None);
        assert_eq!(marks.compare(1, &[mark(9, 7), mark(8, 3)]), None);
        assert_eq!(marks.compare(2, &[mark(13, 9), mark(12, 9), mark(8, 3)]), Some((12, 0)));
        for number in 100..10_000 {
            marks.compare(0, &[mark(number, 0)]);
        }
        assert_eq!(marks.0.len(), MAX_MARKS);
    }
}
