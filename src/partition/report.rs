//! What a program communicates, with the line that caused it.

use crate::diagnostic::{Place, terminal};
use crate::mesh::Axes;
use crate::partition::memory::Holds;
use crate::partition::program::{SpmdProgram, Why};
use crate::program::Phase;
use std::fmt;

/// The kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Partial values summed, the result on all.
    AllReduce,
    /// Blocks joined, the result on all.
    AllGather,
    /// Partial values summed, each device keeping its part.
    ReduceScatter,
    /// One dimension cut, another joined.
    AllToAll,
    /// Whole blocks from device to device.
    Permute,
    /// The edges of neighbours' blocks.
    Halo,
    /// Any other exchange of regions.
    Exchange,
}

/// What a collective is of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It brings operands: those of this read first.
    Operand(usize),
    /// It combines the parts of the result.
    Sum,
    /// It moves the result to where it is wanted.
    Result,
}

/// One collective of a program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Collective {
    /// What kind it is.
    pub kind: Kind,
    /// Over which axes (names as the mesh has them; a piece of an axis is named by the axis).
    pub axes: Axes,
    /// Bytes that the busiest device receives, each time it runs.
    pub bytes: u64,
    /// Bytes that all devices receive together, each time it runs.
    pub total_bytes: u64,
    /// Whether the bytes are exact; else some devices' were looked at, of many that differ (they are printed with `≈`).
    pub exact: bool,
    /// Messages between devices, each time it runs, if every piece is sent by itself.
    pub messages: u64,
    /// Whether all messages were counted; else those of some devices, of many (printed with `≈`).
    pub counted: bool,
    /// How often it runs: the trip counts of the loops around it.
    pub times: u64,
    /// The operation that asked for it.
    pub op: String,
    /// The user's line. A function that other lines call to move something is named by its own line, unless it is `#[track_caller]`:
    /// then by the line that calls it.
    pub source: Option<Place>,
    /// Whether derivatives put it there: on the way back, or forward once more.
    pub phase: Phase,
    /// Whether the program asks for it: by `reshard`, `constrain`, or a collective in code of one device. Else it follows from what operations read.
    pub asked: bool,
    /// Why it is needed.
    pub reason: String,
    /// Which of the collectives of its operation it is.
    pub(crate) part: Part,
    /// Who reads what its operation makes, and so asks where that is.
    pub(crate) sake: Option<Why>,
    /// The loop before which it is, as it is the same at each step.
    pub(crate) before: Option<Why>,
    /// Where it is: of each program around it the step, and which of the programs in that step; last its own step.
    pub(crate) path: Vec<(usize, usize)>,
}

/// All collectives of a program, in order; and the most bytes that a device holds at once.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    pub(crate) list: Vec<Collective>,
    pub(crate) peak_bytes: u64,
    /// Whether that is an estimate.
    pub(crate) estimated: bool,
    /// What that follows from.
    pub(crate) holds: Holds,
}

impl Kind {
    /// Its name in words: `all_reduce`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all_reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::AllToAll => "all_to_all",
            Kind::Permute => "permute",
            Kind::Halo => "halo",
            Kind::Exchange => "exchange",
        }
    }
}
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl<'a> IntoIterator for &'a Collectives {
    type Item = &'a Collective;
    type IntoIter = std::slice::Iter<'a, Collective>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
impl Collectives {
    /// Every collective, in the order of the program; those of a loop's body once, with how often they run.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Collective> {
        self.list.iter()
    }
    /// How many collectives there are; those of a loop's body count once.
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// Whether nothing is communicated.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// How many there are of this kind over these axes; those of a loop's body count once.
    pub fn count(&self, kind: Kind, axes: impl Into<Axes>) -> usize {
        let axes = axes.into();
        self.list.iter().filter(|c| c.kind == kind && same_axes(&c.axes, &axes)).count()
    }
    /// Bytes that the busiest device of each collective receives, all runs together.
    pub fn bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, c| sum.saturating_add(c.bytes.saturating_mul(c.times)))
    }
    /// Bytes that all devices receive, all runs together.
    pub fn total_bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, c| sum.saturating_add(c.total_bytes.saturating_mul(c.times)))
    }
    /// The most bytes that a device holds at once: its blocks of the values that are in use, and what it has fetched. It is printed with
    /// `≈` if it is an estimate. Donated arguments count up to their last reader; one that reads them element by element writes over them.
    /// What is held then is told by [`Lowered::memory`](crate::Lowered::memory).
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }
    /// The same, with the peak where some inputs of the program are donated.
    pub(crate) fn donating(self, p: &SpmdProgram, donated: &[bool]) -> Collectives {
        let (peak_bytes, exact) = self.holds.peak(p, donated);
        Collectives { peak_bytes, estimated: !exact, ..self }
    }
    /// Panics unless there are just these: so many of each kind over each set of axes (in any order), and no others. The message
    /// lists what there is.
    #[track_caller]
    pub fn assert(&self, wanted: &[(Kind, Axes, usize)]) {
        let mut wrong = Vec::new();
        let mut seen: Vec<(Kind, &Axes)> = Vec::new();
        for (kind, axes, n) in wanted {
            let found = self.count(*kind, axes);
            if found != *n {
                wrong.push(format!("{kind} over {axes}: expected {n}, found {found}"));
            }
            seen.push((*kind, axes));
        }
        for c in &self.list {
            if !seen.iter().any(|(k, a)| *k == c.kind && same_axes(a, &c.axes)) {
                let n = self.count(c.kind, &c.axes);
                wrong.push(format!("{} over {}: expected none, found {n}", c.kind, c.axes));
                seen.push((c.kind, &c.axes));
            }
        }
        assert!(wrong.is_empty(), "other collectives than expected:\n  {}\n{self}", wrong.join("\n  "));
    }
}

/// Whether two lists name the same axes.
fn same_axes(a: &Axes, b: &Axes) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.contains(x))
}

/// The column that says whether something is forward, recomputed or backward.
pub(crate) const PHASE: &str = "phase";

/// A figure; an estimate is marked.
fn number(n: u64, exact: bool) -> String {
    format!("{}{n}", if exact { "" } else { "≈" })
}

/// Bytes for people, where there are many: ` (621 MB)`.
fn units(bytes: u64) -> String {
    let names = ["MB", "GB", "TB", "PB", "EB"];
    let (mut scaled, mut unit) = (bytes as f64 / 1e6, 0);
    while scaled >= 999.5 && unit + 1 < names.len() {
        (scaled, unit) = (scaled / 1e3, unit + 1);
    }
    let digits = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    if bytes < 1_000_000 { String::new() } else { format!(" ({scaled:.digits$} {})", names[unit]) }
}

impl Collectives {
    /// Prints the table to stdout; where that is a terminal, reasons are wrapped to its width, below one another.
    pub fn print(&self) {
        use std::io::Write;
        // a reader that has gone away is no error
        let _ = writeln!(std::io::stdout(), "{}", self.table(terminal::stdout()).trim_end());
    }
    /// The table, in lines of so many columns, if any.
    fn table(&self, columns: Option<usize>) -> String {
        let peak = format!(
            "peak memory: {} bytes per device{}\n",
            number(self.peak_bytes, !self.estimated),
            units(self.peak_bytes)
        );
        if self.list.is_empty() {
            return format!("no collectives; {peak}");
        }
        // a program without derivatives needs no word for all its rows
        let phases = self.list.iter().any(|c| c.phase != Phase::Forward);
        let row = |c: &Collective| {
            let line = c.source.map(|p| format!("{}:{}", p.file(), p.line())).unwrap_or_default();
            [
                c.kind.to_string(),
                c.axes.to_string(),
                number(c.bytes, c.exact) + &units(c.bytes),
                number(c.total_bytes, c.exact) + &units(c.total_bytes),
                number(c.messages, c.counted),
                c.times.to_string(),
                c.phase.name().into(),
                c.op.clone(),
                line,
                c.reason.clone(),
            ]
        };
        let head = [
            "kind",
            "axes",
            "bytes/device",
            "bytes",
            "messages",
            "times",
            PHASE,
            "operation",
            "line",
            "reason",
        ]
        .map(String::from);
        let rows: Vec<[String; 10]> = std::iter::once(head).chain(self.list.iter().map(row)).collect();
        let widths: [usize; 10] =
            std::array::from_fn(|k| rows.iter().map(|r| r[k].chars().count()).max().unwrap_or(0));
        let shown = |k: &usize| phases || *k != 6;
        let before: usize = (0..9).filter(shown).map(|k| widths[k] + 2).sum();
        let mut out = String::new();
        for r in &rows {
            let mut line = String::new();
            for (k, cell) in r.iter().enumerate().filter(|(k, _)| shown(k)) {
                // numbers end below one another
                line += &match k {
                    2..=5 => format!("{cell:>0$}  ", widths[k]),
                    9 => match columns {
                        // what the terminal leaves, or, of a narrow one, lines of their own
                        Some(all) if all >= before + 24 => {
                            terminal::wrap(cell, all - before).join(&format!("\n{:before$}", ""))
                        }
                        Some(all) if all < before + cell.chars().count() => {
                            format!("\n    {}", terminal::wrap(cell, all.max(44) - 4).join("\n    "))
                        }
                        _ => cell.clone(),
                    },
                    _ => format!("{cell:<0$}  ", widths[k]),
                };
            }
            for part in line.lines() {
                out += part.trim_end();
                out.push('\n');
            }
        }
        out + &peak
    }
}

/// A table: kind, axes, bytes per device, how often, operation, line, reason; then the most bytes on a device. Of a derivative each row
/// says whether it is forward, recomputed or backward.
impl fmt::Display for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bytes_have_units() {
        let seen =
            [999_999, 1_000_000, 9_994_000, 9_996_000, 620_756_992, 999_600_000, 418_759_311_360, u64::MAX];
        let text: Vec<String> = seen.into_iter().map(units).collect();
        let want = [
            "",
            " (1.00 MB)",
            " (9.99 MB)",
            " (10.0 MB)",
            " (621 MB)",
            " (1.00 GB)",
            " (419 GB)",
            " (18.4 EB)",
        ];
        assert_eq!(text, want);
    }
    fn one() -> Collective {
        Collective {
            kind: Kind::AllReduce,
            axes: "X".into(),
            bytes: 8,
            total_bytes: 16,
            exact: true,
            messages: 2,
            counted: true,
            times: 1,
            op: "dot_general".into(),
            source: None,
            phase: Phase::Forward,
            asked: false,
            reason: "the contracting dimension is sharded over X: partial sums are added on all devices"
                .into(),
            part: Part::Sum,
            sake: None,
            before: None,
            path: vec![(0, 0)],
        }
    }
    /// Nobody would wait for this table, were it read again for each of its cells.
    #[test]
    fn the_report_of_very_many_collectives_is_printed() {
        let many = 100_000;
        let report = Collectives { list: vec![one(); many], ..Collectives::default() };
        assert_eq!(report.to_string().lines().count(), 1 + many + 1);
    }
    #[test]
    fn reasons_are_wrapped_to_a_terminal() {
        let report = Collectives { list: vec![one()], peak_bytes: 2_000_000, ..Collectives::default() };
        expect_test::expect![[r#"
            kind        axes  bytes/device  bytes  messages  times  operation    line  reason
            all_reduce  X                8     16         2      1  dot_general        the contracting dimension is sharded over X:
                                                                                       partial sums are added on all devices
            peak memory: 2000000 bytes per device (2.00 MB)
        "#]].assert_eq(&report.table(Some(120)));
        expect_test::expect![[r#"
            kind        axes  bytes/device  bytes  messages  times  operation    line
                reason
            all_reduce  X                8     16         2      1  dot_general
                the contracting dimension is sharded over X: partial
                sums are added on all devices
            peak memory: 2000000 bytes per device (2.00 MB)
        "#]]
        .assert_eq(&report.table(Some(60)));
        assert_eq!(report.table(None), report.to_string());
        assert_eq!(report.to_string().lines().count(), 3);
    }
}
