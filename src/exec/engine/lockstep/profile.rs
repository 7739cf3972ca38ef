//! Converts the marks that workers recorded during a run into a [`Timeline`].

use super::run::RunMark;
use crate::core::util::small_sort;
use crate::exec::compile::plan::{ExecutionPlan, PlanLevel};
use crate::ir::program::{Phase, ScopePath};
use crate::partition::plan::{Activity, Span, Timeline};
use std::collections::HashMap;

/// Returns the timeline of a run that lasted from `begin` to `end`, in nanoseconds.
pub(super) fn timeline(
    engine: &'static str,
    plan: &ExecutionPlan,
    mut marks: Vec<(usize, Vec<RunMark>)>,
    begin: usize,
    end: usize,
) -> Timeline {
    let mut known: HashMap<usize, &PlanLevel> = HashMap::new();
    plan.visit_levels(&mut |level| _ = known.insert(level.id, level));
    small_sort::sort_by_key(&mut marks, |m| m.0);
    let tracks = marks.len();
    let since = |t: usize| t.saturating_sub(begin) as f64 * 1e-9;
    let mut spans = Vec::new();
    for (track, list) in marks {
        for m in list {
            let (start, seconds) =
                (since(m.start_nanos), m.end_nanos.saturating_sub(m.start_nanos) as f64 * 1e-9);
            let waits = || Span {
                track,
                activity: Activity::Wait,
                op: "wait for the others".into(),
                source: None,
                scope: ScopePath::default(),
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
            let step = node.info.origin.as_ref();
            let combines = step.is_some_and(|s| s.1);
            spans.push(Span {
                activity: if combines { Activity::Combine } else { Activity::Kernel },
                // a node without a step copies an input that is also a result
                op: step.map_or_else(|| "copy".into(), |s| s.0.op.clone()),
                source: step.and_then(|s| s.0.location),
                scope: step.map(|s| s.0.scope.clone()).unwrap_or_default(),
                phase: Some(step.map_or(Phase::Forward, |s| s.0.phase)),
                kernel: node.info.to_string(),
                ..waits()
            });
        }
    }
    Timeline::new(engine, tracks, since(end), spans)
}
