//! A user's own operations.

use super::control::{Piece, tree_of};
use super::vmap::{VmapOptions, vmap_with};
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result, counted};
use crate::mesh::AxisType;
use crate::ops::build::cotangent_type;
use crate::ops::custom::{Custom, Declared, Kernel, Letters, Own, Rule};
use crate::program::{Call, In, Out, Program};
use crate::sharding::Spec;
use crate::trace::{Arg, Open, Setting, apply, poison, setting};
use crate::tree::{Args, Output, collect};
use crate::types::{ArrayType, DType, Scalar};
use std::fmt;
use std::sync::Arc;

/// An operation of your own, made by [`custom_op`].
#[derive(Clone)]
#[must_use = "it does nothing until it is called"]
pub struct CustomOp {
    of: Declared,
    /// The first thing that is wrong with what was said.
    wrong: Option<Fault>,
}

/// What a kernel may return: nothing, or a `Result` whose error ends the run with its text.
pub trait Finished {
    /// The error, as text.
    fn finished(self) -> Result<(), String>;
}
impl Finished for () {
    fn finished(self) -> Result<(), String> {
        Ok(())
    }
}
impl<E: fmt::Display> Finished for Result<(), E> {
    fn finished(self) -> Result<(), String> {
        self.map_err(|e| e.to_string())
    }
}

/// An operation of your own: a name, the dimensions of its operands and results, and what computes it. It is traced, typed, sharded,
/// mapped by `vmap` and, with a rule, differentiated like those of this crate.
///
/// `"ij,jk->ik"`: a letter for each dimension, the same letter for dimensions of one size; `...` in front for any number of further dimensions.
/// The kernel gets a view of each operand and of each result, with the dimensions of its letters in their order, and writes all results.
///
/// Dimensions of `...`, and letters that [`over`](CustomOp::over) names, run *over lines*: the kernel is called for each of their positions with
/// what is there, so they may be sharded any way, and devices share the calls out. Over letters that [`sums_over`](CustomOp::sums_over) names results
/// are sums: the kernel is called for each device's block of them. All other dimensions it sees whole: in explicit mode they must be unsharded, in
/// auto mode they are gathered.
///
/// What a kernel computes goes by its operands alone, to the bit: it reads no state and no clock. What it needs beside them is an operand of its own,
/// a number perhaps (letters: none, `"ij,->ij"`). It runs on threads of this crate, where it works with the views and not with [`Array`]s. A
/// kernel that panics, returns an error or writes nothing ends the run with an error that names it.
///
/// Two operations are the same, to what is kept of compiled programs, if they have one name and the same declarations, and their kernels are one
/// piece of code that captures nothing. Make an operation whose kernel captures something once, and clone it.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::custom_op;
///
/// // softmax along the last dimension, with a temperature
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
    F: Fn(&[In<'_>], &mut [Out<'_>]) -> R + Send + Sync + 'static,
    R: Finished,
{
    let (letters, wrong) = match Letters::parse(dims) {
        Ok(letters) => (letters, None),
        Err(fault) => (Letters::default(), Some(fault)),
    };
    let code = move |ins: &[In<'_>], outs: &mut [Out<'_>]| kernel(ins, outs).finished();
    let kernel = Kernel::new::<F>(name, Arc::new(code));
    let of = Declared {
        name,
        letters,
        over: Vec::new(),
        sums: Vec::new(),
        sizes: Vec::new(),
        takes: Vec::new(),
        returns: Vec::new(),
        cost: None,
        kernel,
        rule: None,
    };
    CustomOp { of, wrong }
}

impl CustomOp {
    fn refused(mut self, text: String, help: &str) -> CustomOp {
        self.wrong.get_or_insert_with(|| Fault::new(ErrorKind::Syntax, text).help(help));
        self
    }
    /// The same, where these letters run over lines: each of them is in an operand and in all results. The kernel is called for each position, with views
    /// that do not have these dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// // rows of x, each times the matrix y
    /// let times = custom_op("times", "ij,jk->ik", |ins, outs| {
    ///     let (row, y) = (ins[0].view::<f32>(), ins[1].view::<f32>());
    ///     for (k, mut out) in outs[0].view::<f32>().iter_mut().enumerate() {
    ///         *out = row.iter().zip(y.index_axis(atmesh::nd::Axis(1), k)).map(|(a, b)| a * b).sum();
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
            let of = &self.of.letters;
            if self.wrong.is_none() && !(of.given(c) && of.results.iter().all(|n| n.letters.contains(&c))) {
                let text = format!("{} cannot run over {c:?} of `{of}`", self.of.name);
                return self.refused(text, "over lines run letters of an operand that all results have");
            }
            if !self.of.over.contains(&c) {
                self.of.over.push(c);
            }
        }
        self
    }
    /// The same, where all results are sums over these letters: each is in an operand and in no result. The kernel may be called for a block of
    /// these dimensions, and what it makes of blocks is added. So they may be sharded: each device computes its block, and one all-reduce adds up the
    /// results, or what [`call_to`](CustomOp::call_to) asks for. Where blocks are not of one size they are gathered instead, and so they are on auto
    /// axes where that moves less.
    ///
    /// Results are numbers. A result that is no sum of such blocks (a mean, a sum with something added once) is wrong where it is sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// // how often two rows agree
    /// let agree = custom_op("agree", "ij,kj->ik", |ins, outs| {
    ///     let (x, y) = (ins[0].view::<i32>(), ins[1].view::<i32>());
    ///     for (k, n) in outs[0].view::<i32>().iter_mut().enumerate() {
    ///         *n = x.iter().zip(y.index_axis(atmesh::nd::Axis(0), k)).filter(|(a, b)| a == b).count() as i32;
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
            let of = &self.of.letters;
            if self.wrong.is_none() && (!of.given(c) || of.made(c)) {
                let text = format!("{} cannot sum over {c:?} of `{of}`", self.of.name);
                return self
                    .refused(text, "results are sums over letters that operands have and no result has");
            }
            if !self.of.sums.contains(&c) {
                self.of.sums.push(c);
            }
        }
        self
    }
    /// The same, where a letter that no operand has is of this size.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::custom_op;
    /// let powers = custom_op("powers", "...->...k", |ins, outs| {
    ///     let x = ins[0].view::<f64>()[[]];
    ///     outs[0].view::<f64>().iter_mut().enumerate().for_each(|(k, y)| *y = x.powi(k as i32));
    /// })
    /// .size('k', 4);
    /// assert_eq!(powers.call(Array::from([2.0, 3.0])).to_vec::<f64>()?, [1.0, 2.0, 4.0, 8.0, 1.0, 3.0, 9.0, 27.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn size(mut self, letter: char, n: usize) -> CustomOp {
        let of = &self.of.letters;
        if self.wrong.is_none() && (of.given(letter) || !of.made(letter)) {
            let text = format!("{} is told the size of {letter:?} of `{of}`", self.of.name);
            return self.refused(text, "sizes are told of letters that results have and operands have not");
        }
        self.of.sizes.retain(|(c, _)| *c != letter);
        self.of.sizes.push((letter, n));
        self
    }
    /// The same, whose operands must be of these element types; without this any is passed on to the kernel.
    pub fn takes(mut self, dtypes: impl IntoIterator<Item = DType>) -> CustomOp {
        self.of.takes = dtypes.into_iter().collect();
        let (told, has) = (self.of.takes.len(), self.of.letters.operands.len());
        self.counted("operand", told, has)
    }
    /// The same, whose results are of these element types; without this all are of the first operand's.
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
        self.of.returns = dtypes.into_iter().collect();
        let (told, has) = (self.of.returns.len(), self.of.letters.results.len());
        self.counted("result", told, has)
    }
    fn counted(self, what: &str, told: usize, has: usize) -> CustomOp {
        if told == has {
            return self;
        }
        let text =
            format!("{} is told {} for {}", self.of.name, counted(told, "element type"), counted(has, what));
        self.refused(text, "give one for each")
    }
    /// The same, a call of whose kernel takes so many nanoseconds, roughly: by this calls are shared out among workers. Without it, one for each
    /// element that goes in.
    pub fn cost(mut self, nanoseconds: f64) -> CustomOp {
        self.of.cost = Some(Scalar::Float(nanoseconds));
        self
    }
    /// The same with a rule for `grad`, `vjp` and `jvp`: from the operands, the results, and a cotangent of each result that is a float, the
    /// cotangent of each operand that is a float, of its shape and element type, in their order.
    ///
    /// The rule is traced, on arrays of one example. It is linear in the cotangents. Forward mode takes it turned round, for which it must be made of operations that
    /// can be: those of this crate, not another operation of your own of the cotangents. It reads no arrays from outside: pass what it needs as operands.
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
        self.of.rule = Some(Own::<dyn Rule>::new::<F>(self.of.name, Arc::new(Written(rule))));
        self
    }
    /// Its only result, of these operands: an array or a number, or a tuple of them.
    #[track_caller]
    pub fn call(&self, operands: impl Args) -> Array {
        let twin = format!("{}.call_to((…), {{}})", self.of.name);
        self.only(operands, None, Call::here(self.of.name).twin(&twin))
    }
    /// Its only result, sharded as `out` says, or left unreduced over axes that split what it [`sums_over`](CustomOp::sums_over).
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
        self.only(operands, Some(out), Call::here(self.of.name))
    }
    fn only(&self, operands: impl Args, out: Option<Spec>, call: Call<'_>) -> Array {
        let results = self.of.letters.results.len();
        if self.wrong.is_none() && results != 1 {
            let method = if out.is_some() { "call_to" } else { "call" };
            let text =
                format!("{} has {}, and `{method}` returns one", self.of.name, counted(results, "result"));
            let fault = Fault::new(ErrorKind::Shape, text).help("take all of them: `.call_all(…)`");
            return poison(call.error(fault, Vec::new));
        }
        self.made(collect(&operands.into_tree()), out, call).swap_remove(0)
    }
    /// All of its results; where it is refused, each carries the error.
    #[track_caller]
    pub fn call_all(&self, operands: impl Args) -> Vec<Array> {
        let mut made = self.made(collect(&operands.into_tree()), None, Call::here(self.of.name));
        let results = self.of.letters.results.len();
        if let (true, Some(one)) = (made.len() < results, made.first().cloned()) {
            made.resize(results, one);
        }
        made
    }
    fn made(&self, operands: Vec<Array>, out: Option<Spec>, call: Call<'_>) -> Vec<Array> {
        if let Some(fault) = self.wrong() {
            return vec![poison(call.error(fault, Vec::new))];
        }
        let checked = setting().is_none_or(|s| s.checked);
        let prim = Custom { of: Arc::new(self.of.clone()), lead: Vec::new(), out, checked };
        let args: Vec<Arg> = operands.iter().map(Arg::from).collect();
        apply(Arc::new(prim), &args, call)
    }
    fn wrong(&self) -> Option<Fault> {
        if self.wrong.is_some() {
            return self.wrong.clone();
        }
        let of = &self.of.letters;
        let sized = |c: &char| of.given(*c) || self.of.sizes.iter().any(|(k, _)| k == c);
        let unsized_ = of.results.iter().flat_map(|r| &r.letters).find(|c| !sized(c))?;
        let text = format!("nothing says the size of {unsized_:?} of `{of}`");
        Some(Fault::new(ErrorKind::Shape, text).help(format!("say it: `.size({unsized_:?}, …)`")))
    }
}

/// Its name and dimensions.
impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.of.name, self.of.letters)
    }
}

/// A rule as the user wrote it, for one example.
struct Written<F>(F);

impl<F> Rule for Written<F>
where
    F: Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync,
{
    fn record(&self, of: &Custom, operands: &[ArrayType], results: &[ArrayType]) -> Result<Program> {
        let name = of.of.name;
        let cts = results.iter().filter(|ty| ty.dtype.is_float()).map(cotangent_type);
        let types: Vec<ArrayType> = operands.iter().chain(results).cloned().chain(cts).collect();
        let outside = move |ty: &ArrayType| {
            Err(Fault::new(ErrorKind::Trace, format!("the derivative of {name} reads {ty} from outside"))
                .help("make it an operand, or make it within the rule: `Array::full`, `Array::arange`"))
        };
        let open = Open::within(Box::new(outside))?;
        if let Some(mesh) = types.iter().find_map(|ty| ty.mesh.clone()) {
            match mesh.axis_types().contains(&AxisType::Manual) {
                true => open.set(Setting { mesh, checked: of.checked }),
                false => open.on(&mesh),
            }
        }
        let split = (operands.len(), results.len());
        let piece = Piece::record_in(open, &types, |xs| self.all(name, split, &of.lead, xs))?;
        Ok(piece.program)
    }
}

impl<F: Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>>> Written<F> {
    /// Of all examples.
    fn all(
        &self,
        name: &str,
        split: (usize, usize),
        lead: &[Vec<bool>],
        xs: Vec<Array>,
    ) -> Result<Vec<Array>> {
        let Some((mapped, inner)) = lead.split_first() else { return self.one(name, split, &xs) };
        let has = |k: usize| k >= mapped.len() || mapped[k];
        let dims: Vec<Option<i32>> = (0..xs.len()).map(|k| has(k).then_some(0)).collect();
        let floats: Vec<usize> =
            (0..mapped.len()).filter(|k| xs[*k].type_ref().is_ok_and(|ty| ty.dtype.is_float())).collect();
        let each = vmap_with(xs, |xs| self.all(name, split, inner, xs), VmapOptions::default().in_dims(dims));
        // what is the same for all examples gets the sum of what they tell it
        let spread = floats.iter().zip(each).map(|(k, ct)| if mapped[*k] { ct } else { ct.sum(0) });
        Ok(spread.collect())
    }
    fn one(&self, name: &str, (n, m): (usize, usize), xs: &[Array]) -> Result<Vec<Array>> {
        let (operands, rest) = xs.split_at(n);
        let (results, cts) = rest.split_at(m);
        let back = (self.0)(operands, results, cts)?;
        let types: Vec<ArrayType> = operands.iter().map(Array::ty).collect::<Result<_>>()?;
        let floats: Vec<(usize, &ArrayType)> =
            types.iter().enumerate().filter(|(_, ty)| ty.dtype.is_float()).collect();
        let refuse =
            |text: String, help: &str| Err(Error::from(Fault::new(ErrorKind::Shape, text).help(help)));
        if back.len() != floats.len() {
            let (given, wanted) = (counted(back.len(), "cotangent"), counted(floats.len(), "operand"));
            let text = format!("the derivative of {name} gives {given} for {wanted} of floats");
            return refuse(text, "return one array for each operand that is a float, in their order");
        }
        for ((k, ty), ct) in floats.iter().zip(&back) {
            let given = ct.ty()?;
            if given.shape != ty.shape || given.dtype != ty.dtype {
                let text = format!("the derivative of {name} gives {given} for operand {k}, which is {ty}");
                return refuse(text, "a cotangent has its operand's shape and element type");
            }
        }
        Ok(tree_of(&back, back.clone()))
    }
}
