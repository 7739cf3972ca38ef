//! The state of an optimizer, and the leaves that transforms see.

use crate::api::array::Array;
use crate::api::tree::{Path, Tree};
use crate::core::{ArrayType, DType, Error, Fault, Result, Scalar};
use crate::ir::program::CallSite;
use std::collections::BTreeMap;

/// The state of every optimizer: the number of steps, and arrays by name.
///
/// It is a tree: it is passed to and returned from `jit`, donated, saved and loaded. The path of
/// the first moment of a parameter `layers.0.w` is `slots.mu.layers.0.w`. [`Optimizer::init`]
/// makes it, with the shardings of the parameters.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let params = vec![Array::ones([2])];
/// let state = optim::sgd_with(0.1, optim::Sgd::default().momentum(0.9)).init(&params)?;
/// assert_eq!(tree::paths(&state), ["count", "slots.trace.0"]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// [`Optimizer::init`]: crate::optim::Optimizer::init
#[doc(alias("TrainState", "TransformState"))]
#[derive(Clone, Debug, atmesh_derive::Tree)]
pub struct OptState {
    /// The number of steps so far: `int32[]`.
    pub count: Array,
    /// The scalars of transforms, such as counts of skipped steps, by name.
    pub scalars: BTreeMap<String, Array>,
    /// The arrays of each slot, such as `mu`, by the paths of the parameters.
    ///
    /// A parameter that a mask excludes has no entry.
    pub slots: BTreeMap<String, BTreeMap<String, Array>>,
}

impl OptState {
    /// Returns the arrays of one slot as a tree like the parameters, such as an average of them.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim;
    /// let params = (Array::ones([2]), Array::zeros([3]));
    /// let state = optim::adam(0.1).init(&params)?;
    /// let (mu, _) = state.slot("mu", &params)?;
    /// assert_eq!(type_of(&mu), "float32[2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the state has no such slot, or no entry for a parameter.
    #[track_caller]
    pub fn slot<P: Tree>(&self, name: &str, params: &P) -> Result<P> {
        let call = CallSite::here("OptState::slot");
        let Some(slot) = self.slots.get(name) else {
            let names: Vec<&str> = self.slots.keys().map(String::as_str).collect();
            let has =
                if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
            let fault = fault!(Tree, "the state has no slot `{name}`: {has}");
            return Err(call.error(fault, Vec::new));
        };
        let mut missing = None;
        let made = params.rebuild(&mut Path::named(), &mut |path, a| {
            let path = path.to_string();
            slot.get(&path).cloned().unwrap_or_else(|| {
                missing.get_or_insert(path);
                a.clone()
            })
        });
        match missing {
            Some(path) => {
                let fault = fault!(Tree, "the slot `{name}` has no entry for {}", quoted(&path));
                Err(call.error(
                    fault.help("it has entries for the parameters that its transform changes"),
                    Vec::new,
                ))
            }
            None => Ok(made),
        }
    }
}

/// An array that a transform keeps for a parameter between steps.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{diagnostic::Fault, optim::{LeafSlot, Optimizer, Transform, UpdateStep}};
/// struct RowNorms;
/// impl Transform for RowNorms {
///     fn slot_names(&self) -> Vec<String> {
///         vec!["rows".into()]
///     }
///     fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
///         Ok(vec![LeafSlot::new("rows").without_dim(1).fill(1.0).dtype(BF16)])
///     }
///     // ...
/// #     fn update(&self, _: &mut UpdateStep) {}
/// }
/// let state = Optimizer::new(RowNorms).init(&Array::ones([4, 2]))?;
/// assert_eq!(type_of(&state.slots["rows"][""]), "bfloat16[4]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a transform returns it from `slots`"]
pub struct LeafSlot {
    /// The name, such as `mu`.
    pub name: String,
    /// The dimension of the parameter that the slot lacks. `None` if it has the parameter's shape.
    pub without: Option<usize>,
    /// The element type between steps. `None` for that of the arithmetic: float64 for float64
    /// parameters, float32 for others.
    pub dtype: Option<DType>,
    /// The value of each element before the first step. `None` for the value of the parameter.
    pub fill: Option<f64>,
}

impl LeafSlot {
    /// Creates a slot of the parameter's shape, which is zero before the first step.
    ///
    /// ```
    /// use atmesh::{DType, optim::LeafSlot};
    /// let mu = LeafSlot::new("mu");
    /// assert_eq!((mu.without, mu.dtype, mu.fill), (None, None, Some(0.0)));
    /// let average = LeafSlot::new("average").of_param().dtype(DType::BF16);
    /// assert_eq!((average.dtype, average.fill), (Some(DType::BF16), None));
    /// ```
    pub fn new(name: impl Into<String>) -> LeafSlot {
        LeafSlot { name: name.into(), without: None, dtype: None, fill: Some(0.0) }
    }
    setters! {
        /// Removes a dimension, such as that of a mean over rows; by default none is removed.
        pub fn without_dim(dim: usize) = without: Some(dim);
        /// Sets the value before the first step, 0 by default.
        pub fn fill(value: f64) = fill: Some(value);
        /// Starts with the value of the parameter instead of 0, the default.
        pub fn of_param() = fill: None;
        /// Sets the element type that is stored between steps, by default that of the arithmetic.
        pub fn dtype(dtype: DType) = dtype: Some(dtype);
    }
    /// Returns the element type between steps for a parameter of this type.
    pub(super) fn stored_dtype(&self, param: &ArrayType) -> DType {
        self.dtype.unwrap_or_else(|| compute_dtype(param.dtype))
    }
    /// Returns the shape for a parameter of this type.
    pub(super) fn shape(&self, param: &ArrayType) -> Vec<usize> {
        let mut shape = param.shape.to_vec();
        if let Some(dim) = self.without.filter(|d| *d < shape.len()) {
            shape.remove(dim);
        }
        shape
    }
}

/// A parameter in one step: its value, its update so far, and its slots.
///
/// The arrays are float32, or float64 for float64 parameters, whatever types are stored.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// // matrices move by the sign of their gradient, and decay; other parameters stay as they are
/// let opt = optim::stateless(|leaf| match leaf.ty.rank() {
///     2 => -0.25 * (leaf.update.sign() + &leaf.param),
///     _ => leaf.update.zeros_like(),
/// });
/// let net = (Array::ones([1, 2]), Array::ones([2]));
/// let ((w, b), _) = opt.step(&net, &net, &opt.init(&net)?);
/// assert_eq!((w.to_vec::<f32>()?, b.to_vec::<f32>()?), (vec![0.5; 2], vec![1.0; 2]));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The path in the tree of parameters: `layers.0.w`.
    pub path: String,
    /// The type of the parameter, as it is stored.
    pub ty: ArrayType,
    /// The value of the parameter before the step.
    pub param: Array,
    /// The update: the gradient before the first transform of a chain, and after the last one the
    /// difference that is added to the parameter.
    pub update: Array,
    /// The slots that the transform has for this leaf, by name.
    pub slots: BTreeMap<String, Array>,
}

impl Leaf {
    /// Returns a slot. If there is none, the result carries the error.
    ///
    /// ```
    /// # use atmesh::prelude::*;
    /// # use atmesh::optim::Leaf;
    /// # let (param, update) = (Array::from(1.0f32), Array::from(2.0f32));
    /// # let (path, ty, slots) = ("layers.0.w".into(), F32.array_type([]), Default::default());
    /// # let mut leaf = Leaf { path, ty, param, update, slots };
    /// # leaf.slots.insert("mu".into(), Array::from(8.0f32));
    /// let mu = 0.5 * leaf.slot("mu") + 0.5 * &leaf.update;
    /// assert_eq!(mu.item::<f32>()?, 5.0);
    /// let missing = leaf.slot("nu").ty().unwrap_err().to_string();
    /// assert!(missing.contains("layers.0.w` has no slot `nu`"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn slot(&self, name: &str) -> Array {
        self.slots.get(name).cloned().unwrap_or_else(|| {
            crate::api::trace::poison(Error::from(fault!(
                Tree,
                "{} has no slot `{name}`",
                quoted(&self.path)
            )))
        })
    }
    /// Replaces a slot.
    ///
    /// ```
    /// # use atmesh::prelude::*;
    /// # use atmesh::optim::Leaf;
    /// # let (param, update) = (Array::from(1.0f32), Array::from(2.0f32));
    /// # let (path, ty, slots) = ("layers.0.w".into(), F32.array_type([]), Default::default());
    /// # let mut leaf = Leaf { path, ty, param, update, slots };
    /// # leaf.slots.insert("max".into(), Array::from(8.0f32));
    /// let max = leaf.slot("max").maximum(leaf.update.abs());
    /// leaf.update = &leaf.update / &max;
    /// leaf.set_slot("max", max); // for the next step
    /// assert_eq!((leaf.update.item::<f32>()?, leaf.slot("max").item::<f32>()?), (0.25, 8.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn set_slot(&mut self, name: &str, value: Array) {
        self.slots.insert(name.into(), value);
    }
}

/// The leaves and scalars that a transform reads and changes in one step.
///
/// ```
/// # use atmesh::prelude::*;
/// use atmesh::optim::{Optimizer, Transform, UpdateStep};
/// struct Anneal;
/// impl Transform for Anneal {
///     fn update(&self, step: &mut UpdateStep) {
///         let number = step.count_as(F32, 1);
///         step.map(|leaf| &leaf.update / &number);
///     }
/// }
/// # let (opt, w, g) = (Optimizer::new(Anneal), Array::from(0.0f32), Array::from(1.0f32));
/// # let (w, state) = opt.step(&w, &g, &opt.init(&w)?);
/// let (w, _) = opt.step(&w, &g, &state); // the second step
/// assert_eq!(w.item::<f32>()?, 1.0 + 1.0 / 2.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Debug)]
pub struct UpdateStep {
    /// The number of earlier steps, `int32[]`: 0 in the first step.
    pub count: Array,
    /// The leaves, in the order of the tree.
    pub leaves: Vec<Leaf>,
    /// The scalars that the transform declared, by name.
    pub scalars: BTreeMap<String, Array>,
}

impl UpdateStep {
    /// Replaces the update of each leaf by the result of `f`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{Optimizer, Transform, UpdateStep};
    /// struct Decay(f64);
    /// impl Transform for Decay {
    ///     fn update(&self, step: &mut UpdateStep) {
    ///         step.map(|leaf| &leaf.update - self.0 * &leaf.param);
    ///     }
    /// }
    /// let (opt, w) = (Optimizer::new(Decay(0.5)), Array::from(4.0f32));
    /// let (w, _) = opt.step(&w, &Array::from(1.0f32), &opt.init(&w)?);
    /// assert_eq!(w.item::<f32>()?, 4.0 + (1.0 - 0.5 * 4.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn map(&mut self, f: impl Fn(&Leaf) -> Array) {
        for leaf in &mut self.leaves {
            leaf.update = f(leaf);
        }
    }
    /// Returns the updates of all leaves.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{Optimizer, Transform, UpdateStep};
    /// struct Normalize;
    /// impl Transform for Normalize {
    ///     fn update(&self, step: &mut UpdateStep) {
    ///         let norm = tree::norm(&step.updates());
    ///         step.map(|leaf| &leaf.update / &norm);
    ///     }
    /// }
    /// # let (opt, net) = (Optimizer::new(Normalize), (Array::from(0.0f32), Array::from(0.0f32)));
    /// # let grads = (Array::from(3.0f32), Array::from(4.0f32));
    /// let ((a, b), _) = opt.step(&net, &grads, &opt.init(&net)?); // with gradients 3 and 4
    /// assert!((a.item::<f32>()? - 0.6).abs() < 1e-6 && (b.item::<f32>()? - 0.8).abs() < 1e-6);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn updates(&self) -> Vec<Array> {
        self.leaves.iter().map(|l| l.update.clone()).collect()
    }
    /// Returns `count` plus `more` as a scalar of this float type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::UpdateStep;
    /// # let (leaves, scalars) = (Vec::new(), Default::default());
    /// let step = UpdateStep { count: Array::from(3), leaves, scalars };
    /// // the rate of the fourth step
    /// let rate = 2.0 / step.count_as(F32, 1);
    /// assert_eq!(type_of(&rate), "float32[]");
    /// assert_eq!(rate.item::<f32>()?, 0.5);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn count_as(&self, dtype: DType, more: i32) -> Array {
        (&self.count + more).astype(dtype)
    }
    /// Returns the value of `f` for the element type of each leaf, computed once for each type.
    pub(super) fn by_dtype(&self, f: impl Fn(DType) -> Array) -> BTreeMap<DType, Array> {
        let types = self.leaves.iter().map(|l| compute_dtype(l.ty.dtype));
        let types: std::collections::BTreeSet<DType> = types.collect();
        types.into_iter().map(|t| (t, f(t))).collect()
    }
}

/// One link of an optimizer: it changes the updates of all leaves, and keeps slots for them.
///
/// All leaves are passed at the same time, since some transforms (a global norm) need all of them.
/// [`Optimizer::new`](crate::optim::Optimizer::new) makes an optimizer of one, and
/// [`stateless`](crate::optim::stateless) one of a closure.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{Optimizer, Transform, UpdateStep};
/// /// The update of this step plus a half of that of the last one.
/// struct Blend;
/// impl Transform for Blend {
///     fn slot_names(&self) -> Vec<String> {
///         vec!["last".into()]
///     }
///     fn update(&self, step: &mut UpdateStep) {
///         for leaf in &mut step.leaves {
///             let new = &leaf.update + 0.5 * leaf.slot("last");
///             leaf.set_slot("last", leaf.update.clone());
///             leaf.update = new;
///         }
///     }
/// }
/// let opt = Optimizer::new(Blend);
/// let w = Array::from(1.0f32);
/// let state = opt.init(&w)?;
/// let (w, state) = opt.step(&w, &Array::from(2.0f32), &state);
/// let (w, _) = opt.step(&w, &Array::from(2.0f32), &state);
/// assert_eq!(w.item::<f32>()?, 6.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("GradientTransformation"))]
pub trait Transform: Send + Sync {
    /// Returns the names of all slots that any leaf may have. Defaults to none.
    fn slot_names(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns the slots of the parameter of this path and type. Defaults to one like the parameter
    /// for each of [`Transform::slot_names`].
    ///
    /// # Errors
    /// An error rejects the parameter. `Optimizer::init` and `Optimizer::step` return it.
    fn slots(&self, path: &str, ty: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        let _ = (path, ty);
        Ok(self.slot_names().into_iter().map(LeafSlot::new).collect())
    }
    /// Returns the scalars that are kept between steps: names, and values before the first step.
    /// Defaults to none.
    fn scalars(&self) -> Vec<(String, Scalar)> {
        Vec::new()
    }
    /// Changes the updates, slots and scalars of one step.
    fn update(&self, step: &mut UpdateStep);
}

/// Returns the element type in which updates of a parameter are computed.
pub(super) fn compute_dtype(stored: DType) -> DType {
    if stored == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Returns a path in backquotes, or "the parameter" for the path of a tree of one array.
pub(super) fn quoted(path: &str) -> String {
    if path.is_empty() { "the parameter".into() } else { format!("`{path}`") }
}
