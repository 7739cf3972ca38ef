//! Custom operations: user-defined kernels that transform and shard like built-in operations.

use super::control::{RecordedClosure, tree_of};
use super::vmap::{VmapOptions, vmap_with};
use crate::api::array::Array;
use crate::api::trace::{ArrayOrLiteral, OpenTrace, Setting, apply, poison, setting};
use crate::api::tree::{Args, Output, collect};
use crate::core::{
    ArrayType, Axes, AxisType, DType, Error, ErrorKind, Fault, Result, Scalar, Spec, diagnostic::pluralize,
};
use crate::ir::ops::custom::{CustomPrim, IdentifiedFn, OpDeclaration, Subscripts, UserKernel, VjpRule};
use crate::ir::program::{CallSite, Program, RowInput, RowOutput, typing::cotangent_type};
use std::fmt;
use std::sync::Arc;

/// A custom operation, made by [`custom_op`].
///
/// ```
/// use atmesh::prelude::*;
/// let square: CustomOp = custom_op("square", "...->...", |ins, outs| {
///     outs[0].view::<f32>().assign(&ins[0].view::<f32>().mapv(|x| x * x));
/// });
/// assert_eq!(square.call(&Array::from([2.0f32, 3.0])).to_vec::<f32>()?, [4.0, 9.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until it is called"]
pub struct CustomOp {
    decl: OpDeclaration,
    /// The first error of the declaration; `None` if it is valid so far.
    error: Option<Fault>,
}

/// The return type of a kernel: `()`, or a `Result` whose error ends the run with that error's
/// text.
pub trait KernelResult {
    /// Converts the return value to a `Result` with the error as text.
    fn into_kernel_result(self) -> Result<(), String>;
}
impl KernelResult for () {
    fn into_kernel_result(self) -> Result<(), String> {
        Ok(())
    }
}
impl<E: fmt::Display> KernelResult for Result<(), E> {
    fn into_kernel_result(self) -> Result<(), String> {
        self.map_err(|e| e.to_string())
    }
}

/// Declares a custom operation: its name, its dimensions and its kernel.
///
/// The operation is traced, typed, sharded, mapped by `vmap` and, given a rule, differentiated like
/// a built-in one.
///
/// `dims` is written like einsum subscripts, `"ij,jk->ik"`: one letter per dimension, the same
/// letter for dimensions of equal size, and a leading `...` for any number of further dimensions.
/// The kernel gets a view of each operand and of each result, with dimensions in the order of the
/// letters, and writes all results.
///
/// Dimensions of `...`, and letters named by [`over`](CustomOp::over), are *batch dimensions*: the
/// kernel is called once for each position along them, on the remaining dimensions. They may be
/// sharded in any way, and devices share the calls. Letters named by
/// [`sums_over`](CustomOp::sums_over) are summed over: the kernel is called for each device's block
/// of these dimensions, and the results are added. All other dimensions must be unsharded: in
/// explicit mode other shardings are an error, in auto mode the operand is gathered.
///
/// A kernel must be a pure function of its operands, to the last bit: it must not read state or a
/// clock. Pass any parameter as an operand, such as a scalar (`"ij,->ij"`). Kernels run on threads
/// of this crate and work with the views; operations on [`Array`]s are errors there. A kernel that
/// panics, returns an error or does not write a result ends the run with an error that names it.
///
/// For the cache of compiled programs, two operations are equal if they have the same name and
/// declarations and their kernels are the same closure type without captures. Create an operation
/// whose kernel captures something once, and clone it.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::custom_op;
///
/// // softmax over the last dimension, with a temperature
/// let softmax = custom_op("softmax", "...j,->...j", |ins, outs| {
///     let (x, temperature) = (ins[0].view::<f64>(), ins[1].view::<f64>()[[]]);
///     let most = x.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
///     let mut y = outs[0].view::<f64>();
///     y.zip_mut_with(&x, |y, x| *y = ((x - most) / temperature).exp());
///     let sum = y.sum();
///     y /= sum;
/// })
/// .derivative(|ins, outs, cts| {
///     let (t, y) = (&ins[1], &outs[0]);
///     let dx = y * (&cts[0] - (&cts[0] * y).sum(Dims::keep(-1))) / t;
///     let dt = -(&dx * &ins[0]).sum(..) / t;
///     vec![dx, dt]
/// });
///
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::from([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]).put(&mesh, p!["X"]);
/// let t = Array::from(2.0f64);
/// let y = softmax.call((&x, &t));
/// assert_eq!(type_of(&y), "float64[2@X,3]");
/// assert!((y.sum(1) - 1.0).abs().to_vec::<f64>()?.iter().all(|e| *e < 1e-12));
/// let g = grad(&x, |x| softmax.call((&x, &t)).square().sum(..));
/// assert_eq!(type_of(&g), "float64[2@X,3]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("pure_callback", "ffi", "custom_vjp", "vectorize", "guvectorize"))]
pub fn custom_op<F, R>(name: &'static str, dims: &str, kernel: F) -> CustomOp
where
    F: Fn(&[RowInput<'_>], &mut [RowOutput<'_>]) -> R + Send + Sync + 'static,
    R: KernelResult,
{
    let (letters, wrong) = match Subscripts::parse(dims) {
        Ok(letters) => (letters, None),
        Err(fault) => (Subscripts::default(), Some(fault)),
    };
    let code = move |ins: &[RowInput<'_>], outs: &mut [RowOutput<'_>]| kernel(ins, outs).into_kernel_result();
    let kernel = UserKernel::new::<F>(name, Arc::new(code));
    let of = OpDeclaration {
        name,
        subscripts: letters,
        batch_labels: Vec::new(),
        summed_labels: Vec::new(),
        sizes: Vec::new(),
        operand_dtypes: Vec::new(),
        result_dtypes: Vec::new(),
        ns_per_row: None,
        kernel,
        vjp_rule: None,
    };
    CustomOp { decl: of, error: wrong }
}

impl CustomOp {
    fn with_error(mut self, text: String, help: &str) -> CustomOp {
        self.error.get_or_insert_with(|| Fault::new(ErrorKind::Syntax, text).help(help));
        self
    }
    /// Makes these letters batch dimensions: each must be in an operand and in all results.
    ///
    /// The kernel is called once for each position, with views that do not have these dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// // rows of x, each times the matrix y
    /// let times = custom_op("times", "ij,jk->ik", |ins, outs| {
    ///     let (row, y) = (ins[0].view::<f32>(), ins[1].view::<f32>());
    ///     for (k, mut out) in outs[0].view::<f32>().iter_mut().enumerate() {
    ///         *out = row.iter().zip(y.index_axis(atmesh::nd::Axis(1), k))
    ///             .map(|(a, b)| a * b).sum();
    ///     }
    /// })
    /// .over("i");
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let (x, y) = (Array::ones([8, 2]).put(&mesh, p!["X"]), Array::ones([2, 3]));
    /// assert_eq!(type_of(times.call((&x, &y))), "float32[8@X,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn over(mut self, letters: &str) -> CustomOp {
        for c in letters.chars().filter(|c| !c.is_whitespace()) {
            let of = &self.decl.subscripts;
            if self.error.is_none()
                && !(of.in_operands(c) && of.results.iter().all(|n| n.labels.contains(&c)))
            {
                let text = format!("{} cannot run over {c:?} of `{of}`", self.decl.name);
                return self.with_error(text, "batch letters are those of an operand that all results have");
            }
            if !self.decl.batch_labels.contains(&c) {
                self.decl.batch_labels.push(c);
            }
        }
        self
    }
    /// Declares that every result is a sum over these subscript letters.
    ///
    /// Each letter must be in an operand and in no result. The kernel may be called on a block of
    /// these dimensions, and the results of the blocks are added. The dimensions may therefore be
    /// sharded: each device computes its block, and an all-reduce (or the collective that
    /// [`call_to`](CustomOp::call_to) requests) adds the results. If blocks have unequal sizes the
    /// operand is gathered instead; on auto axes it is also gathered if that moves fewer bytes.
    ///
    /// Results must be numeric. A kernel whose result is not such a sum (a mean, or a sum with a
    /// constant added once) gives wrong results when sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// // the number of agreeing elements of each pair of rows
    /// let agree = custom_op("agree", "ij,kj->ik", |ins, outs| {
    ///     let (x, y) = (ins[0].view::<i32>(), ins[1].view::<i32>());
    ///     for (k, n) in outs[0].view::<i32>().iter_mut().enumerate() {
    ///         *n = x.iter().zip(y.index_axis(atmesh::nd::Axis(0), k))
    ///             .filter(|(a, b)| a == b).count() as i32;
    ///     }
    /// })
    /// .over("i")
    /// .sums_over("j");
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let x = Array::from([[1, 2, 3, 4], [1, 2, 1, 2]]).put(&mesh, p![_, "X"]);
    /// let y = Array::from([[1, 2, 1, 4]]).put(&mesh, p![_, "X"]);
    /// let n = agree.call_to((&x, &y), p![]);
    /// assert_eq!(type_of(&n), "int32[2,1]");
    /// assert_eq!(n.to_vec::<i32>()?, [3, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn sums_over(mut self, letters: &str) -> CustomOp {
        for c in letters.chars().filter(|c| !c.is_whitespace()) {
            let of = &self.decl.subscripts;
            if self.error.is_none() && (!of.in_operands(c) || of.in_results(c)) {
                let text = format!("{} cannot sum over {c:?} of `{of}`", self.decl.name);
                return self
                    .with_error(text, "results are sums over letters that operands have and no result has");
            }
            if !self.decl.summed_labels.contains(&c) {
                self.decl.summed_labels.push(c);
            }
        }
        self
    }
    /// Sets the size of a result letter that no operand has.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// let powers = custom_op("powers", "...->...k", |ins, outs| {
    ///     let x = ins[0].view::<f64>()[[]];
    ///     outs[0].view::<f64>().iter_mut().enumerate().for_each(|(k, y)| *y = x.powi(k as i32));
    /// })
    /// .size('k', 4);
    /// assert_eq!(powers.call(Array::from([2.0, 3.0])).to_vec::<f64>()?,
    ///     [1.0, 2.0, 4.0, 8.0, 1.0, 3.0, 9.0, 27.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn size(mut self, letter: char, n: usize) -> CustomOp {
        let of = &self.decl.subscripts;
        if self.error.is_none() && (of.in_operands(letter) || !of.in_results(letter)) {
            let text = format!("{} is given the size of {letter:?} of `{of}`", self.decl.name);
            return self
                .with_error(text, "sizes are given for letters that results have and operands do not have");
        }
        self.decl.sizes.retain(|(c, _)| *c != letter);
        self.decl.sizes.push((letter, n));
        self
    }
    /// Requires these element types of the operands, one per operand.
    ///
    /// By default the kernel accepts any element type.
    pub fn takes(mut self, dtypes: impl IntoIterator<Item = DType>) -> CustomOp {
        self.decl.operand_dtypes = dtypes.into_iter().collect();
        let (declared, has) = (self.decl.operand_dtypes.len(), self.decl.subscripts.operands.len());
        self.check_count("operand", declared, has)
    }
    /// Sets the element types of the results, one per result.
    ///
    /// By default each has the type of the first operand.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// let split = custom_op("split", "...->...,...", |ins, outs| {
    ///     let x = ins[0].view::<f32>()[[]];
    ///     outs[0].view::<i32>()[[]] = x.trunc() as i32;
    ///     outs[1].view::<f32>()[[]] = x.fract();
    /// })
    /// .returns([I32, F32]);
    /// let parts = split.call_all(Array::from([1.5f32, -0.25]));
    /// assert_eq!(parts[0].to_vec::<i32>()?, [1, 0]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn returns(mut self, dtypes: impl IntoIterator<Item = DType>) -> CustomOp {
        self.decl.result_dtypes = dtypes.into_iter().collect();
        let (declared, has) = (self.decl.result_dtypes.len(), self.decl.subscripts.results.len());
        self.check_count("result", declared, has)
    }
    fn check_count(self, what: &str, declared: usize, has: usize) -> CustomOp {
        if declared == has {
            return self;
        }
        let text = format!(
            "{} is given {} for {}",
            self.decl.name,
            pluralize(declared, "element type"),
            pluralize(has, what)
        );
        self.with_error(text, "give one for each")
    }
    /// Sets the approximate time of one kernel call, in nanoseconds.
    ///
    /// It determines how calls are distributed over workers. Defaults to one nanosecond per input
    /// element.
    pub fn cost(mut self, nanoseconds: f64) -> CustomOp {
        self.decl.ns_per_row = Some(Scalar::Float(nanoseconds));
        self
    }
    /// Sets the derivative rule, used by `grad`, `vjp` and `jvp`.
    ///
    /// The rule gets the operands, the results, and a cotangent of each floating-point result. It
    /// returns the cotangent of each floating-point operand, in their order, with the operand's
    /// shape and element type.
    ///
    /// The rule is traced, on arrays of one example, and must be linear in the cotangents. Forward
    /// mode transposes it, so every operation that it applies to cotangents must be one of this
    /// crate's, not another custom operation. It must not capture arrays: pass what it needs as
    /// operands.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// let cube = custom_op("cube", "...->...", |ins, outs| {
    ///     outs[0].view::<f64>()[[]] = ins[0].view::<f64>()[[]].powi(3);
    /// })
    /// .derivative(|ins, _, cts| &cts[0] * 3.0 * ins[0].square());
    /// let x = Array::from([1.0, 2.0]);
    /// assert_eq!(grad(&x, |x| cube.call(&x).sum(..)).to_vec::<f64>()?, [3.0, 12.0]);
    /// assert_eq!(jvp(&x, &x, |x| cube.call(&x)).1.to_vec::<f64>()?, [3.0, 24.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("custom_vjp", "defvjp"))]
    pub fn derivative<F, R>(mut self, rule: F) -> CustomOp
    where
        F: Fn(&[Array], &[Array], &[Array]) -> R + Send + Sync + 'static,
        R: Output,
    {
        let rule = move |ins: &[Array], outs: &[Array], cts: &[Array]| {
            rule(ins, outs, cts).into_result().map(|tree| collect(&tree))
        };
        self.decl.vjp_rule =
            Some(IdentifiedFn::<dyn VjpRule>::new::<F>(self.decl.name, Arc::new(TracedRule(rule))));
        self
    }
    /// Applies an operation that has one result to an array, a scalar or a tuple of them.
    ///
    /// It is an error if the operation has several results: use [`call_all`](CustomOp::call_all).
    #[track_caller]
    pub fn call(&self, operands: impl Args) -> Array {
        let explicit_form = format!("{}.call_to((…), {{}})", self.decl.name);
        self.call_single(operands, None, CallSite::here(self.decl.name).with_explicit_form(&explicit_form))
    }
    /// Applies an operation that has one result, with the result sharded as `out`.
    ///
    /// The result may be unreduced over axes that shard [`sums_over`](CustomOp::sums_over) letters.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// let total = custom_op("total", "ij->i", |ins, outs| {
    ///     let (x, mut y) = (ins[0].view::<f32>(), outs[0].view::<f32>());
    ///     y.assign(&x.sum_axis(atmesh::nd::Axis(1)));
    /// })
    /// .sums_over("j");
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 6]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(total.call(&x)), "float32[4]");
    /// assert_eq!(type_of(total.call_to(&x, p!["X"])), "float32[4@X]");
    /// assert_eq!(type_of(total.call_to(&x, p![_; U: "X"])), "float32[4]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn call_to(&self, operands: impl Args, out: Spec) -> Array {
        self.call_single(operands, Some(out), CallSite::here(self.decl.name))
    }
    fn call_single(&self, operands: impl Args, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let results = self.decl.subscripts.results.len();
        if self.error.is_none() && results != 1 {
            let method = if out.is_some() { "call_to" } else { "call" };
            let text = format!(
                "{} has {}, and `{method}` returns one",
                self.decl.name,
                pluralize(results, "result")
            );
            let fault = Fault::new(ErrorKind::Shape, text).help("take all of them: `.call_all(…)`");
            return poison(call.error(fault, Vec::new));
        }
        self.apply(collect(&operands.into_tree()), out, call).swap_remove(0)
    }
    /// Applies the operation and returns all its results.
    ///
    /// If the call is ill-typed, every result carries the error.
    #[track_caller]
    pub fn call_all(&self, operands: impl Args) -> Vec<Array> {
        let mut made = self.apply(collect(&operands.into_tree()), None, CallSite::here(self.decl.name));
        let results = self.decl.subscripts.results.len();
        if let (true, Some(one)) = (made.len() < results, made.first().cloned()) {
            made.resize(results, one);
        }
        made
    }
    fn apply(&self, operands: Vec<Array>, out: Option<Spec>, call: CallSite<'_>) -> Vec<Array> {
        if let Some(fault) = self.declaration_error() {
            return vec![poison(call.error(fault, Vec::new))];
        }
        let untracked = setting().map_or(Axes::none(), |s| s.untracked);
        let prim = CustomPrim {
            declaration: Arc::new(self.decl.clone()),
            vmapped: Vec::new(),
            out_sharding: out,
            untracked,
        };
        let args: Vec<ArrayOrLiteral> = operands.iter().map(ArrayOrLiteral::from).collect();
        apply(Arc::new(prim), &args, call)
    }
    fn declaration_error(&self) -> Option<Fault> {
        if self.error.is_some() {
            return self.error.clone();
        }
        let of = &self.decl.subscripts;
        let sized = |c: &char| of.in_operands(*c) || self.decl.sizes.iter().any(|(k, _)| k == c);
        let unsized_ = of.results.iter().flat_map(|r| &r.labels).find(|c| !sized(c))?;
        let text = format!("the size of {unsized_:?} in `{of}` is unknown");
        Some(Fault::new(ErrorKind::Shape, text).help(format!("give it: `.size({unsized_:?}, …)`")))
    }
}

/// Prints the name and the dimensions.
impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.decl.name, self.decl.subscripts)
    }
}

/// A derivative rule as the user wrote it, for one example.
struct TracedRule<F>(F);

impl<F> VjpRule for TracedRule<F>
where
    F: Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync,
{
    fn record(&self, of: &CustomPrim, operands: &[ArrayType], results: &[ArrayType]) -> Result<Program> {
        let name = of.declaration.name;
        let cts = results.iter().filter(|ty| ty.dtype.is_float()).map(cotangent_type);
        let types: Vec<ArrayType> = operands.iter().chain(results).cloned().chain(cts).collect();
        let outside = move |ty: &ArrayType| {
            Err(fault!(Trace, "the derivative of {name} reads {ty} from outside")
                .help("make it an operand, or make it within the rule: `Array::full`, `Array::arange`"))
        };
        let open = OpenTrace::with_capture_type(None, Box::new(outside))?;
        if let Some(mesh) = types.iter().find_map(|ty| ty.mesh.clone()) {
            match mesh.axis_types().contains(&AxisType::Manual) {
                true => open.set(Setting { mesh, untracked: of.untracked.clone() }),
                false => open.set_mesh(&mesh),
            }
        }
        let split = (operands.len(), results.len());
        let piece =
            RecordedClosure::record_in(open, &types, |xs| self.apply_batched(name, split, &of.vmapped, xs))?;
        Ok(piece.program)
    }
}

impl<F: Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>>> TracedRule<F> {
    /// Applies the rule to all examples of a batched operation.
    fn apply_batched(
        &self,
        name: &str,
        split: (usize, usize),
        lead: &[Vec<bool>],
        xs: Vec<Array>,
    ) -> Result<Vec<Array>> {
        let Some((mapped, inner)) = lead.split_first() else {
            return self.apply_to_example(name, split, &xs);
        };
        let has = |k: usize| k >= mapped.len() || mapped[k];
        let dims: Vec<Option<i32>> = (0..xs.len()).map(|k| has(k).then_some(0)).collect();
        let floats: Vec<usize> =
            (0..mapped.len()).filter(|k| xs[*k].type_ref().is_ok_and(|ty| ty.dtype.is_float())).collect();
        let each = vmap_with(
            xs,
            |xs| self.apply_batched(name, split, inner, xs),
            VmapOptions::default().in_dims(dims),
        );
        // the cotangent of an operand that all examples share is the sum over the examples
        let spread = floats.iter().zip(each).map(|(k, ct)| if mapped[*k] { ct } else { ct.sum(0) });
        Ok(spread.collect())
    }
    fn apply_to_example(&self, name: &str, (n, m): (usize, usize), xs: &[Array]) -> Result<Vec<Array>> {
        let (operands, rest) = xs.split_at(n);
        let (results, cts) = rest.split_at(m);
        let back = (self.0)(operands, results, cts)?;
        let types: Vec<ArrayType> = operands.iter().map(Array::ty).collect::<Result<_>>()?;
        let floats: Vec<(usize, &ArrayType)> =
            types.iter().enumerate().filter(|(_, ty)| ty.dtype.is_float()).collect();
        let reject =
            |text: String, help: &str| Err(Error::from(Fault::new(ErrorKind::Shape, text).help(help)));
        if back.len() != floats.len() {
            let (given, wanted) = (pluralize(back.len(), "cotangent"), pluralize(floats.len(), "operand"));
            let text = format!(
                "the derivative of {name} returns {given}, but {name} has {wanted} with float elements"
            );
            return reject(text, "return one array for each operand that is a float, in their order");
        }
        for ((k, ty), ct) in floats.iter().zip(&back) {
            let given = ct.ty()?;
            if given.shape != ty.shape || given.dtype != ty.dtype {
                let text = format!("the derivative of {name} returns {given} for operand {k}, which is {ty}");
                return reject(text, "a cotangent has its operand's shape and element type");
            }
        }
        Ok(tree_of(&back, back.clone()))
    }
}
