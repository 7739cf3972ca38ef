//! Counts what a per-device program sends, message by message, and compares with its report.

use atmesh::partition::{DimLayout, Slot, SpmdProgram, Step};
use atmesh::program::loop_nest::Reducer;
use atmesh::{Axis, Collective, CollectiveKind, Collectives, Mesh};
use std::collections::BTreeSet;

/// What the devices send in one execution of a step.
#[derive(Debug, Default)]
struct Sent {
    /// The position in the program, as [`Collective::path`] gives it.
    path: Vec<(usize, usize)>,
    /// The number of executions, and whether they are for one iteration of a `while` loop.
    times: (u64, bool),
    /// The bytes that each device receives.
    received: Vec<u64>,
    /// The pairs of sender and receiver in each round.
    pairs: BTreeSet<(usize, usize, usize)>,
    /// The reducer of a reduction; `None` for a fetch.
    reduces: Option<Reducer>,
    /// For a fetch, the value that is fetched; for a reduction, its result.
    value: Slot,
}

impl Sent {
    fn add(&mut self, round: usize, from: usize, to: usize, bytes: u64) {
        if bytes > 0 && from != to {
            self.pairs.insert((round, from, to));
            self.received[to] += bytes;
        }
    }
    fn most(&self) -> u64 {
        self.received.iter().copied().max().unwrap_or(0)
    }
    fn all(&self) -> u64 {
        self.received.iter().sum()
    }
}

/// Counts the steps of a program and of the programs nested in it.
fn count(p: &SpmdProgram, path: &[(usize, usize)], times: (u64, bool), out: &mut Vec<Sent>) {
    for (k, step) in p.steps.iter().enumerate() {
        let inner = |n: usize| [path, &[(k, n)]].concat();
        let mut sent = Sent { path: inner(0), times, received: vec![0; p.devices], ..Sent::default() };
        let bytes = |slot: Slot| p.slots[slot].dtype.size() as u64;
        match step {
            Step::Fetch { src, .. } => {
                sent.value = *src;
                for to in 0..p.devices {
                    for piece in p.transfers(k, to) {
                        sent.add(0, piece.from, to, volume(&piece.region) * bytes(*src));
                    }
                }
            }
            Step::Reduce { src, out, combine } => {
                (sent.value, sent.reduces) = (*out, Some(*combine));
                if p.is_tree_reduction(k) {
                    let partials: DimLayout = p.reduced_sub_axes(*src, *out);
                    for set in (0..p.devices).filter(|d| partials.rank(*d) == 0) {
                        for (n, messages) in p.rounds(k, set).into_iter().enumerate() {
                            for m in messages {
                                let at = |rank| partials.nearest_position(set, rank);
                                sent.add(n, at(m.from), at(m.to), bytes(*out));
                            }
                        }
                    }
                } else {
                    for to in 0..p.devices {
                        for piece in p.transfers(k, to) {
                            sent.add(0, piece.from, to, volume(&piece.region) * bytes(*src));
                        }
                    }
                }
            }
            Step::Loop { body, length, .. } => {
                count(body, &inner(0), (times.0 * *length as u64, times.1), out);
            }
            Step::While { cond, body, .. } => {
                count(cond, &inner(0), (times.0, true), out);
                count(body, &inner(1), (times.0, true), out);
            }
            Step::Branch { branches, .. } => {
                branches.iter().enumerate().for_each(|(n, b)| count(b, &inner(n), times, out));
            }
            Step::Local { .. } | Step::Print { .. } => {}
        }
        if sent.all() > 0 {
            out.push(sent);
        }
    }
}

fn volume(region: &[(i64, i64)]) -> u64 {
    region.iter().map(|(lo, hi)| (hi - lo) as u64).product()
}

/// Returns the axes along which senders and receivers differ.
fn differing(mesh: &Mesh, sent: &[&Sent]) -> Vec<Axis> {
    let stride = |axis: Axis| mesh.stride(axis).expect("it is an axis of the mesh");
    let index = |axis: Axis, device: usize| device / stride(axis) % mesh.axis_size(axis).unwrap_or(1);
    let differs = |axis: &Axis| {
        sent.iter().flat_map(|s| &s.pairs).any(|(_, from, to)| index(*axis, *from) != index(*axis, *to))
    };
    mesh.axis_names().iter().copied().filter(differs).collect()
}

/// Returns the faults of a row about these exchanges: one, or the two halves of an all-reduce.
fn row_faults(mesh: Option<&Mesh>, row: &Collective, sent: &[&Sent]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, row: String, counted: String| {
        if row != counted {
            wrong.push(format!("{what}: the row says {row}, and {counted} are counted"));
        }
    };
    if row.exact {
        let most: u64 = sent.iter().map(|s| s.most()).sum();
        same("bytes of the busiest device", row.bytes_per_device.to_string(), most.to_string());
        let all: u64 = sent.iter().map(|s| s.all()).sum();
        same("bytes of all devices", row.total_bytes.to_string(), all.to_string());
    }
    if row.messages_exact {
        let messages: usize = sent.iter().map(|s| s.pairs.len()).sum();
        same("messages", row.messages.to_string(), messages.to_string());
    }
    let times = sent[0].times;
    same("executions", format!("{:?}", (row.count, row.per_iteration)), format!("{times:?}"));
    let kinds: &[CollectiveKind] = match sent[0].reduces {
        Some(Reducer::AssumeEqual) => &[CollectiveKind::Exchange],
        Some(_) => &[CollectiveKind::AllReduce, CollectiveKind::ReduceScatter],
        None => {
            use CollectiveKind::{AllGather, AllToAll, Exchange, Halo, Permute};
            &[AllGather, AllToAll, Permute, Halo, Exchange]
        }
    };
    if !kinds.contains(&row.kind) {
        wrong.push(format!("{} is a step of {kinds:?}", row.kind));
    }
    let receivers: Vec<usize> = sent.iter().flat_map(|s| &s.pairs).map(|p| p.2).collect();
    let once = receivers.iter().collect::<BTreeSet<_>>().len() == receivers.len();
    if row.kind == CollectiveKind::Permute && !once {
        wrong.push("a device receives from two others by one permute".into());
    }
    if let Some(mesh) = mesh {
        let along = differing(mesh, sent);
        let named = |a: &Axis| row.axes.contains(*a);
        let moved = |a: Axis| along.contains(&a) || mesh.axis_size(a).unwrap_or(1) == 1;
        if !along.iter().all(named) || !row.requested && !row.axes.iter().all(moved) {
            wrong.push(format!("axes: the row says {}, and messages are along {along:?}", row.axes));
        }
    }
    wrong
}

/// Returns the differences between a report and what the program sends.
pub(crate) fn differences(p: &SpmdProgram, report: &Collectives) -> Vec<String> {
    let mut all = Vec::new();
    count(p, &[], (1, false), &mut all);
    let mut wrong = Vec::new();
    let mut of_row: Vec<Vec<&Sent>> = vec![Vec::new(); report.len()];
    for sent in &all {
        let own = report.iter().position(|c| c.path() == &sent.path[..]);
        // the second half of an all-reduce belongs to the row of the first
        let first = || {
            let half = |s: &&Sent| {
                let near = s.path.len() == sent.path.len()
                    && s.path[..s.path.len() - 1] == sent.path[..s.path.len() - 1];
                near && s.reduces.is_some() && sent.reduces.is_none() && s.value == sent.value
            };
            let half = all.iter().find(half)?;
            report.iter().position(|c| c.path() == &half.path[..])
        };
        match own.or_else(first) {
            Some(row) => of_row[row].push(sent),
            None => wrong.push(format!("no row for {sent:?}")),
        }
    }
    for (row, sent) in report.iter().zip(&of_row) {
        let faults = match &sent[..] {
            [] => vec!["nothing is sent".into()],
            sent => row_faults(p.mesh.as_ref(), row, sent),
        };
        wrong.extend(faults.into_iter().map(|w| format!("{} over {} ({}): {w}", row.kind, row.axes, row.op)));
        let here = row.location.is_some_and(|l| l.file().starts_with("tests"));
        if !here {
            wrong
                .push(format!("{} over {} ({}): its line is {:?}", row.kind, row.axes, row.op, row.location));
        }
    }
    let exact = report.iter().all(|c| c.exact);
    let bytes = |of: fn(&Sent) -> u64| all.iter().map(|s| s.times.0 * of(s)).sum::<u64>();
    if exact && (report.bytes(), report.total_bytes()) != (bytes(Sent::most), bytes(Sent::all)) {
        wrong.push(format!("the rows are {} bytes, and {} are sent", report.total_bytes(), bytes(Sent::all)));
    }
    if !wrong.is_empty() {
        wrong.push(format!("{report}\n{p}"));
    }
    wrong
}
