//! A call of a function of this module: the types of its operands, and errors about them.

use crate::api::array::{Array, Term};
use crate::api::trace::{CompositeGuard, carried_errors, poison, type_here};
use crate::core::{ArrayType, Axes, AxisType, DType, Fault, Mesh, Result, Spec, TypePart};
use crate::ir::program::CallSite;
use std::panic::Location;

/// A call of a function that is composed of operations.
///
/// While it lives, errors of these operations name the function and its operands.
pub(super) struct LayerCall {
    site: CallSite<'static>,
    /// The array operands, with the names of their parameters.
    operands: Vec<(&'static str, Array)>,
    /// Their types, as operations of the innermost trace see them.
    types: Vec<ArrayType>,
    _open: CompositeGuard,
}

impl LayerCall {
    /// Starts a call, or returns an array with the errors that the operands carry.
    #[track_caller]
    pub(super) fn new(op: &'static str, operands: &[(&'static str, &Array)]) -> Result<LayerCall, Array> {
        let arrays: Vec<&Array> = operands.iter().map(|o| o.1).collect();
        if let Some(error) = carried_errors(arrays.iter().copied()) {
            return Err(poison(error));
        }
        let open = CompositeGuard::open(op, Location::caller(), &arrays);
        let types = arrays.iter().map(|a| type_here(a)).collect::<Result<Vec<_>>>().map_err(poison)?;
        let operands = operands.iter().map(|(name, a)| (*name, (*a).clone())).collect();
        Ok(LayerCall { site: CallSite::here(op), operands, types, _open: open })
    }
    /// Returns the type of an operand.
    pub(super) fn ty(&self, k: usize) -> &ArrayType {
        &self.types[k]
    }
    /// Returns an array that carries an error about the operands.
    pub(super) fn reject(&self, fault: Fault) -> Array {
        let types = || self.types.iter().map(ToString::to_string).collect();
        poison(self.site.error(fault, types))
    }
    /// Checks that operands are floats.
    pub(super) fn check_floats(&self, operands: impl IntoIterator<Item = usize>) -> Result<(), Array> {
        let wrong = operands.into_iter().find(|k| !self.types[*k].dtype.is_float());
        let Some(k) = wrong else { return Ok(()) };
        let (name, dtype) = (self.operands[k].0, self.types[k].dtype);
        let fault = fault!(Dtype, "`{name}` must be floats, not {dtype}");
        Err(self.reject(fault.help(float_help(name, dtype)).highlight(k, TypePart::Dtype)))
    }
    /// Checks that an operand is of integers.
    pub(super) fn check_integers(&self, k: usize) -> Result<(), Array> {
        let (name, dtype) = (self.operands[k].0, self.types[k].dtype);
        if dtype.is_integer() {
            return Ok(());
        }
        let fault = fault!(Dtype, "`{name}` must be integers, not {dtype}");
        Err(self
            .reject(fault.help(format!("convert it: `{name}.astype(I32)`")).highlight(k, TypePart::Dtype)))
    }
    /// Checks that operands have one element type.
    pub(super) fn check_one_dtype(&self, a: usize, b: usize) -> Result<(), Array> {
        let (x, y) = (self.types[a].dtype, self.types[b].dtype);
        if x == y {
            return Ok(());
        }
        let (one, two) = (self.operands[a].0, self.operands[b].0);
        let fault = fault!(Dtype, "`{one}` is {x}, but `{two}` is {y}")
            .help(format!("convert one of them: `{two}.astype({x:?})`"))
            .highlight(a, TypePart::Dtype)
            .highlight(b, TypePart::Dtype);
        Err(self.reject(fault))
    }
    /// Checks that operand `k` broadcasts to the shape of operand `to`.
    pub(super) fn check_broadcasts(&self, k: usize, to: usize) -> Result<(), Array> {
        let (from, shape) = (&self.types[k].shape, &self.types[to].shape);
        let fits = from.rank() <= shape.rank()
            && from.iter().rev().zip(shape.iter().rev()).all(|(n, of)| n == of || *n == 1);
        if fits {
            return self.check_sharded_like(k, to);
        }
        let (name, other) = (self.operands[k].0, self.operands[to].0);
        let last = shape.rank().saturating_sub(from.rank().max(1));
        let fault = fault!(
            Shape,
            "`{name}` has shape {from}, which does not broadcast to the shape {shape} of `{other}`"
        )
        .help(format!("give it the last sizes of `{other}`: `{name}.reshape({:?})`", &shape[last..]));
        Err(self.reject(fault))
    }
    /// Checks that the dimensions of operand `k` are unsharded, or sharded as those of operand `to`
    /// to which they broadcast.
    fn check_sharded_like(&self, k: usize, to: usize) -> Result<(), Array> {
        let (from, model) = (&self.types[k], &self.types[to]);
        let first = model.rank() - from.rank();
        let used: Axes = (0..model.rank()).flat_map(|d| model.spec.dim(d).iter().copied()).collect();
        for d in 0..from.rank() {
            let (own, other) = (self.axes(k, d), self.axes(to, first + d));
            if own.is_empty() || own == other || other.is_empty() && !own.iter().any(|a| used.contains(a)) {
                continue;
            }
            let axes = if from.shape[d] == model.shape[first + d] { other.clone() } else { Axes::none() };
            let (name, of) = (self.operands[k].0, self.operands[to].0);
            let as_model =
                if other.is_empty() { "unsharded".into() } else { format!("sharded over {other}") };
            let spec = from.spec.padded(from.rank()).with_dim(d, &axes);
            let fault = fault!(
                Sharding,
                "dimension {d} of `{name}` is sharded over {own}, but dimension {} of `{of}` is {as_model}",
                first + d
            );
            let fault = fault.help(format!("shard it so too: `{name}.reshard({spec})`"));
            return Err(self.reject(fault.highlight_dim(k, d).highlight_dim(to, first + d)));
        }
        Ok(())
    }
    /// Checks the rank of an operand; `dims` names its dimensions, as in `[b, t, h, d]`.
    pub(super) fn check_rank(&self, k: usize, rank: usize, dims: &str) -> Result<(), Array> {
        if self.types[k].rank() == rank {
            return Ok(());
        }
        let name = self.operands[k].0;
        let message =
            format!("`{name}` has rank {}, and must have the dimensions {dims}", self.types[k].rank());
        Err(self.reject(
            fault!(Shape, "{message}").help(format!("give it {rank} dimensions: `{name}.reshape(..)`")),
        ))
    }
    /// Returns the mesh of the operands, if it has explicit axes.
    pub(super) fn explicit_mesh(&self) -> Option<&Mesh> {
        let mesh = self.types.iter().find_map(|ty| ty.mesh.as_ref())?;
        mesh.axis_types().contains(&AxisType::Explicit).then_some(mesh)
    }
    /// Returns the axes of dimension `d` of operand `a`, or else those of dimension `e` of `b`.
    ///
    /// It is an error if both are sharded, over different axes.
    pub(super) fn join(&self, (a, d): (usize, usize), (b, e): (usize, usize)) -> Result<Axes, Array> {
        let (left, right) = (self.axes(a, d), self.axes(b, e));
        if right.is_empty() || left == right {
            return Ok(left);
        }
        if left.is_empty() {
            return Ok(right);
        }
        let (one, two) = (self.operands[a].0, self.operands[b].0);
        let spec = self.types[b].spec.padded(self.types[b].rank()).with_dim(e, &left);
        let fault = fault!(
            Sharding,
            "dimension {d} of `{one}` is sharded over {left}, and dimension {e} of `{two}` over {right}"
        );
        Err(self.reject(
            fault
                .help(format!("shard them the same way: `{two}.reshard({spec})`"))
                .highlight_dim(a, d)
                .highlight_dim(b, e),
        ))
    }
    /// Returns the explicit axes that shard dimension `d` of an operand.
    pub(super) fn axes(&self, k: usize, d: usize) -> Axes {
        Axes::from(self.types[k].spec.dim(d))
    }
    /// Checks that no dimension of operand `k` in `dims` is sharded over an axis of `used`.
    ///
    /// `used_by` names the operand that is sharded over these axes.
    pub(super) fn check_free(
        &self,
        k: usize,
        dims: impl IntoIterator<Item = usize>,
        used: &Axes,
        used_by: &str,
    ) -> Result<(), Array> {
        let own = |d: &usize| self.axes(k, *d).iter().any(|a| used.contains(a));
        let Some(d) = dims.into_iter().find(own) else { return Ok(()) };
        let (name, axes) = (self.operands[k].0, self.axes(k, d));
        let spec = self.types[k].spec.padded(self.types[k].rank());
        let spec = spec.with_dim(d, &axes.without(used));
        let fault = fault!(
            Sharding,
            "dimension {d} of `{name}` is sharded over {axes}, and so is a dimension of `{used_by}`"
        );
        Err(self.reject(fault.help(format!("gather it first: `{name}.reshard({spec})`")).highlight_dim(k, d)))
    }
}

/// Returns the element type in which sums and exponentials are computed.
pub(super) fn wide_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

/// Returns the help for an operand that is not of floats.
fn float_help(name: &str, dtype: DType) -> String {
    if dtype.is_complex() {
        format!("take one part of it: `{name}.real()`")
    } else {
        format!("convert it: `{name}.astype(F32)`")
    }
}

/// Converts a parameter, a number or an array, to an element type.
#[track_caller]
pub(super) fn parameter(term: &Term, dtype: DType) -> Term {
    match term {
        Term::Array(a) => Term::Array(a.astype(dtype)),
        Term::Number(_) => term.clone(),
    }
}

/// Returns the array operands of a list with names; numbers are left out.
pub(super) fn arrays<'a>(
    x: (&'static str, &'a Array),
    terms: &[(&'static str, &'a Term)],
) -> Vec<(&'static str, &'a Array)> {
    let of = |(name, term): &(&'static str, &'a Term)| match term {
        Term::Array(a) => Some((*name, a)),
        Term::Number(_) => None,
    };
    std::iter::once(x).chain(terms.iter().filter_map(of)).collect()
}

/// Returns the spec of dimensions without sets.
pub(super) fn dims_spec(dims: impl IntoIterator<Item = Axes>) -> Spec {
    Spec::from_dims(dims.into_iter().collect())
}
