//! Products: dot, matmul, einsum, and their twins that take the result's sharding.

use super::operand::{self, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Place};
use crate::mesh::Axes;
use crate::ops::reduce::Reduction;
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison, told, told_order};
use crate::types::{ArrayType, DType};
use std::borrow::Borrow;
use std::panic::Location;

/// Which dimensions of the two operands of a product are summed, and which are run over together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contraction {
    /// Pairs of dimensions that are summed.
    pub contracting: Vec<(usize, usize)>,
    /// Pairs of dimensions that both have and the result too, in front.
    pub batch: Vec<(usize, usize)>,
}

/// How a product is made: `x.matmul_with(&w, ProductOptions { sums: Some(F32), ..ProductOptions::default() })`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProductOptions {
    /// How the result lies, or over which axes it is left unreduced; else by the rules.
    pub out: Option<Spec>,
    /// The element type of the sums and of the result; else that of the operands.
    pub sums: Option<DType>,
}

impl ProductOptions {
    fn out(out: Option<Spec>) -> ProductOptions {
        ProductOptions { out, sums: None }
    }
}

impl Array {
    /// The product of two arrays of rank 1 or 2: inner product, matrix and vector, matrices.
    ///
    /// Where both contracted dimensions are sharded, the result's sharding is open: [`Array::dot_to`] takes it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.dot(&Array::from([1.0f32, 1.0])).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot(&self, b: impl Borrow<Array>) -> Array {
        self.dot_at(b.borrow(), None, Location::caller())
    }
    /// [`Array::dot`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    /// let w = Array::ones([8, 2]).put(&mesh, p!["X", _]);
    /// assert_eq!(type_of(x.dot_to(&w, p!["X", _])), "float32[4@X,2]");
    /// assert_eq!(type_of(x.dot_to(&w, p![_, _; U: "X"])), "float32[4,2]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.dot_at(b.borrow(), Some(out), Location::caller())
    }
    fn dot_at(&self, b: &Array, out: Option<Spec>, place: Place) -> Array {
        let _told = told("dot");
        if let Some(error) = carried([self, b].into_iter()) {
            return poison(error);
        }
        for x in [self, b] {
            let Ok(ty) = x.type_ref() else { return x.clone() };
            if !(1..=2).contains(&ty.rank()) {
                let fault = Fault::new(
                    ErrorKind::Shape,
                    format!("an array has rank {}: `dot` takes arrays of rank 1 or 2", ty.rank()),
                );
                let fault = match ty.rank() {
                    0 => fault.help("multiply by a scalar: `a * b`"),
                    _ => fault.help("use `matmul` for stacks of matrices, or `einsum`"),
                };
                return operand::refuse(fault, "dot", &both(self, b), place);
            }
        }
        self.matmul_at("dot", b, ProductOptions::out(out), place)
    }
    /// The product of (stacks of) matrices, as numpy's `matmul`: leading dimensions broadcast.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([5, 4, 8]);
    /// assert_eq!(x.matmul(Array::ones([8, 2])).shape()?, [5, 4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, b: impl Borrow<Array>) -> Array {
        self.matmul_with(b, ProductOptions::default())
    }
    /// [`Array::matmul`], sharded (or left unreduced) as `out` says.
    #[track_caller]
    pub fn matmul_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.matmul_with(b, ProductOptions::out(Some(out)))
    }
    /// [`Array::matmul`], the result's sharding and the sums' element type chosen.
    ///
    /// ```
    /// use atmesh::{ProductOptions, prelude::*};
    /// let x = Array::ones(BF16.of([1, 1000]));
    /// let in_f32 = ProductOptions { sums: Some(F32), ..ProductOptions::default() };
    /// assert_eq!(type_of(x.matmul_with(x.t(), in_f32)), "float32[1,1]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul_with(&self, b: impl Borrow<Array>, options: ProductOptions) -> Array {
        self.matmul_at("matmul", b.borrow(), options, Location::caller())
    }
    fn matmul_at(&self, op: &'static str, b: &Array, options: ProductOptions, place: Place) -> Array {
        let _told = told(op);
        let (Ok(ta), Ok(tb)) = (self.type_ref(), b.type_ref()) else {
            return carried([self, b].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let refuse = |fault| operand::refuse(fault, op, &both(self, b), place);
        if ta.rank() == 0 || tb.rank() == 0 {
            let fault = Fault::new(ErrorKind::Shape, format!("`{op}` takes arrays of rank 1 and more"));
            return refuse(fault.help("multiply by a scalar: `a * b`"));
        }
        let (a_mat, b_mat) = (ta.rank() > 1, tb.rank() > 1);
        let a_lead = &ta.shape[..ta.rank() - 1 - usize::from(a_mat)];
        let b_lead = &tb.shape[..tb.rank() - 1 - usize::from(b_mat)];
        let lead = a_lead.len().max(b_lead.len());
        // where each kind of dimension stands in the result, in the order in which the product makes them
        let (mut batch, mut a_other, mut b_other) = (Vec::new(), Vec::new(), Vec::new());
        let (mut a_ones, mut b_ones) = (Vec::new(), Vec::new());
        let mut pairs = Vec::new();
        for i in 0..lead {
            let at = |dims: &[usize]| (i + dims.len()).checked_sub(lead).map(|d| (d, dims[d]));
            match (at(a_lead), at(b_lead)) {
                (None, _) => b_other.push(i),
                (_, None) => a_other.push(i),
                (Some((d, 1)), Some(_)) => {
                    b_other.push(i);
                    a_ones.push(d);
                }
                (Some(_), Some((d, 1))) => {
                    a_other.push(i);
                    b_ones.push(d);
                }
                (Some((d, n)), Some((e, m))) if n == m => {
                    if ta.spec.dim(d) != tb.spec.dim(e) {
                        return refuse(split_alike((0, ta, d), (1, tb, e)));
                    }
                    pairs.push((batch.len() + a_other.len(), batch.len() + b_other.len()));
                    batch.push(i);
                }
                (Some((d, n)), Some((e, m))) => {
                    let fault = Fault::new(
                        ErrorKind::Shape,
                        format!(
                            "dimension {d} of operand 0 has size {n}, dimension {e} of operand 1 size {m}: leading dimensions must be equal, or one of them 1"
                        ),
                    );
                    return refuse(fault.dim(0, d).dim(1, e));
                }
            }
        }
        let a = if a_ones.is_empty() { self.clone() } else { self.without(&a_ones, place) };
        let b = if b_ones.is_empty() { b.clone() } else { b.without(&b_ones, place) };
        let (ra, rb) = (ta.rank() - a_ones.len(), tb.rank() - b_ones.len());
        if a_mat {
            a_other.push(lead);
        }
        if b_mat {
            b_other.push(lead + usize::from(a_mat));
        }
        let made: Vec<usize> = batch.iter().chain(&a_other).chain(&b_other).copied().collect();
        let how = Contraction { contracting: vec![(ra - 1, rb - 1 - usize::from(b_mat))], batch: pairs };
        a.contract_into(&b, &how, &made, false, options, place)
    }
    /// The product whose k-th dimension is dimension `made[k]` of what is wanted; `options.out` speaks of what is wanted. A `step` is on
    /// the way to what the user asked for.
    fn contract_into(
        &self,
        b: &Array,
        how: &Contraction,
        made: &[usize],
        step: bool,
        options: ProductOptions,
        place: Place,
    ) -> Array {
        let sorted = made.iter().copied().eq(0..made.len());
        let out = options.out.map(|spec| {
            let dims = spec.dims();
            if sorted || dims.len() > made.len() {
                return spec;
            }
            spec.with_dims(made.iter().map(|d| dims.get(*d).cloned().unwrap_or_default()).collect())
        });
        told_order((!step).then(|| made.to_vec()));
        let product = apply1(prims::dot_general(how, out, options.sums), &[self.into(), b.into()], place);
        told_order(Some(Vec::new()));
        if sorted {
            return product;
        }
        let mut perm = vec![0; made.len()];
        for (k, d) in made.iter().enumerate() {
            perm[*d] = k;
        }
        apply1(prims::transpose(&perm), &[product.into()], place)
    }
    /// The general product: batch dimensions, then the left operand's others, then the right one's. `sums` is the element type of the
    /// sums and of the result, where it is not the operands'.
    ///
    /// ```
    /// use atmesh::{array::Contraction, prelude::*};
    /// let (x, y) = (Array::ones(I8.of([3, 100])), Array::ones(I8.of([5, 100])));
    /// let how = Contraction { contracting: vec![(1, 1)], ..Contraction::default() };
    /// assert_eq!(type_of(x.dot_general(&y, &how, Some(I32))), "int32[3,5]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general(&self, b: impl Borrow<Array>, how: &Contraction, sums: Option<DType>) -> Array {
        let args = [self.into(), b.borrow().into()];
        apply1(prims::dot_general(how, None, sums), &args, Location::caller())
    }
    /// [`Array::dot_general`], sharded (or left unreduced) as `out` says.
    #[track_caller]
    pub fn dot_general_to(
        &self,
        b: impl Borrow<Array>,
        how: &Contraction,
        sums: Option<DType>,
        out: Spec,
    ) -> Array {
        let args = [self.into(), b.borrow().into()];
        apply1(prims::dot_general(how, Some(out), sums), &args, Location::caller())
    }
}

/// The refusal of dimensions of two operands (number, type, dimension) that run together, but are split differently.
pub(super) fn split_alike(a: (usize, &ArrayType, usize), b: (usize, &ArrayType, usize)) -> Fault {
    let name = |(k, ty, d): (usize, &ArrayType, usize)| {
        let axes = entry(ty.spec, d);
        let at = if axes.is_empty() { String::new() } else { format!("@{axes}") };
        format!("dimension {d} of operand {k}, {}{at},", ty.shape[d])
    };
    let message = format!("{} and {} must be split alike", name(a), name(b));
    let mut fault = Fault::new(ErrorKind::Sharding, message).dim(a.0, a.2).dim(b.0, b.2);
    for ((k, x, d), (_, y, e)) in [(a, b), (b, a)] {
        let axes = entry(y.spec, e);
        let ways = y.mesh.as_ref().map_or(1, |m| axes.iter().map(|a| m.axis_size(a)).product());
        if x.shape[d].is_multiple_of(ways) {
            fault = fault.help(format!("reshard operand {k}: `.reshard({})`", moved(x, d, &axes)));
        }
    }
    fault
}

/// The type's spec with dimension `d` split over these axes, and no other dimension over one of them.
pub(super) fn moved(ty: &ArrayType, d: usize, axes: &Axes) -> Spec {
    let mut dims = ty.spec.padded(ty.rank()).dims().to_vec();
    for (i, entry) in dims.iter_mut().enumerate() {
        if i == d {
            *entry = axes.clone();
        } else if entry.iter().any(|a| axes.contains(a)) {
            *entry = Axes::none();
        }
    }
    ty.spec.only(|a| !axes.contains(a)).with_dims(dims)
}

fn both(a: &Array, b: &Array) -> [Term; 2] {
    [Term::Array(a.clone()), Term::Array(b.clone())]
}

/// Sums of products by named indices: `einsum("bd,dh->bh", [&x, &w])`. Without `->` the result has the indices that occur once, in
/// alphabetical order.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(einsum("ij,kj->ik", [&x, &x]).to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// assert_eq!(einsum("ii->", [&x]).item::<f32>()?, 5.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum<A: Borrow<Array>>(subscripts: &str, operands: impl IntoIterator<Item = A>) -> Array {
    einsum_with(ProductOptions::default(), subscripts, operands)
}

/// [`einsum`], sharded (or left unreduced) as `out` says of the result as written.
#[track_caller]
pub fn einsum_to<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    out: Spec,
) -> Array {
    einsum_with(ProductOptions::out(Some(out)), subscripts, operands)
}

/// [`einsum`], the result's sharding and the sums' element type chosen.
///
/// ```
/// use atmesh::{ProductOptions, einsum_with, prelude::*};
/// let x = Array::ones(BF16.of([4, 1000]));
/// let in_f32 = ProductOptions { sums: Some(F32), ..ProductOptions::default() };
/// assert_eq!(einsum_with(in_f32, "ij,ij->i", [&x, &x]).to_vec::<f32>()?, [1000.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum_with<A: Borrow<Array>>(
    options: ProductOptions,
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
) -> Array {
    einsum_at(subscripts, operands, options, Location::caller())
}

/// An operand of an einsum with the names of its dimensions.
struct Named {
    array: Array,
    names: Vec<char>,
}

fn einsum_at<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    options: ProductOptions,
    place: Place,
) -> Array {
    let operands: Vec<Array> = operands.into_iter().map(|a| a.borrow().clone()).collect();
    let _told = told("einsum");
    if let Some(error) = carried(operands.iter()) {
        return poison(error);
    }
    let terms: Vec<Term> = operands.iter().map(Term::from).collect();
    match parse(subscripts, &operands) {
        Ok((named, result)) => contract_all(named, &result, options, place),
        Err(mut fault) => {
            fault.message = format!("in {subscripts:?} {}", fault.message);
            operand::refuse(fault, "einsum", &terms, place)
        }
    }
}

impl From<&Array> for Term {
    fn from(a: &Array) -> Term {
        Term::Array(a.clone())
    }
}

/// Names of all dimensions, checked: as many as each operand has, one size for each.
fn parse(subscripts: &str, operands: &[Array]) -> Result<(Vec<Named>, Vec<char>), Fault> {
    let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, result) = text.split_once("->").map_or((text.as_str(), None), |(i, r)| (i, Some(r)));
    let shape = |m: String| Fault::new(ErrorKind::Shape, m);
    if let Some(c) =
        inputs.chars().chain(result.unwrap_or("").chars()).find(|c| !c.is_alphabetic() && *c != ',')
    {
        return Err(shape(format!("{c:?} does not name a dimension")).help(
            "letters name dimensions, `,` stands between operands, `->` before the result: \"bd,dh->bh\"",
        ));
    }
    let lists: Vec<Vec<char>> = inputs.split(',').map(|s| s.chars().collect()).collect();
    if lists.len() != operands.len() {
        return Err(shape(format!(
            "there are subscripts of {} operands, but {} operands",
            lists.len(),
            operands.len()
        ))
        .help("write the dimensions of each operand, with `,` between them"));
    }
    let mut sizes: Vec<(char, usize, (usize, usize))> = Vec::new();
    for (k, (names, array)) in lists.iter().zip(operands).enumerate() {
        let ty = array.type_ref().map_err(|_| shape("an operand carries an error".into()))?;
        if names.len() != ty.rank() {
            let list: String = names.iter().collect();
            return Err(shape(format!(
                "{list:?} names {} dimensions, but operand {k} has {}",
                names.len(),
                ty.rank()
            ))
            .help(format!("write {} letters for operand {k}", ty.rank())));
        }
        for (d, (c, n)) in names.iter().zip(ty.shape.iter()).enumerate() {
            match sizes.iter().find(|s| s.0 == *c) {
                Some((_, m, (j, e))) if m != n => {
                    return Err(shape(format!("{c} names dimensions of sizes {m} and {n}"))
                        .help("dimensions of one name have one size")
                        .dim(*j, *e)
                        .dim(k, d));
                }
                Some(_) => {}
                None => sizes.push((*c, *n, (k, d))),
            }
        }
    }
    let result: Vec<char> = match result {
        Some(r) => r.chars().collect(),
        None => {
            let mut once: Vec<char> = (sizes.iter().map(|s| s.0))
                .filter(|c| lists.iter().flatten().filter(|x| *x == c).count() == 1)
                .collect();
            once.sort_unstable();
            once
        }
    };
    for (i, c) in result.iter().enumerate() {
        if result[..i].contains(c) {
            return Err(
                shape(format!("the result names {c} twice")).help("name each dimension of the result once")
            );
        }
        if !sizes.iter().any(|s| s.0 == *c) {
            let known: String = sizes.iter().map(|s| s.0).collect();
            return Err(shape(format!("the result names {c}, which no operand has"))
                .help(format!("the operands' dimensions are {known:?}")));
        }
    }
    let named = lists.into_iter().zip(operands).map(|(names, a)| Named { array: a.clone(), names }).collect();
    Ok((named, result))
}

fn contract_all(mut named: Vec<Named>, result: &[char], options: ProductOptions, place: Place) -> Array {
    let ProductOptions { out, sums } = options;
    // one product makes its sums in an element type of its own; other sums, and what they meet, are of it from the start
    let one_product = named.len() == 2 && {
        let alone =
            |n: &Named, m: &Named| n.names.iter().any(|c| !m.names.contains(c) && !result.contains(c));
        let twice = named.iter().any(|n| twice(&n.names).is_some());
        !twice && !alone(&named[0], &named[1]) && !alone(&named[1], &named[0])
    };
    for n in &mut named {
        if let Some(dtype) = sums.filter(|_| !one_product) {
            n.array = n.array.convert_at(dtype, place);
        }
        if let Err(refused) = n.diagonals(place) {
            return refused;
        }
    }
    while named.len() > 1 {
        let last = named.len() == 2;
        let (i, j) = cheapest(&named, result);
        let b = named.remove(j);
        let a = named.remove(i);
        let kept: Vec<char> = result.iter().chain(named.iter().flat_map(|n| &n.names)).copied().collect();
        let to = if last { Some(result) } else { None };
        // where the result's sharding is said, steps on the way to it are not refused
        let how = match (last, out) {
            (true, out) => Out::As(out),
            (false, Some(_)) => Out::Any,
            (false, None) => Out::As(None),
        };
        let ab = a.contract(b, &kept, to, how, sums, place);
        named.insert(i, ab);
    }
    let Some(mut one) = named.pop() else {
        let fault = Fault::new(ErrorKind::Shape, "there are no operands").help("give at least one array");
        return operand::refuse(fault, "einsum", &[], place);
    };
    one.sum_out(|c| result.contains(&c), place);
    let perm: Vec<usize> = result.iter().filter_map(|c| one.names.iter().position(|x| x == c)).collect();
    let ordered = if perm.iter().copied().eq(0..perm.len()) {
        one.array
    } else {
        apply1(prims::transpose(&perm), &[one.array.into()], place)
    };
    match out {
        // what was not made by a product is moved to where it is wanted
        Some(spec) if !lies(&ordered, spec) => ordered.reshard_at(spec, place),
        _ => ordered,
    }
}

fn lies(x: &Array, spec: Spec) -> bool {
    x.type_ref().is_ok_and(|t| {
        let spec = spec.padded(t.rank());
        t.spec.dims() == spec.dims() && t.spec.unreduced_axes() == spec.unreduced_axes()
    })
}

/// The pair whose product takes the fewest multiplications; earlier ones where several do.
fn cheapest(named: &[Named], result: &[char]) -> (usize, usize) {
    let mut best = (f64::INFINITY, 0, 1);
    for i in 0..named.len() {
        for j in i + 1..named.len() {
            // the step itself, then what its result costs with the others
            let mut cost = volume(&[&named[i], &named[j]]);
            let others: Vec<&Named> =
                named.iter().enumerate().filter(|(k, _)| *k != i && *k != j).map(|(_, n)| n).collect();
            if !others.is_empty() {
                let needed = |c: &char| result.contains(c) || others.iter().any(|o| o.names.contains(c));
                let kept = sizes(&[&named[i], &named[j]]).into_iter().filter(|(c, _)| needed(c));
                let mut all: Vec<(char, usize)> = kept.collect();
                for (c, n) in sizes(&others) {
                    if !all.iter().any(|x| x.0 == c) {
                        all.push((c, n));
                    }
                }
                cost += all.iter().map(|x| x.1 as f64).product::<f64>();
            }
            if cost < best.0 {
                best = (cost, i, j);
            }
        }
    }
    (best.1, best.2)
}
fn sizes(named: &[&Named]) -> Vec<(char, usize)> {
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
fn volume(named: &[&Named]) -> f64 {
    sizes(named).iter().map(|x| x.1 as f64).product()
}

impl Named {
    fn size(&self, d: usize) -> usize {
        self.array.type_ref().map_or(1, |t| t.shape[d])
    }
    /// Takes the diagonal where a name stands twice.
    fn diagonals(&mut self, place: Place) -> Result<(), Array> {
        while let Some((i, j)) = twice(&self.names) {
            let Ok(ty) = self.array.type_ref() else { return Err(self.array.clone()) };
            if !ty.spec.is_whole() {
                let c = self.names[i];
                let fault =
                    Fault::new(ErrorKind::Sharding, format!("{c} takes the diagonal of a sharded operand"))
                        .help("reshard it first: `.reshard(p![])`")
                        .dim(0, i)
                        .dim(0, j);
                return Err(self.array.refuse("einsum", fault, place));
            }
            let index = |d| apply1(prims::iota(DType::I32.of(&ty.shape), d), &[], place);
            let on = index(i).eq(index(j));
            let kept = on.select(&self.array, self.array.zero_beside());
            self.array = apply1(prims::reduce(Reduction::Sum, &[i], None), &[kept.into()], place);
            self.names.remove(i);
        }
        Ok(())
    }
    /// Sums over the dimensions that nobody else has.
    fn sum_out(&mut self, kept: impl Fn(char) -> bool, place: Place) {
        let axes: Vec<usize> = (0..self.names.len()).filter(|d| !kept(self.names[*d])).collect();
        if !axes.is_empty() {
            self.array = apply1(prims::reduce(Reduction::Sum, &axes, None), &[(&self.array).into()], place);
            self.names.retain(|c| kept(*c));
        }
    }
    /// The product with another. `kept` are the names that are needed later, `to` the order of the result where it is the last one.
    fn contract(
        mut self,
        mut b: Named,
        kept: &[char],
        to: Option<&[char]>,
        out: Out,
        sums: Option<DType>,
        place: Place,
    ) -> Named {
        let (a_names, b_names) = (self.names.clone(), b.names.clone());
        self.sum_out(|c| kept.contains(&c) || b_names.contains(&c), place);
        b.sum_out(|c| kept.contains(&c) || a_names.contains(&c), place);
        let mut how = Contraction::default();
        let (mut batch, mut a_other, mut b_other) = (Vec::new(), Vec::new(), Vec::new());
        for (i, c) in self.names.iter().enumerate() {
            match b.names.iter().position(|x| x == c) {
                Some(j) if kept.contains(c) => {
                    how.batch.push((i, j));
                    batch.push(*c);
                }
                Some(j) => how.contracting.push((i, j)),
                None => a_other.push(*c),
            }
        }
        b_other.extend(b.names.iter().filter(|c| !self.names.contains(c)));
        let names: Vec<char> = batch.into_iter().chain(a_other).chain(b_other).collect();
        let order: Vec<char> = to.map_or_else(|| names.clone(), <[char]>::to_vec);
        let made: Vec<usize> = names.iter().filter_map(|c| order.iter().position(|x| x == c)).collect();
        let out = match out {
            Out::As(out) => out,
            Out::Any => Some(natural(&order, [&self, &b])),
        };
        let options = ProductOptions { out, sums };
        let array = self.array.contract_into(&b.array, &how, &made, to.is_none(), options, place);
        Named { array, names: order }
    }
}

/// How a product's result is to lie.
enum Out {
    /// As said, or by the rules.
    As(Option<Spec>),
    /// Somehow: the rules' answer where there is one, else any.
    Any,
}

/// A sharding for a step of an einsum: each dimension as an operand has it, no axis twice.
fn natural(order: &[char], operands: [&Named; 2]) -> Spec {
    let mut used: Vec<crate::Axis> = Vec::new();
    let mut dims = Vec::with_capacity(order.len());
    for c in order {
        let mut entries = operands.iter().filter_map(|n| {
            let d = n.names.iter().position(|x| x == c)?;
            Some(entry(n.array.type_ref().ok()?.spec, d))
        });
        let free = |axes: &Axes| !axes.is_empty() && axes.iter().all(|a| !used.contains(&a));
        let axes = entries.find(free).unwrap_or_default();
        used.extend(axes.iter());
        dims.push(axes);
    }
    Spec::of(dims)
}

fn twice(names: &[char]) -> Option<(usize, usize)> {
    (0..names.len()).find_map(|i| {
        let j = names[i + 1..].iter().position(|c| *c == names[i])?;
        Some((i, i + 1 + j))
    })
}

/// The axes of one dimension of a spec, none beyond its entries.
pub(crate) fn entry(spec: Spec, d: usize) -> Axes {
    spec.dims().get(d).cloned().unwrap_or_default()
}
