//! What was done when, from the marks of those that ran a plan.

use super::run::Mark;
use crate::compile::plan::{Kernel, Level, Plan};
use crate::plan::{Doing, Span, Timeline};
use crate::program::Phase;
use crate::sorted;
use std::collections::HashMap;

/// The levels of a plan, those of nested plans too, by number.
fn levels<'a>(plan: &'a Plan, all: &mut HashMap<usize, &'a Level>) {
    for level in &plan.levels {
        all.insert(level.id, level);
        for n in &level.nodes {
            match &n.kernel {
                Kernel::Loop(l) => levels(&l.body, all),
                Kernel::While(w) => [&w.cond, &w.body].into_iter().for_each(|p| levels(p, all)),
                Kernel::Branch(b) => b.arms.iter().for_each(|p| levels(p, all)),
                _ => {}
            }
        }
    }
}

/// The timeline of a run that took from `begin` to `end`, in nanoseconds.
pub(super) fn timeline(
    engine: &'static str,
    plan: &Plan,
    mut marks: Vec<(usize, Vec<Mark>)>,
    begin: usize,
    end: usize,
) -> Timeline {
    let mut known = HashMap::new();
    levels(plan, &mut known);
    sorted::sort_by_key(&mut marks, |m| m.0);
    let tracks = marks.len();
    let since = |t: usize| t.saturating_sub(begin) as f64 * 1e-9;
    let mut spans = Vec::new();
    for (track, list) in marks {
        for m in list {
            let (start, seconds) = (since(m.from), m.to.saturating_sub(m.from) as f64 * 1e-9);
            let waits = || Span {
                track,
                doing: Doing::Wait,
                op: "wait for the others".into(),
                source: None,
                phase: None,
                kernel: String::new(),
                start,
                seconds,
            };
            let node = m.node.and_then(|(level, k)| known.get(&(level as usize))?.nodes.get(k as usize));
            let Some(node) = node else {
                spans.push(waits());
                continue;
            };
            let step = node.what.step.as_ref();
            let combines = step.is_some_and(|s| s.1);
            spans.push(Span {
                doing: if combines { Doing::Combine } else { Doing::Kernel },
                // what no step makes is an input that becomes a result
                op: step.map_or_else(|| "copy".into(), |s| s.0.op.clone()),
                source: step.and_then(|s| s.0.place),
                phase: Some(step.map_or(Phase::Forward, |s| s.0.phase)),
                kernel: node.what.to_string(),
                ..waits()
            });
        }
    }
    Timeline::new(engine, tracks, since(end), spans)
}
