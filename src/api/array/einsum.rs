//! `einsum`: sums of products over named dimensions.
//!
//! The subscripts are parsed and checked against the operands' shapes. Operands are then contracted
//! two at a time with `dot_general`, choosing the cheapest pair greedily.

use super::operand::{self, Term};
use super::{Array, contraction::Contraction, prims, products::DotOptions};
use crate::api::trace::{apply1, carried_errors, poison};
use crate::core::{
    Axes, Axis, DType, ErrorKind, Fault, Precision, Spec, diagnostic::pluralize, util::small_sort,
};
use crate::ir::program::{CallSite, UserOperand};
use crate::ir::{ops::elementwise::Binary, ops::reduce::Reduction};
use std::borrow::Borrow;

/// Computes the sum of products described by `subscripts`: `einsum("bd,dh->bh", [&x, &w])`.
///
/// A letter that is repeated within one operand takes the diagonal of those dimensions; a letter
/// that is missing in the result is summed over. Without `->` the result has the dimensions under
/// `...` first, then the letters that occur once, in alphabetical order. If operand shardings leave
/// the result's sharding ambiguous, it is an error: use [`einsum_to`].
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(einsum("ij,kj->ik", [&x, &x]).to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// assert_eq!(einsum("ii->", [&x]).item::<f32>()?, 5.0);
/// // `...` stands for any number of dimensions, aligned at the end; sizes of 1 broadcast
/// let y = Array::ones([3, 1, 2]);
/// assert_eq!(type_of(einsum("...i,ji->...j", [&y, &x])), "float32[3,1,2]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum<A: Borrow<Array>>(subscripts: &str, operands: impl IntoIterator<Item = A>) -> Array {
    let call = CallSite::here("einsum").with_explicit_form("einsum_to(…, {})");
    einsum_at(subscripts, operands, DotOptions::default(), call)
}

/// Computes [`einsum`] with the result sharded (or left unreduced) as `out`.
///
/// `out` refers to the dimensions of the result as written.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::einsum_to;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
/// assert_eq!(type_of(einsum_to("ij,kj->ki", [&x, &x], p!["X"])), "float32[4@X,4]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum_to<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    out: Spec,
) -> Array {
    einsum_at(subscripts, operands, DotOptions::with_out_sharding(Some(out)), CallSite::here("einsum_to"))
}

/// Computes [`einsum`] with options: the result's sharding and the accumulation type.
///
/// ```
/// use atmesh::{DotOptions, einsum_with, prelude::*};
/// let x = Array::ones(BF16.array_type([4, 1000]));
/// let in_f32 = DotOptions::default().accum_dtype(F32);
/// assert_eq!(einsum_with("ij,ij->i", [&x, &x], in_f32).to_vec::<f32>()?, [1000.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum_with<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    options: DotOptions,
) -> Array {
    let call = CallSite::here("einsum_with").with_explicit_form("einsum_with(…, how.out_sharding({}))");
    einsum_at(subscripts, operands, options, call)
}

/// An operand of an einsum, with the names of its dimensions.
struct EinsumOperand {
    /// The value.
    array: Array,
    /// The name of each dimension.
    names: Vec<char>,
    /// The user's operand that it comes from, and its remaining dimensions; `None` for a product.
    origin: Option<(usize, Vec<usize>)>,
}

/// Implements the `einsum` functions.
fn einsum_at<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    options: DotOptions,
    call: CallSite<'_>,
) -> Array {
    let operands: Vec<Array> = operands.into_iter().map(|a| a.borrow().clone()).collect();
    if let Some(error) = carried_errors(operands.iter()) {
        return poison(error);
    }
    let terms: Vec<Term> = operands.iter().map(Term::from).collect();
    match parse(subscripts, &operands, call) {
        Ok((named, result)) => contract_all(named, &result, &terms, options, call),
        Err(mut fault) => {
            fault.message = format!("in {subscripts:?} {}", fault.message);
            operand::reject(fault, &terms, call)
        }
    }
}

/// Parses the subscripts; returns the operands with named dimensions, and the result's names.
///
/// Checks the number of operands, the rank of each, and that each name has one size.
fn parse(
    subscripts: &str,
    operands: &[Array],
    call: CallSite<'_>,
) -> Result<(Vec<EinsumOperand>, Vec<char>), Fault> {
    let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, result) = text.split_once("->").map_or((text.as_str(), None), |(i, r)| (i, Some(r)));
    let lists: Vec<&str> = inputs.split(',').collect();
    for list in lists.iter().copied().chain(result) {
        check_subscripts(list)?;
    }
    if lists.len() != operands.len() {
        return Err(shape_error(format!(
            "there are subscripts of {}, but {}",
            pluralize(lists.len(), "operand"),
            pluralize(operands.len(), "operand")
        ))
        .help("write the dimensions of each operand, with `,` between them"));
    }
    let mut named = Vec::with_capacity(operands.len());
    for (k, (list, array)) in lists.iter().zip(operands).enumerate() {
        let rank = array.type_ref().map_err(|_| shape_error("an operand carries an error".into()))?.rank();
        let names = expand_subscripts(list, rank, k)?;
        named.push(EinsumOperand { array: array.clone(), names, origin: Some((k, (0..rank).collect())) });
    }
    let sizes = unify_sizes(&mut named, call)?;
    let under_dots = sizes.iter().map(|s| s.0).filter(|c| *c >= FIRST_ELLIPSIS_NAME);
    let mut dots: Vec<char> = under_dots.collect();
    small_sort::sort_by(&mut dots, |a, b| b.cmp(a));
    let result: Vec<char> = match result {
        Some(r) => match r.split_once("...") {
            Some((before, after)) => before.chars().chain(dots).chain(after.chars()).collect(),
            None => r.chars().collect(),
        },
        None => {
            let mut once: Vec<char> =
                inputs.chars().filter(|c| c.is_alphabetic() && inputs.matches(*c).count() == 1).collect();
            small_sort::sort(&mut once);
            [dots, once].concat()
        }
    };
    for (i, c) in result.iter().enumerate() {
        if result[..i].contains(c) {
            return Err(shape_error(format!("the result names {c} twice"))
                .help("name each dimension of the result once"));
        }
        if !sizes.iter().any(|s| s.0 == *c) {
            let known: String = sizes.iter().map(|s| s.0).filter(|c| *c < FIRST_ELLIPSIS_NAME).collect();
            return Err(shape_error(format!("the result names {c}, which no operand has"))
                .help(format!("the operands' dimensions are {known:?}")));
        }
    }
    Ok((named, result))
}

/// Returns a shape error with this message.
fn shape_error(message: String) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// The name of the last dimension under `...`, a code point that is not a letter.
///
/// Dimensions before it use the following code points.
const FIRST_ELLIPSIS_NAME: char = '\u{e000}';

/// Returns the name of the `i`-th dimension from the end of those under `...`.
fn ellipsis_name(i: usize) -> Option<char> {
    char::from_u32(FIRST_ELLIPSIS_NAME as u32 + u32::try_from(i).ok()?)
}

/// Checks that a subscript list consists of letters and at most one `...`.
fn check_subscripts(list: &str) -> Result<(), Fault> {
    let letters: String = list.splitn(2, "...").collect();
    let Some(c) = letters.chars().find(|c| !c.is_alphabetic()) else { return Ok(()) };
    Err(shape_error(format!("{c:?} does not name a dimension")).help(
            "letters name dimensions, `...` is all others, `,` separates operands, `->` before the result: \"bd,dh->bh\"",
        ))
}

/// Returns the names of all dimensions of operand `k`, including those under `...`.
fn expand_subscripts(list: &str, rank: usize, k: usize) -> Result<Vec<char>, Fault> {
    let letters = list.chars().filter(|c| c.is_alphabetic()).count();
    let dots = list.split_once("...");
    if letters > rank || letters < rank && dots.is_none() {
        let least = if dots.is_some() { "at least " } else { "" };
        return Err(shape_error(format!(
            "{list:?} names {least}{letters} dimensions, but operand {k} has {rank}"
        ))
        .help(format!("write {rank} letters for operand {k}")));
    }
    let Some((before, after)) = dots else { return Ok(list.chars().collect()) };
    let between = (0..rank - letters).rev().filter_map(ellipsis_name);
    Ok(before.chars().chain(between).chain(after.chars()).collect())
}

/// Checks that equal names have equal sizes, and returns the size of each name.
///
/// Dimensions of size 1 that broadcast against a larger size are squeezed.
fn unify_sizes(named: &mut [EinsumOperand], call: CallSite<'_>) -> Result<Vec<(char, usize)>, Fault> {
    let mut sizes: Vec<(char, usize, (usize, usize))> = Vec::new();
    for (k, n) in named.iter().enumerate() {
        for (d, &c) in n.names.iter().enumerate() {
            let size = n.size(d);
            match sizes.iter_mut().find(|s| s.0 == c) {
                None => sizes.push((c, size, (k, d))),
                Some(s) if s.1 == size || size == 1 => {}
                Some(s) if s.1 == 1 => *s = (c, size, (k, d)),
                Some((_, m, (j, e))) => {
                    let c = if c < FIRST_ELLIPSIS_NAME { c.to_string() } else { "`...`".into() };
                    return Err(shape_error(format!("{c} names dimensions of sizes {m} and {size}"))
                        .help("dimensions of one name have one size, or 1")
                        .highlight_dim(*j, *e)
                        .highlight_dim(k, d));
                }
            }
        }
    }
    let sizes: Vec<(char, usize)> = sizes.into_iter().map(|(c, n, _)| (c, n)).collect();
    for n in named {
        let one = |d: &usize| n.size(*d) == 1 && sizes.iter().any(|s| s.0 == n.names[*d] && s.1 != 1);
        let ones: Vec<usize> = (0..n.names.len()).filter(one).collect();
        n.array = n.array.squeeze_at(&ones, call);
        n.retain_dims(|d, _| !ones.contains(&d));
    }
    Ok(sizes)
}

/// Contracts all operands and orders the result's dimensions.
fn contract_all(
    mut named: Vec<EinsumOperand>,
    result: &[char],
    terms: &[Term],
    options: DotOptions,
    call: CallSite<'_>,
) -> Array {
    let DotOptions { out_sharding: out, accum_dtype: sums, precision } = options;
    // a single product accumulates in the requested type; other sums need operands that are
    // converted first
    let one_product = named.len() == 2 && {
        let alone = |n: &EinsumOperand, m: &EinsumOperand| {
            n.names.iter().any(|c| !m.names.contains(c) && !result.contains(c))
        };
        let twice = named.iter().any(|n| repeated_name(&n.names).is_some());
        !twice && !alone(&named[0], &named[1]) && !alone(&named[1], &named[0])
    };
    for n in &mut named {
        if let Some(dtype) = sums.filter(|_| !one_product) {
            n.array = n.array.convert_at(dtype, call);
        }
        if let Err(poisoned) = n.take_diagonals(terms, call) {
            return poisoned;
        }
    }
    let product = named.len() > 1;
    while named.len() > 1 {
        let last = named.len() == 2;
        let (i, j) = cheapest_pair(&named, result);
        let b = named.remove(j);
        let a = named.remove(i);
        let kept: Vec<char> = result.iter().chain(named.iter().flat_map(|n| &n.names)).copied().collect();
        let to = if last { Some(result) } else { None };
        // if the result's sharding is given, intermediate products may have any sharding
        let how = match (last, out) {
            (true, out) => ResultSharding::Given(out),
            (false, Some(_)) => ResultSharding::Any,
            (false, None) => ResultSharding::Given(None),
        };
        // a product is appended after the remaining operands
        let step = if last { call } else { call.intermediate() };
        let wish = ContractionRequest { out: how, accum_dtype: sums, precision };
        named.push(a.contract(b, &kept, to, wish, terms, step));
    }
    let Some(mut one) = named.pop() else {
        let fault = fault!(Shape, "there are no operands").help("give at least one array");
        return operand::reject(fault, &[], call);
    };
    one.sum_out(|c| result.contains(&c), call);
    let perm: Vec<usize> = result.iter().filter_map(|c| one.names.iter().position(|x| x == c)).collect();
    let ordered = if perm.iter().copied().eq(0..perm.len()) {
        one.array
    } else {
        apply1(prims::transpose(&perm), &[one.array.into()], call)
    };
    match out {
        // only products take a result sharding: otherwise reshard to the requested spec
        Some(spec) if !product && !has_sharding(&ordered, spec) => ordered.reshard_at(spec, call),
        _ => ordered,
    }
}

/// Returns true if `x` has this sharding.
fn has_sharding(x: &Array, spec: Spec) -> bool {
    x.type_ref().is_ok_and(|t| {
        let spec = spec.padded(t.rank());
        t.spec.dims() == spec.dims() && t.spec.unreduced_axes() == spec.unreduced_axes()
    })
}

/// Returns the indices of the pair of operands to contract next: the one of least cost.
///
/// The cost is the operation count of the pair's product plus that of the product of its result
/// with the remaining operands. Ties go to the earlier pair.
fn cheapest_pair(named: &[EinsumOperand], result: &[char]) -> (usize, usize) {
    let mut best = (f64::INFINITY, 0, 1);
    for i in 0..named.len() {
        for j in i + 1..named.len() {
            let (a, b) = (&named[i], &named[j]);
            let others: Vec<&EinsumOperand> =
                named.iter().enumerate().filter(|(k, _)| *k != i && *k != j).map(|(_, n)| n).collect();
            let needed = |c: &char| result.contains(c) || others.iter().any(|o| o.names.contains(c));
            let mut cost = operation_count(sizes(&[a, b]), |c| shared(a, b, c) && !needed(&c));
            if !others.is_empty() {
                let mut all: Vec<(char, usize)> =
                    sizes(&[a, b]).into_iter().filter(|(c, _)| needed(c)).collect();
                let rest = sizes(&others);
                let summed = all.iter().any(|(c, _)| !result.contains(c));
                all.extend(rest.into_iter().filter(|(c, _)| !a.names.contains(c) && !b.names.contains(c)));
                cost += operation_count(all, |_| summed);
            }
            if cost < best.0 {
                best = (cost, i, j);
            }
        }
    }
    (best.1, best.2)
}
/// Returns true if both operands have a dimension of this name.
fn shared(a: &EinsumOperand, b: &EinsumOperand, name: char) -> bool {
    a.names.contains(&name) && b.names.contains(&name)
}
/// Returns the number of multiplications of a product over `dims`, doubled if it also adds.
fn operation_count(dims: Vec<(char, usize)>, summed: impl Fn(char) -> bool) -> f64 {
    let ways = if dims.iter().any(|(c, _)| summed(*c)) { 2.0 } else { 1.0 };
    dims.iter().map(|x| x.1 as f64).product::<f64>() * ways
}
/// Returns the size of each name that occurs in these operands.
fn sizes(named: &[&EinsumOperand]) -> Vec<(char, usize)> {
    let mut all: Vec<(char, usize)> = Vec::new();
    for n in named {
        for (d, c) in n.names.iter().enumerate() {
            if !all.iter().any(|x| x.0 == *c) {
                all.push((*c, n.size(d)));
            }
        }
    }
    all
}

impl EinsumOperand {
    /// Returns the size of dimension `d`.
    fn size(&self, d: usize) -> usize {
        self.array.type_ref().map_or(1, |t| t.shape[d])
    }
    /// Retains the names and origin dimensions for which `kept(index, name)` is true.
    fn retain_dims(&mut self, kept: impl Fn(usize, char) -> bool) {
        let left: Vec<usize> = (0..self.names.len()).filter(|d| kept(*d, self.names[*d])).collect();
        self.names = left.iter().map(|d| self.names[*d]).collect();
        if let Some((_, dims)) = &mut self.origin {
            *dims = left.iter().map(|d| dims[*d]).collect();
        }
    }
    /// Takes the diagonal of dimensions with equal names.
    ///
    /// It is an error if the array is sharded.
    fn take_diagonals(&mut self, terms: &[Term], call: CallSite<'_>) -> Result<(), Array> {
        while let Some((i, j)) = repeated_name(&self.names) {
            let Ok(ty) = self.array.type_ref() else { return Err(self.array.clone()) };
            if !ty.spec.is_replicated() {
                let c = self.names[i];
                let (number, dims) =
                    self.origin.as_ref().map_or((0, [i, j]), |(k, dims)| (*k, [dims[i], dims[j]]));
                let fault = fault!(Sharding, "{c} takes the diagonal of operand {number}, which is sharded")
                    .help(format!("reshard operand {number}: `.reshard(p![])`"))
                    .highlight_dim(number, dims[0])
                    .highlight_dim(number, dims[1]);
                return Err(operand::reject(fault, terms, call));
            }
            let index = |d| apply1(prims::iota(DType::I32.array_type(&ty.shape), d), &[], call);
            let on = index(i).binary_with(Binary::Eq, index(j), call);
            let kept = on.select_at(Term::from(&self.array), self.array.zero_operand(call), call);
            self.array = apply1(prims::reduce(Reduction::Sum, &[i], None), &[kept.into()], call);
            self.retain_dims(|d, _| d != i);
        }
        Ok(())
    }
    /// Returns the user's operand that error messages refer to; `None` for a product.
    fn source<'a>(&'a self, terms: &'a [Term]) -> Option<UserOperand<'a>> {
        let (number, dims) = self.origin.as_ref()?;
        let Term::Array(array) = &terms[*number] else { return None };
        Some(UserOperand { index: *number, ty: array.type_ref().ok(), dims: Some(dims) })
    }
    /// Returns the axes over which the dimension of this name is sharded.
    fn axes(&self, name: char) -> Option<Axes> {
        let d = self.names.iter().position(|c| *c == name)?;
        Some(Axes::from(self.array.type_ref().ok()?.spec.dim(d)))
    }
    /// Sums over the dimensions whose names are not `kept`.
    fn sum_out(&mut self, kept: impl Fn(char) -> bool, call: CallSite<'_>) {
        let axes: Vec<usize> = (0..self.names.len()).filter(|d| !kept(self.names[*d])).collect();
        if !axes.is_empty() {
            self.array = apply1(prims::reduce(Reduction::Sum, &axes, None), &[(&self.array).into()], call);
            self.retain_dims(|_, c| kept(c));
        }
    }
    /// Returns the product with another operand.
    ///
    /// `kept` are the names that are needed later; `to` is the order of the result's dimensions if
    /// this is the last product.
    fn contract(
        mut self,
        mut b: EinsumOperand,
        kept: &[char],
        to: Option<&[char]>,
        wish: ContractionRequest,
        terms: &[Term],
        call: CallSite<'_>,
    ) -> EinsumOperand {
        let (a_names, b_names) = (self.names.clone(), b.names.clone());
        self.sum_out(|c| kept.contains(&c) || b_names.contains(&c), call);
        b.sum_out(|c| kept.contains(&c) || a_names.contains(&c), call);
        let both = |c: &char| a_names.contains(c) && b_names.contains(c);
        let of = |n: &EinsumOperand| n.names.iter().copied().filter(|c| !both(c)).collect::<Vec<char>>();
        // an intermediate product has its dimensions in order of occurrence, those of the later
        // operand first
        let found = || {
            let mut all = b.names.clone();
            all.extend(self.names.iter().filter(|c| !both(c)));
            all.retain(|c| kept.contains(c));
            all
        };
        let order: Vec<char> = to.map_or_else(found, <[char]>::to_vec);
        let batch: Vec<char> = order.iter().copied().filter(both).collect();
        let product = |a: &EinsumOperand, b: &EinsumOperand| [batch.clone(), of(a), of(b)].concat();
        // A product takes the left operand's sharding of shared dimensions. Swap the operands if
        // the result would otherwise need a transpose; this is observable only if their shardings
        // differ.
        let differ = || batch.iter().any(|c| self.axes(*c) != b.axes(*c));
        let turned = product(&self, &b) != order && (to.is_none() || differ());
        let (a, b) = if turned { (b, self) } else { (self, b) };
        let at = |n: &EinsumOperand, c: char| n.names.iter().position(|x| *x == c);
        let pair = |c: &char| Some((at(&a, *c)?, at(&b, *c)?));
        let how = Contraction {
            contracting: a.names.iter().filter(|c| !batch.contains(c)).filter_map(pair).collect(),
            batch: batch.iter().filter_map(pair).collect(),
        };
        let names = product(&a, &b);
        let made: Vec<usize> = names.iter().filter_map(|c| order.iter().position(|x| x == c)).collect();
        let out = match wish.out {
            ResultSharding::Given(out) => out,
            ResultSharding::Any => Some(inherited_sharding(&order, [&a, &b])),
        };
        let options =
            DotOptions { out_sharding: out, accum_dtype: wish.accum_dtype, precision: wish.precision };
        let describe = || operand::describe_all(terms);
        let array = match (a.source(terms), b.source(terms)) {
            (Some(x), Some(y)) => {
                a.array.contract_into(&b.array, &how, &made, options, call.with_operands(&describe, &[x, y]))
            }
            _ => a.array.contract_into(&b.array, &how, &made, options, call),
        };
        EinsumOperand { array, names: order, origin: None }
    }
}

/// The requested sharding and accumulation type of a product.
struct ContractionRequest {
    /// The sharding of the result.
    out: ResultSharding,
    /// The accumulation type; `None` for the operands' type.
    accum_dtype: Option<DType>,
    /// The precision; `None` for the process's default.
    precision: Option<Precision>,
}

/// The sharding that a product's result must have.
enum ResultSharding {
    /// The given sharding; `None` for the one that the sharding rules determine.
    Given(Option<Spec>),
    /// Any sharding: taken from the operands.
    Any,
}

/// Returns a sharding for an intermediate product that uses no axis twice.
///
/// Each dimension takes the axes of the first operand that shards it over unused axes.
fn inherited_sharding(order: &[char], operands: [&EinsumOperand; 2]) -> Spec {
    let mut used: Vec<Axis> = Vec::new();
    let mut dims = Vec::with_capacity(order.len());
    for c in order {
        let mut entries = operands.iter().filter_map(|n| n.axes(*c));
        let free = |axes: &Axes| !axes.is_empty() && axes.iter().all(|a| !used.contains(&a));
        let axes = entries.find(free).unwrap_or_default();
        used.extend(axes.iter());
        dims.push(axes);
    }
    Spec::from_dims(dims)
}

/// Returns the positions of the first name that occurs twice.
fn repeated_name(names: &[char]) -> Option<(usize, usize)> {
    (0..names.len()).find_map(|i| {
        let j = names[i + 1..].iter().position(|c| *c == names[i])?;
        Some((i, i + 1 + j))
    })
}
