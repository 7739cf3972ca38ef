//! Optimizers: chains of transforms.

use super::params::{STATE_HELP, TrainedParam, check_slot, collect_gradients, collect_params, new_scalar};
use super::placement::{WorkPlacement, is_type_only};
use super::state::{Leaf, LeafSlot, OptState, Transform, UpdateStep, compute_dtype};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::api::tree::{Path, Tree};
use crate::core::{ArrayType, Axes, DType, Error, Fault, Result, Scalar};
use crate::ir::program::CallSite;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An optimizer: a chain of transforms of gradients.
///
/// [`Optimizer::init`] makes its state, and [`Optimizer::step`] returns the next parameters and the
/// next state. Both are functions of trees: they run eagerly and under `jit`, on any mesh, and the
/// state has the shardings of the parameters.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, OptState};
///
/// let opt = optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(1e-2)]);
/// let step = jit(|w: &Array, state: &OptState, x: &Array| {
///     let (loss, g) = value_and_grad(w, |w| (x.dot(&w) - 1.0).square().mean(..));
///     let (w, state) = opt.step(w, &g, state);
///     (w, state, loss)
/// })
/// .donate([0, 1]);
///
/// let mesh = Mesh::new([("data", 4)])?;
/// let x = Key::new(0).normal([8, 2]).put(&mesh, p!["data"]);
/// let mut w = Array::zeros([2]).put(&mesh, p![]);
/// let mut state = opt.init(&w)?;
/// let mut losses = Vec::new();
/// for _ in 0..20 {
///     let loss;
///     (w, state, loss) = step.call((w, state, &x))?;
///     losses.push(loss.item::<f32>()?);
/// }
/// assert!(losses[19] < losses[0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Arithmetic
/// Updates of float64 parameters are computed in float64, and all others in float32: bfloat16 and
/// float16 parameters are converted, and rounded once when the update is added. Their slots are
/// float32 too, unless [`Optimizer::slot_dtype`] says otherwise.
///
/// # Gradients
/// A gradient that is unreduced over mesh axes is summed at the start of the step: by a
/// reduce-scatter if the slots are sharded over these axes, otherwise by an all-reduce. NaN and
/// infinite gradients are used as they are, unless
/// [`apply_if_finite`](crate::optim::apply_if_finite) is part of the optimizer.
///
/// # Errors
/// Parameters are floats: an integer parameter is an error of `init` and `step`. Gradients have the
/// structure and the shapes of the parameters, and the state that of `init`. A tree without arrays
/// is valid.
#[doc(alias("GradientTransformation", "GradientTransformationExtraArgs"))]
#[derive(Clone, Default)]
pub struct Optimizer {
    links: Vec<ChainLink>,
    /// The mesh axes over which slots are sharded in addition.
    slot_axes: Axes,
    /// The first invalid argument of a constructor, which each use returns.
    invalid: Option<Error>,
}

/// A transform of a chain.
#[derive(Clone)]
struct ChainLink {
    transform: Arc<dyn Transform>,
    /// The names of slots and scalars that the chain stores under other names, because earlier
    /// transforms have slots or scalars of these names: own name and stored name.
    slots: Vec<(String, String)>,
    scalars: Vec<(String, String)>,
}

/// Prints the names of the slots.
impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Optimizer({} transforms, slots {:?})", self.links.len(), self.slot_names())
    }
}

/// Joins optimizers: each one transforms the updates of the one before it.
///
/// If several of them have a slot of one name, the names of the later slots end in `_2`, `_3` and
/// so on.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let opt = optim::chain([optim::clip(1.0), optim::sgd(0.5)]);
/// let w = Array::from([3.0f32, 4.0]);
/// let state = opt.init(&w)?;
/// let (w, _) = opt.step(&w, &Array::from([8.0f32, 0.5]), &state);
/// assert_eq!(w.to_vec::<f32>()?, [2.5, 3.75]);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn chain(optimizers: impl IntoIterator<Item = Optimizer>) -> Optimizer {
    optimizers.into_iter().fold(Optimizer::default(), Optimizer::then)
}

impl Optimizer {
    /// Creates an optimizer of one transform.
    ///
    /// ```
    /// use atmesh::optim::{Optimizer, Transform, UpdateStep};
    /// struct Halve;
    /// impl Transform for Halve {
    ///     fn update(&self, step: &mut UpdateStep) {
    ///         step.map(|leaf| 0.5 * &leaf.update);
    ///     }
    /// }
    /// let opt = Optimizer::new(Halve).then(atmesh::optim::sgd(0.1));
    /// assert_eq!(format!("{opt:?}"), "Optimizer(2 transforms, slots [])");
    /// ```
    pub fn new(transform: impl Transform + 'static) -> Optimizer {
        let mut optimizer = Optimizer::default();
        optimizer.push(Arc::new(transform));
        optimizer
    }
    /// Appends the transforms of another optimizer.
    ///
    /// ```
    /// use atmesh::optim;
    /// let opt = optim::clip_by_global_norm(1.0).then(optim::adam(1e-3));
    /// assert_eq!(format!("{opt:?}"), r#"Optimizer(3 transforms, slots ["mu", "nu"])"#);
    /// ```
    pub fn then(mut self, next: Optimizer) -> Optimizer {
        for link in next.links {
            self.push(link.transform);
        }
        self.slot_axes.extend_unique(&next.slot_axes);
        self.invalid = self.invalid.or(next.invalid);
        self
    }
    fn push(&mut self, transform: Arc<dyn Transform>) {
        let slots = renamed(&self.slot_names(), transform.slot_names());
        let taken: Vec<String> = self.scalars().into_iter().map(|s| s.0).collect();
        let scalars = renamed(&taken, transform.scalars().into_iter().map(|s| s.0).collect());
        self.links.push(ChainLink { transform, slots, scalars });
    }
    /// Records an invalid argument of a constructor.
    pub(super) fn invalid(mut self, fault: Option<Fault>, call: CallSite<'_>) -> Optimizer {
        self.invalid = self.invalid.or_else(|| Some(call.error(fault?, Vec::new)));
        self
    }
    /// Records the error of an argument of a constructor.
    pub(super) fn invalid_error(mut self, error: Option<Error>) -> Optimizer {
        self.invalid = self.invalid.or(error);
        self
    }
    /// Returns the invalid argument of a constructor, if there is one.
    pub(super) fn validity(&self) -> Result<()> {
        self.invalid.clone().map_or(Ok(()), Err)
    }
    /// Returns the first invalid argument and the slot axes, for an optimizer that wraps this one.
    pub(super) fn wrapped(&self, transform: impl Transform + 'static) -> Optimizer {
        self.settings().then(Optimizer::new(transform))
    }
    /// Returns an optimizer without transforms that has the slot axes and the invalid argument of
    /// this one.
    pub(super) fn settings(&self) -> Optimizer {
        Optimizer { links: Vec::new(), slot_axes: self.slot_axes.clone(), invalid: self.invalid.clone() }
    }
    /// Stores the slots as floats of this element type; the arithmetic is unaffected.
    ///
    /// Adam in bfloat16 slots needs a half of the memory. Its second moment then loses updates that
    /// are smaller than 1/256 of it; `Adam::mu_dtype` stores the first moment only.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim;
    /// let state = optim::adam(1e-3).slot_dtype(BF16).init(&Array::ones([2]))?;
    /// assert_eq!(type_of(&state.slots["mu"][""]), "bfloat16[2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn slot_dtype(self, dtype: DType) -> Optimizer {
        let call = CallSite::here("Optimizer::slot_dtype");
        let fault = (!dtype.is_float()).then(|| {
            fault!(Dtype, "slots are floats, but {dtype} is not a float")
                .help("store them as BF16, F16, F32 or F64")
        });
        self.wrapped(SlotDtype { inner: self.clone(), dtype }).invalid(fault, call)
    }
    /// Shards the slots over mesh axes in addition to the sharding of their parameters (ZeRO-1).
    ///
    /// Each slot is sharded along its first dimension that is not sharded and whose size is
    /// divisible; otherwise it stays as its parameter. The update is computed on these shards: a
    /// gradient that is unreduced over the axes arrives by a reduce-scatter, and the new parameter
    /// is all-gathered. The axes are those of the whole chain.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim;
    /// let mesh = Mesh::new([("data", 4)])?;
    /// let w = Array::ones([8, 3]).put(&mesh, p![]);
    /// let state = optim::adam(1e-3).shard_slots("data").init(&w)?;
    /// assert_eq!(type_of(&state.slots["mu"][""]), "float32[8@data,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("ZeRO", "zero_redundancy"))]
    pub fn shard_slots(mut self, axes: impl Into<Axes>) -> Optimizer {
        self.slot_axes.extend_unique(&axes.into());
        self
    }
    /// Makes the state before the first step, sharded like the parameters.
    ///
    /// Of parameters that are types, for tracing and lowering without data, the state has types
    /// only.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let w = Array::ones([8, 3]).put(&Mesh::new([("data", 4)])?, p!["data"]);
    /// let state = atmesh::optim::adam(1e-3).init(&w)?;
    /// assert_eq!(type_of(&state.slots["mu"][""]), "float32[8@data,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error for a parameter that is not a float, for one that a
    /// [`partition`](crate::optim::partition()) does not mention, and for invalid arguments of the
    /// functions that made the optimizer.
    #[track_caller]
    pub fn init<P: Tree>(&self, params: &P) -> Result<OptState> {
        let call = CallSite::here("Optimizer::init");
        in_call(call.location, || self.init_at(params, call))
    }
    fn init_at<P: Tree>(&self, params: &P, call: CallSite<'_>) -> Result<OptState> {
        self.validity()?;
        let params = collect_params(params, call)?;
        let mut slots: BTreeMap<String, BTreeMap<String, Array>> = BTreeMap::new();
        for p in &params {
            let work = WorkPlacement::new(&p.ty, &self.slot_axes).map_err(|f| call.error(f, Vec::new))?;
            for slot in self.slots_of(p, call)? {
                let array = work.new_slot(&p.value, &slot, slot.stored_dtype(&p.ty));
                array.ty()?;
                slots.entry(slot.name).or_default().insert(p.path.clone(), array);
            }
        }
        let mesh = params.iter().find_map(|p| p.ty.mesh.clone());
        let type_only = params.iter().any(|p| is_type_only(&p.value));
        let scalar = |x: Scalar| new_scalar(x, mesh.as_ref(), type_only);
        let scalars = self.scalars().into_iter().map(|(name, x)| (name, scalar(x))).collect();
        Ok(OptState { count: scalar(Scalar::Int(0)), scalars, slots })
    }
    /// Returns the parameters and the state after a step with these gradients.
    ///
    /// Each parameter keeps its type. On error, all arrays of the results carry it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (opt, w) = (atmesh::optim::sgd(0.5), Array::from([1.0f32, 2.0]));
    /// let (w, state) = opt.step(&w, &Array::from([2.0f32, -2.0]), &opt.init(&w)?);
    /// assert_eq!(w.to_vec::<f32>()?, [0.0, 3.0]);
    /// assert_eq!(state.count.item::<i32>()?, 1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn step<P: Tree, G: Tree>(&self, params: &P, grads: &G, state: &OptState) -> (P, OptState) {
        self.run_at(params, grads, state, CallSite::here("Optimizer::step"), |leaf, work, ty| {
            work.restore(&(&leaf.param + &leaf.update).astype(ty.dtype), ty)
        })
    }
    /// Returns the updates of a step, which [`apply_updates`](crate::optim::apply_updates) adds to
    /// the parameters, and the next state.
    ///
    /// [`Optimizer::step`] does both. Updates are float32, or float64 for float64 parameters.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim;
    /// let (opt, w) = (optim::sgd(0.5), Array::from([1.0f32, 2.0]));
    /// let state = opt.init(&w)?;
    /// let (updates, state) = opt.update(&Array::from([2.0f32, 4.0]), &state, &w);
    /// assert_eq!(updates.to_vec::<f32>()?, [-1.0, -2.0]);
    /// assert_eq!(optim::apply_updates(&w, &updates).to_vec::<f32>()?, [0.0, 0.0]);
    /// # let _ = state;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn update<P: Tree, G: Tree>(&self, grads: &G, state: &OptState, params: &P) -> (P, OptState) {
        self.run_at(params, grads, state, CallSite::here("Optimizer::update"), |leaf, work, ty| {
            work.restore(&leaf.update, ty)
        })
    }
    fn run_at<P: Tree, G: Tree>(
        &self,
        params: &P,
        grads: &G,
        state: &OptState,
        call: CallSite<'_>,
        finish: impl Fn(&Leaf, &WorkPlacement, &ArrayType) -> Array,
    ) -> (P, OptState) {
        let run = || -> Result<(P, OptState)> {
            self.validity()?;
            let all = collect_params(params, call)?;
            let grads = collect_gradients(&all, grads, call)?;
            let places: Vec<WorkPlacement> = all
                .iter()
                .map(|p| WorkPlacement::new(&p.ty, &self.slot_axes).map_err(|f| call.error(f, Vec::new)))
                .collect::<Result<_>>()?;
            let mut step = self.enter(&all, &grads, &places, state, call)?;
            self.run(&mut step);
            let mut made = step.leaves.iter().zip(&places).map(|(l, work)| finish(l, work, &l.ty));
            let next =
                params.rebuild(&mut Path::unnamed(), &mut |_, a| made.next().unwrap_or_else(|| a.clone()));
            Ok((next, self.leave(&all, step, &places, state)))
        };
        in_call(call.location, || match run() {
            Ok(done) => done,
            Err(e) => {
                let wrong = poison(e);
                let fill = |_: &Path, _: &Array| wrong.clone();
                let next = params.rebuild(&mut Path::unnamed(), &mut { fill });
                (next, state.rebuild(&mut Path::unnamed(), &mut { fill }))
            }
        })
    }
    /// Converts parameters, gradients and state to the form in which transforms see them.
    fn enter(
        &self,
        params: &[TrainedParam],
        grads: &[Array],
        places: &[WorkPlacement],
        state: &OptState,
        call: CallSite<'_>,
    ) -> Result<UpdateStep> {
        let mut expected = BTreeMap::<&str, usize>::new();
        let declared: Vec<Vec<LeafSlot>> =
            params.iter().map(|p| self.slots_of(p, call)).collect::<Result<_>>()?;
        let mut leaves = Vec::new();
        for (((p, grad), work), declared) in params.iter().zip(grads).zip(places).zip(&declared) {
            let dtype = compute_dtype(p.ty.dtype);
            let mut slots = BTreeMap::new();
            for slot in declared {
                let found = state.slots.get(&slot.name).and_then(|s| s.get(&p.path));
                let array = check_slot(found, slot, p).map_err(|f| call.error(f, Vec::new))?;
                slots.insert(slot.name.clone(), work.slot(&array.astype(dtype), slot));
                *expected.entry(&slot.name).or_default() += 1;
            }
            let [param, update] = [&p.value, grad].map(|x| work.work(&x.astype(dtype)));
            leaves.push(Leaf { path: p.path.clone(), ty: p.ty.clone(), param, update, slots });
        }
        let extra =
            state.slots.iter().find(|(name, s)| s.len() != *expected.get(name.as_str()).unwrap_or(&0));
        let scalars: Vec<String> = self.scalars().into_iter().map(|s| s.0).collect();
        let fault = if let Some((name, _)) = extra {
            fault!(Tree, "the state has other entries of `{name}` than these parameters need")
        } else if !state.scalars.keys().eq(scalars.iter().collect::<std::collections::BTreeSet<_>>()) {
            let has: Vec<&str> = state.scalars.keys().map(String::as_str).collect();
            fault!(Tree, "the state has the scalars {has:?}, but the optimizer has {scalars:?}")
        } else {
            return Ok(UpdateStep { count: state.count.clone(), leaves, scalars: state.scalars.clone() });
        };
        Err(call.error(fault.help(STATE_HELP), Vec::new))
    }
    /// Converts the slots of a finished step to the form in which they are stored.
    fn leave(
        &self,
        params: &[TrainedParam],
        step: UpdateStep,
        places: &[WorkPlacement],
        old: &OptState,
    ) -> OptState {
        let mut slots: BTreeMap<String, BTreeMap<String, Array>> = BTreeMap::new();
        for ((p, leaf), work) in params.iter().zip(step.leaves).zip(places) {
            for slot in self.slots(&p.path, &p.ty).unwrap_or_default() {
                let Some(new) = leaf.slots.get(&slot.name) else { continue };
                let new = work.slot(&new.astype(slot.stored_dtype(&p.ty)), &slot);
                slots.entry(slot.name).or_default().insert(p.path.clone(), new);
            }
        }
        OptState { count: &old.count + 1, scalars: step.scalars, slots }
    }
    fn slots_of(&self, p: &TrainedParam, call: CallSite<'_>) -> Result<Vec<LeafSlot>> {
        self.slots(&p.path, &p.ty).map_err(|fault| call.error(fault, || vec![p.ty.to_string()]))
    }
    /// Runs the transforms on a step.
    pub(super) fn run(&self, step: &mut UpdateStep) {
        for link in &self.links {
            let mut hidden: Vec<Vec<(String, Array)>> = Vec::new();
            for leaf in &mut step.leaves {
                hidden.push(show(&mut leaf.slots, &link.slots));
            }
            let hidden_scalars = show(&mut step.scalars, &link.scalars);
            link.transform.update(step);
            for (leaf, hidden) in step.leaves.iter_mut().zip(hidden) {
                hide(&mut leaf.slots, &link.slots, hidden);
            }
            hide(&mut step.scalars, &link.scalars, hidden_scalars);
        }
    }
}

/// An optimizer is a transform, for those that wrap others.
impl Transform for Optimizer {
    fn slot_names(&self) -> Vec<String> {
        let names =
            |l: &ChainLink| l.transform.slot_names().into_iter().map(|n| stored(&n, &l.slots)).collect();
        self.links.iter().flat_map(|l| -> Vec<String> { names(l) }).collect()
    }
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        let mut all = Vec::new();
        for link in &self.links {
            let slots = link.transform.slots(path, ty)?;
            all.extend(slots.into_iter().map(|s| LeafSlot { name: stored(&s.name, &link.slots), ..s }));
        }
        Ok(all)
    }
    fn scalars(&self) -> Vec<(String, Scalar)> {
        let scalars = |l: &ChainLink| -> Vec<(String, Scalar)> {
            l.transform.scalars().into_iter().map(|(n, x)| (stored(&n, &l.scalars), x)).collect()
        };
        self.links.iter().flat_map(scalars).collect()
    }
    fn update(&self, step: &mut UpdateStep) {
        self.run(step);
    }
}

/// Returns the names that must be stored under others: own name and stored name.
pub(super) fn renamed(taken: &[String], names: Vec<String>) -> Vec<(String, String)> {
    let mut all: Vec<String> = taken.to_vec();
    let mut changed = Vec::new();
    for name in names {
        let mut free = name.clone();
        let mut n = 1;
        while all.contains(&free) {
            n += 1;
            free = format!("{name}_{n}");
        }
        all.push(free.clone());
        if free != name {
            changed.push((name, free));
        }
    }
    changed
}
/// Returns the stored name of an own name.
pub(super) fn stored(name: &str, renamed: &[(String, String)]) -> String {
    renamed.iter().find(|r| r.0 == name).map_or(name, |r| &r.1).to_string()
}
/// Gives stored arrays the names that a transform knows. Returns the arrays that had these names.
pub(super) fn show(
    arrays: &mut BTreeMap<String, Array>,
    renamed: &[(String, String)],
) -> Vec<(String, Array)> {
    let mut hidden = Vec::new();
    for (own, stored) in renamed {
        hidden.extend(arrays.remove(own).map(|a| (own.clone(), a)));
        if let Some(a) = arrays.remove(stored) {
            arrays.insert(own.clone(), a);
        }
    }
    hidden
}
/// Reverses [`show`].
pub(super) fn hide(
    arrays: &mut BTreeMap<String, Array>,
    renamed: &[(String, String)],
    hidden: Vec<(String, Array)>,
) {
    for (own, stored) in renamed {
        if let Some(a) = arrays.remove(own) {
            arrays.insert(stored.clone(), a);
        }
    }
    arrays.extend(hidden);
}

/// Stores the slots of an optimizer in another element type.
struct SlotDtype {
    inner: Optimizer,
    dtype: DType,
}
impl Transform for SlotDtype {
    fn slot_names(&self) -> Vec<String> {
        self.inner.slot_names()
    }
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(self.inner.slots(path, ty)?.into_iter().map(|s| s.dtype(self.dtype)).collect())
    }
    fn scalars(&self) -> Vec<(String, Scalar)> {
        self.inner.scalars()
    }
    fn update(&self, step: &mut UpdateStep) {
        self.inner.run(step);
    }
}
