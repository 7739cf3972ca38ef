//! Transforms that run other optimizers: on some parameters, or in some steps.

use super::clipping::all_finite;
use super::mask::{ParamMask, matches};
use super::optimizer::{Optimizer, hide, renamed, show, stored};
use super::state::{Leaf, LeafSlot, Transform, UpdateStep, quoted};
use crate::api::array::Array;
use crate::core::{ArrayType, Fault, Result, Scalar};
use std::collections::BTreeMap;

/// Runs an optimizer on the chosen leaves of a step; the other leaves stay as they are.
fn run_on(inner: &Optimizer, step: &mut UpdateStep, chosen: impl Fn(&Leaf) -> bool) {
    let all = std::mem::take(&mut step.leaves);
    let mut kept: Vec<Option<Leaf>> = Vec::new();
    for leaf in all {
        if chosen(&leaf) {
            step.leaves.push(leaf);
            kept.push(None);
        } else {
            kept.push(Some(leaf));
        }
    }
    inner.run(step);
    let mut done = std::mem::take(&mut step.leaves).into_iter();
    step.leaves = kept.into_iter().filter_map(|leaf| leaf.or_else(|| done.next())).collect();
}

struct Masked {
    inner: Optimizer,
    mask: ParamMask,
}
impl Transform for Masked {
    fn slot_names(&self) -> Vec<String> {
        self.inner.slot_names()
    }
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        if self.mask.contains(path, ty) { self.inner.slots(path, ty) } else { Ok(Vec::new()) }
    }
    fn scalars(&self) -> Vec<(String, Scalar)> {
        self.inner.scalars()
    }
    fn update(&self, step: &mut UpdateStep) {
        run_on(&self.inner, step, |l| self.mask.contains(&l.path, &l.ty));
    }
}
/// Applies an optimizer to the parameters that the mask contains; other updates stay as they are.
///
/// Other parameters have no slots of this optimizer. Their updates pass through, as in optax: to
/// leave these parameters as they are, use [`partition`] with [`set_to_zero`](super::set_to_zero).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let momentum = optim::masked(optim::trace(0.9, false), |_, ty| ty.rank() >= 2);
/// let opt = momentum.then(optim::scale(-0.1));
/// let state = opt.init(&(Array::ones([2, 2]), Array::zeros([2])))?;
/// assert_eq!(tree::paths(&state), ["count", "slots.trace.0"]);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn masked(
    optimizer: Optimizer,
    mask: impl Fn(&str, &ArrayType) -> bool + Send + Sync + 'static,
) -> Optimizer {
    optimizer.wrapped(Masked { inner: optimizer.clone(), mask: ParamMask::new(mask) })
}

/// An optimizer for the paths that match a pattern.
struct Branch {
    pattern: String,
    inner: Optimizer,
    /// The scalars that are stored under other names, since earlier branches have them.
    scalars: Vec<(String, String)>,
}
struct Partition(Vec<Branch>);
impl Partition {
    fn branch(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|b| matches(&b.pattern, path))
    }
}
impl Transform for Partition {
    fn slot_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.iter().flat_map(|b| b.inner.slot_names()).collect();
        crate::core::util::small_sort::sort(&mut names);
        names.dedup();
        names
    }
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        match self.branch(path) {
            Some(i) => self.0[i].inner.slots(path, ty),
            None => {
                let patterns: Vec<&str> = self.0.iter().map(|b| b.pattern.as_str()).collect();
                Err(fault!(Tree, "{} matches none of the patterns {patterns:?} of `partition`", quoted(path))
                    .help(
                        "give the others an optimizer too: `(\"*\", optim::set_to_zero())` as the last entry",
                    ))
            }
        }
    }
    fn scalars(&self) -> Vec<(String, Scalar)> {
        let all = self.0.iter().flat_map(|b| b.inner.scalars().into_iter().map(move |s| (b, s)));
        all.map(|(b, (name, x))| (stored(&name, &b.scalars), x)).collect()
    }
    fn update(&self, step: &mut UpdateStep) {
        for (i, branch) in self.0.iter().enumerate() {
            let hidden = show(&mut step.scalars, &branch.scalars);
            run_on(&branch.inner, step, |l| self.branch(&l.path) == Some(i));
            hide(&mut step.scalars, &branch.scalars, hidden);
        }
    }
}
/// Applies one of several optimizers to each parameter: the first one whose pattern matches its
/// path.
///
/// In a pattern, `*` stands for any text. This is optax's `partition` (formerly `multi_transform`),
/// with patterns instead of a tree of labels.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// use std::collections::BTreeMap;
/// let opt = optim::partition([
///     ("*.lora_*", optim::adamw(1e-3)),
///     ("*", optim::set_to_zero()),
/// ]);
/// let w = |x: f32| Array::from([x]);
/// let model = BTreeMap::from([("up.base", w(1.0)), ("up.lora_a", w(2.0))]);
/// let state = opt.init(&model)?;
/// assert_eq!(tree::paths(&state), ["count", "slots.mu.up.lora_a", "slots.nu.up.lora_a"]);
/// let (model, _) = opt.step(&model, &tree::map(&model, |w| w.ones_like()), &state);
/// assert_eq!(model["up.base"].to_vec::<f32>()?, [1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// A parameter that matches no pattern is an error of `init` and `step`, which names it.
#[doc(alias("multi_transform", "by_path", "param_groups"))]
pub fn partition<S: Into<String>>(optimizers: impl IntoIterator<Item = (S, Optimizer)>) -> Optimizer {
    let mut branches: Vec<Branch> = Vec::new();
    let mut whole = Optimizer::default();
    let mut taken: Vec<String> = Vec::new();
    for (pattern, inner) in optimizers {
        let scalars = renamed(&taken, inner.scalars().into_iter().map(|s| s.0).collect());
        taken.extend(inner.scalars().into_iter().map(|(name, _)| stored(&name, &scalars)));
        whole = whole.then(inner.settings());
        branches.push(Branch { pattern: pattern.into(), inner, scalars });
    }
    whole.then(Optimizer::new(Partition(branches)))
}

const COUNT: &str = "finite_count";
const CONSECUTIVE: &str = "notfinite_count";
const TOTAL: &str = "total_notfinite";
const LAST: &str = "last_finite";

struct ApplyIfFinite {
    inner: Optimizer,
    max_consecutive: u32,
    /// The scalars of the inner optimizer that are stored under other names.
    scalars: Vec<(String, String)>,
}
impl ApplyIfFinite {
    fn own_scalars() -> [(String, Scalar); 4] {
        let zero = |name: &str| (name.to_string(), Scalar::Int(0));
        [zero(COUNT), zero(CONSECUTIVE), (LAST.into(), Scalar::Bool(true)), zero(TOTAL)]
    }
}
impl Transform for ApplyIfFinite {
    fn slot_names(&self) -> Vec<String> {
        self.inner.slot_names()
    }
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        self.inner.slots(path, ty)
    }
    fn scalars(&self) -> Vec<(String, Scalar)> {
        let inner = self.inner.scalars().into_iter().map(|(n, x)| (stored(&n, &self.scalars), x));
        ApplyIfFinite::own_scalars().into_iter().chain(inner).collect()
    }
    fn update(&self, step: &mut UpdateStep) {
        let finite = all_finite(&step.updates());
        let one = |name: &str| step.scalars.get(name).cloned().unwrap_or_else(|| Array::from(0));
        let consecutive = finite.select(0, one(CONSECUTIVE) + 1);
        let applied = &finite | consecutive.gt(i64::from(self.max_consecutive));
        let total = finite.select(one(TOTAL), one(TOTAL) + 1);
        let mut tried =
            UpdateStep { count: one(COUNT), leaves: step.leaves.clone(), scalars: step.scalars.clone() };
        let hidden = show(&mut tried.scalars, &self.scalars);
        self.inner.run(&mut tried);
        hide(&mut tried.scalars, &self.scalars, hidden);
        let choose = |new: &Array, old: &Array| applied.select(new, old);
        let each =
            |new: &BTreeMap<String, Array>, old: &BTreeMap<String, Array>| -> BTreeMap<String, Array> {
                new.iter()
                    .map(|(k, v)| (k.clone(), old.get(k).map_or_else(|| v.clone(), |o| choose(v, o))))
                    .collect()
            };
        for (leaf, new) in step.leaves.iter_mut().zip(&tried.leaves) {
            leaf.update = choose(&new.update, &leaf.update.zeros_like());
            leaf.slots = each(&new.slots, &leaf.slots);
        }
        let count = applied.select(&tried.count + 1, &tried.count);
        step.scalars = each(&tried.scalars, &step.scalars);
        for (name, x) in [(COUNT, count), (CONSECUTIVE, consecutive), (LAST, finite), (TOTAL, total)] {
            step.scalars.insert(name.into(), x);
        }
    }
}
/// Skips the steps in which an update is NaN or infinite: parameters, slots and counts of schedules
/// stay as they are.
///
/// After `max_consecutive_errors` such steps in a row, the next one is applied as it is, so that
/// the failure shows. The state counts them: its scalars are `notfinite_count` (in a row),
/// `total_notfinite`, `last_finite` and `finite_count`. Gradients are checked where the optimizer
/// is in the chain, so it wraps the whole chain.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let opt = optim::apply_if_finite(optim::sgd(0.5), 3);
/// let (w, state) = (Array::from(1.0f32), opt.init(&Array::from(1.0f32))?);
/// let (w, state) = opt.step(&w, &Array::from(f32::NAN), &state);
/// assert_eq!(w.item::<f32>()?, 1.0);
/// assert_eq!(state.scalars["total_notfinite"].item::<i32>()?, 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("skip_nan"))]
pub fn apply_if_finite(optimizer: Optimizer, max_consecutive_errors: u32) -> Optimizer {
    let own: Vec<String> = ApplyIfFinite::own_scalars().into_iter().map(|s| s.0).collect();
    let scalars = renamed(&own, optimizer.scalars().into_iter().map(|s| s.0).collect());
    let max_consecutive = max_consecutive_errors;
    optimizer.wrapped(ApplyIfFinite { inner: optimizer.clone(), max_consecutive, scalars })
}
