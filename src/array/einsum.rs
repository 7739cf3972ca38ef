//! Sums of products by named indices: einsum, product by product in the cheapest order.

use super::operand::{self, Term};
use super::products::{Contraction, ProductOptions};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Place};
use crate::mesh::Axes;
use crate::ops::reduce::Reduction;
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison, told};
use crate::types::DType;
use std::borrow::Borrow;
use std::panic::Location;

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
            Some(Axes::from(n.array.type_ref().ok()?.spec.dim(d)))
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
