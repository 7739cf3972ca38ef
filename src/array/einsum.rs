//! Sums of products by named indices: einsum, product by product in the cheapest order.

use super::operand::{self, Term};
use super::products::{Contraction, ProductOptions};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, Axis};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::program::{Call, Source};
use crate::sharding::Spec;
use crate::sorted;
use crate::trace::{apply1, carried, poison};
use crate::types::DType;
use std::borrow::Borrow;

/// Sums of products by named indices: `einsum("bd,dh->bh", [&x, &w])`. Without `->` the result has the indices that occur once, in
/// alphabetical order, behind those of `...`.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(einsum("ij,kj->ik", [&x, &x]).to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// assert_eq!(einsum("ii->", [&x]).item::<f32>()?, 5.0);
/// // `...` is any number of dimensions, which are aligned at the end; sizes of 1 are repeated
/// let y = Array::ones([3, 1, 2]);
/// assert_eq!(type_of(einsum("...i,ji->...j", [&y, &x])), "float32[3,1,2]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum<A: Borrow<Array>>(subscripts: &str, operands: impl IntoIterator<Item = A>) -> Array {
    let call = Call::here("einsum").twin("einsum_to(…, {})");
    einsum_at(subscripts, operands, ProductOptions::default(), call)
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
    einsum_at(subscripts, operands, ProductOptions::lying(Some(out)), Call::here("einsum_to"))
}

/// [`einsum`], the result's sharding and the sums' element type chosen.
///
/// ```
/// use atmesh::{ProductOptions, einsum_with, prelude::*};
/// let x = Array::ones(BF16.of([4, 1000]));
/// let in_f32 = ProductOptions::default().sums(F32);
/// assert_eq!(einsum_with("ij,ij->i", [&x, &x], in_f32).to_vec::<f32>()?, [1000.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn einsum_with<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    options: ProductOptions,
) -> Array {
    let call = Call::here("einsum_with").twin("einsum_with(…, how.out({}))");
    einsum_at(subscripts, operands, options, call)
}

/// An operand of an einsum with the names of its dimensions.
struct Named {
    array: Array,
    names: Vec<char>,
    /// The number of the user's operand that it is made of, and the dimensions of that which are left; `None` for a product.
    from: Option<(usize, Vec<usize>)>,
}

fn einsum_at<A: Borrow<Array>>(
    subscripts: &str,
    operands: impl IntoIterator<Item = A>,
    options: ProductOptions,
    call: Call<'_>,
) -> Array {
    let operands: Vec<Array> = operands.into_iter().map(|a| a.borrow().clone()).collect();
    if let Some(error) = carried(operands.iter()) {
        return poison(error);
    }
    let terms: Vec<Term> = operands.iter().map(Term::from).collect();
    match parse(subscripts, &operands, call) {
        Ok((named, result)) => contract_all(named, &result, &terms, options, call),
        Err(mut fault) => {
            fault.message = format!("in {subscripts:?} {}", fault.message);
            operand::refuse(fault, &terms, call)
        }
    }
}

/// The names of all dimensions, checked: as many as each operand has, one size for each; and those of the result.
fn parse(subscripts: &str, operands: &[Array], call: Call<'_>) -> Result<(Vec<Named>, Vec<char>), Fault> {
    let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, result) = text.split_once("->").map_or((text.as_str(), None), |(i, r)| (i, Some(r)));
    let lists: Vec<&str> = inputs.split(',').collect();
    for list in lists.iter().copied().chain(result) {
        letters_and_dots(list)?;
    }
    if lists.len() != operands.len() {
        return Err(shape(format!(
            "there are subscripts of {} operands, but {} operands",
            lists.len(),
            operands.len()
        ))
        .help("write the dimensions of each operand, with `,` between them"));
    }
    let mut named = Vec::with_capacity(operands.len());
    for (k, (list, array)) in lists.iter().zip(operands).enumerate() {
        let rank = array.type_ref().map_err(|_| shape("an operand carries an error".into()))?.rank();
        let names = written_out(list, rank, k)?;
        named.push(Named { array: array.clone(), names, from: Some((k, (0..rank).collect())) });
    }
    let sizes = one_size_each(&mut named, call)?;
    let under_dots = sizes.iter().map(|s| s.0).filter(|c| *c >= UNDER_DOTS);
    let mut dots: Vec<char> = under_dots.collect();
    sorted::sort_by(&mut dots, |a, b| b.cmp(a));
    let result: Vec<char> = match result {
        Some(r) => match r.split_once("...") {
            Some((before, behind)) => before.chars().chain(dots).chain(behind.chars()).collect(),
            None => r.chars().collect(),
        },
        None => {
            let mut once: Vec<char> =
                inputs.chars().filter(|c| c.is_alphabetic() && inputs.matches(*c).count() == 1).collect();
            sorted::sort(&mut once);
            [dots, once].concat()
        }
    };
    for (i, c) in result.iter().enumerate() {
        if result[..i].contains(c) {
            return Err(
                shape(format!("the result names {c} twice")).help("name each dimension of the result once")
            );
        }
        if !sizes.iter().any(|s| s.0 == *c) {
            let known: String = sizes.iter().map(|s| s.0).filter(|c| *c < UNDER_DOTS).collect();
            return Err(shape(format!("the result names {c}, which no operand has"))
                .help(format!("the operands' dimensions are {known:?}")));
        }
    }
    Ok((named, result))
}

fn shape(message: String) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// The name of the last dimension under `...`; those before it have the next ones. They are not letters.
const UNDER_DOTS: char = '\u{e000}';

/// The name of the `i`-th dimension from the end of those under `...`.
fn under_dots(i: usize) -> Option<char> {
    char::from_u32(UNDER_DOTS as u32 + u32::try_from(i).ok()?)
}

/// Checks that a list names dimensions by letters, and has `...` once at most.
fn letters_and_dots(list: &str) -> Result<(), Fault> {
    let letters: String = list.splitn(2, "...").collect();
    match letters.chars().find(|c| !c.is_alphabetic()) {
        None => Ok(()),
        Some(c) => Err(shape(format!("{c:?} does not name a dimension")).help(
            "letters name dimensions, `...` is all others, `,` separates operands, `->` before the result: \"bd,dh->bh\"",
        )),
    }
}

/// The names of the dimensions of operand `k`, those under `...` too.
fn written_out(list: &str, rank: usize, k: usize) -> Result<Vec<char>, Fault> {
    let letters = list.chars().filter(|c| c.is_alphabetic()).count();
    let dots = list.split_once("...");
    if letters > rank || letters < rank && dots.is_none() {
        let least = if dots.is_some() { "at least " } else { "" };
        return Err(shape(format!("{list:?} names {least}{letters} dimensions, but operand {k} has {rank}"))
            .help(format!("write {rank} letters for operand {k}")));
    }
    let Some((before, behind)) = dots else { return Ok(list.chars().collect()) };
    let between = (0..rank - letters).rev().filter_map(under_dots);
    Ok(before.chars().chain(between).chain(behind.chars()).collect())
}

/// Checks that dimensions of one name have one size, and drops those of size 1 that are repeated to others'. Returns the sizes.
fn one_size_each(named: &mut [Named], call: Call<'_>) -> Result<Vec<(char, usize)>, Fault> {
    let mut sizes: Vec<(char, usize, (usize, usize))> = Vec::new();
    for (k, n) in named.iter().enumerate() {
        for (d, &c) in n.names.iter().enumerate() {
            let size = n.size(d);
            match sizes.iter_mut().find(|s| s.0 == c) {
                None => sizes.push((c, size, (k, d))),
                Some(s) if s.1 == size || size == 1 => {}
                Some(s) if s.1 == 1 => *s = (c, size, (k, d)),
                Some((_, m, (j, e))) => {
                    let c = if c < UNDER_DOTS { c.to_string() } else { "`...`".into() };
                    return Err(shape(format!("{c} names dimensions of sizes {m} and {size}"))
                        .help("dimensions of one name have one size, or 1")
                        .dim(*j, *e)
                        .dim(k, d));
                }
            }
        }
    }
    let sizes: Vec<(char, usize)> = sizes.into_iter().map(|(c, n, _)| (c, n)).collect();
    for n in named {
        let one = |d: &usize| n.size(*d) == 1 && sizes.iter().any(|s| s.0 == n.names[*d] && s.1 != 1);
        let ones: Vec<usize> = (0..n.names.len()).filter(one).collect();
        n.array = n.array.without(&ones, call);
        n.keep(|d, _| !ones.contains(&d));
    }
    Ok(sizes)
}

fn contract_all(
    mut named: Vec<Named>,
    result: &[char],
    terms: &[Term],
    options: ProductOptions,
    call: Call<'_>,
) -> Array {
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
            n.array = n.array.convert_at(dtype, call);
        }
        if let Err(refused) = n.diagonals(terms, call) {
            return refused;
        }
    }
    let product = named.len() > 1;
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
        // a product comes behind what is left
        let step = if last { call } else { call.step() };
        named.push(a.contract(b, &kept, to, Wish { out: how, sums }, terms, step));
    }
    let Some(mut one) = named.pop() else {
        let fault = Fault::new(ErrorKind::Shape, "there are no operands").help("give at least one array");
        return operand::refuse(fault, &[], call);
    };
    one.sum_out(|c| result.contains(&c), call);
    let perm: Vec<usize> = result.iter().filter_map(|c| one.names.iter().position(|x| x == c)).collect();
    let ordered = if perm.iter().copied().eq(0..perm.len()) {
        one.array
    } else {
        apply1(prims::transpose(&perm), &[one.array.into()], call)
    };
    match out {
        // what was not made by a product is moved to where it is wanted
        Some(spec) if !product && !lies(&ordered, spec) => ordered.reshard_at(spec, call),
        _ => ordered,
    }
}

fn lies(x: &Array, spec: Spec) -> bool {
    x.type_ref().is_ok_and(|t| {
        let spec = spec.padded(t.rank());
        t.spec.dims() == spec.dims() && t.spec.unreduced_axes() == spec.unreduced_axes()
    })
}

/// The pair whose product, with what its result costs with the others, takes the fewest multiplications and additions; earlier ones where
/// several do.
fn cheapest(named: &[Named], result: &[char]) -> (usize, usize) {
    let mut best = (f64::INFINITY, 0, 1);
    for i in 0..named.len() {
        for j in i + 1..named.len() {
            let (a, b) = (&named[i], &named[j]);
            let others: Vec<&Named> =
                named.iter().enumerate().filter(|(k, _)| *k != i && *k != j).map(|(_, n)| n).collect();
            let needed = |c: &char| result.contains(c) || others.iter().any(|o| o.names.contains(c));
            let mut cost = operations(sizes(&[a, b]), |c| shared(a, b, c) && !needed(&c));
            if !others.is_empty() {
                let mut all: Vec<(char, usize)> =
                    sizes(&[a, b]).into_iter().filter(|(c, _)| needed(c)).collect();
                let rest = sizes(&others);
                let summed = all.iter().any(|(c, _)| !result.contains(c));
                all.extend(rest.into_iter().filter(|(c, _)| !a.names.contains(c) && !b.names.contains(c)));
                cost += operations(all, |_| summed);
            }
            if cost < best.0 {
                best = (cost, i, j);
            }
        }
    }
    (best.1, best.2)
}
fn shared(a: &Named, b: &Named, name: char) -> bool {
    a.names.contains(&name) && b.names.contains(&name)
}
/// How many multiplications a product over these dimensions takes, and as many additions where one of them is summed.
fn operations(dims: Vec<(char, usize)>, summed: impl Fn(char) -> bool) -> f64 {
    let ways = if dims.iter().any(|(c, _)| summed(*c)) { 2.0 } else { 1.0 };
    dims.iter().map(|x| x.1 as f64).product::<f64>() * ways
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

impl Named {
    fn size(&self, d: usize) -> usize {
        self.array.type_ref().map_or(1, |t| t.shape[d])
    }
    /// Keeps these dimensions (by number and name) of what says which is which.
    fn keep(&mut self, kept: impl Fn(usize, char) -> bool) {
        let left: Vec<usize> = (0..self.names.len()).filter(|d| kept(*d, self.names[*d])).collect();
        self.names = left.iter().map(|d| self.names[*d]).collect();
        if let Some((_, dims)) = &mut self.from {
            *dims = left.iter().map(|d| dims[*d]).collect();
        }
    }
    /// Takes the diagonal where a name appears twice.
    fn diagonals(&mut self, terms: &[Term], call: Call<'_>) -> Result<(), Array> {
        while let Some((i, j)) = twice(&self.names) {
            let Ok(ty) = self.array.type_ref() else { return Err(self.array.clone()) };
            if !ty.spec.is_whole() {
                let c = self.names[i];
                let (number, dims) =
                    self.from.as_ref().map_or((0, [i, j]), |(k, dims)| (*k, [dims[i], dims[j]]));
                let message = format!("{c} takes the diagonal of operand {number}, which is sharded");
                let fault = Fault::new(ErrorKind::Sharding, message)
                    .help(format!("reshard operand {number}: `.reshard(p![])`"))
                    .dim(number, dims[0])
                    .dim(number, dims[1]);
                return Err(operand::refuse(fault, terms, call));
            }
            let index = |d| apply1(prims::iota(DType::I32.of(&ty.shape), d), &[], call);
            let on = index(i).with(Binary::Eq, index(j), call);
            let kept = on.select_at(Term::from(&self.array), self.array.zero_beside(call), call);
            self.array = apply1(prims::reduce(Reduction::Sum, &[i], None), &[kept.into()], call);
            self.keep(|d, _| d != i);
        }
        Ok(())
    }
    /// What it is to the user.
    fn source<'a>(&'a self, terms: &'a [Term]) -> Option<Source<'a>> {
        let (number, dims) = self.from.as_ref()?;
        let Term::Array(array) = &terms[*number] else { return None };
        Some(Source { number: *number, ty: array.type_ref().ok(), dims: Some(dims) })
    }
    /// The axes over which the dimension of this name is split.
    fn axes(&self, name: char) -> Option<Axes> {
        let d = self.names.iter().position(|c| *c == name)?;
        Some(Axes::from(self.array.type_ref().ok()?.spec.dim(d)))
    }
    /// Sums over the dimensions that nobody else has.
    fn sum_out(&mut self, kept: impl Fn(char) -> bool, call: Call<'_>) {
        let axes: Vec<usize> = (0..self.names.len()).filter(|d| !kept(self.names[*d])).collect();
        if !axes.is_empty() {
            self.array = apply1(prims::reduce(Reduction::Sum, &axes, None), &[(&self.array).into()], call);
            self.keep(|_, c| kept(c));
        }
    }
    /// The product with another. `kept` are the names that are needed later, `to` the order of the result where it is the last one.
    fn contract(
        mut self,
        mut b: Named,
        kept: &[char],
        to: Option<&[char]>,
        wish: Wish,
        terms: &[Term],
        call: Call<'_>,
    ) -> Named {
        let (a_names, b_names) = (self.names.clone(), b.names.clone());
        self.sum_out(|c| kept.contains(&c) || b_names.contains(&c), call);
        b.sum_out(|c| kept.contains(&c) || a_names.contains(&c), call);
        let both = |c: &char| a_names.contains(c) && b_names.contains(c);
        let of = |n: &Named| n.names.iter().copied().filter(|c| !both(c)).collect::<Vec<char>>();
        // a step's result has its dimensions in the order in which they are found, the later operand's first
        let found = || {
            let mut all = b.names.clone();
            all.extend(self.names.iter().filter(|c| !both(c)));
            all.retain(|c| kept.contains(c));
            all
        };
        let order: Vec<char> = to.map_or_else(found, <[char]>::to_vec);
        let batch: Vec<char> = order.iter().copied().filter(both).collect();
        let product = |a: &Named, b: &Named| [batch.clone(), of(a), of(b)].concat();
        // A product has the left operand's entries where dimensions run together. The left one is the later one where its order does not
        // come out without a transpose; this shows only where the entries differ.
        let differ = || batch.iter().any(|c| self.axes(*c) != b.axes(*c));
        let turned = product(&self, &b) != order && (to.is_none() || differ());
        let (a, b) = if turned { (b, self) } else { (self, b) };
        let at = |n: &Named, c: char| n.names.iter().position(|x| *x == c);
        let pair = |c: &char| Some((at(&a, *c)?, at(&b, *c)?));
        let how = Contraction {
            contracting: a.names.iter().filter(|c| !batch.contains(c)).filter_map(pair).collect(),
            batch: batch.iter().filter_map(pair).collect(),
        };
        let names = product(&a, &b);
        let made: Vec<usize> = names.iter().filter_map(|c| order.iter().position(|x| x == c)).collect();
        let out = match wish.out {
            Out::As(out) => out,
            Out::Any => Some(natural(&order, [&a, &b])),
        };
        let options = ProductOptions { out, sums: wish.sums };
        let told = || operand::described(terms);
        let array = match (a.source(terms), b.source(terms)) {
            (Some(x), Some(y)) => {
                a.array.contract_into(&b.array, &how, &made, options, call.on(&told, &[x, y]))
            }
            _ => a.array.contract_into(&b.array, &how, &made, options, call),
        };
        Named { array, names: order, from: None }
    }
}

/// What is asked of a product.
struct Wish {
    out: Out,
    /// The element type of its sums.
    sums: Option<DType>,
}

/// Which sharding a product's result has.
enum Out {
    /// As said, or by the rules.
    As(Option<Spec>),
    /// Somehow: the rules' answer where there is one, else any.
    Any,
}

/// A sharding for a step of an einsum: each dimension as an operand has it, no axis twice.
fn natural(order: &[char], operands: [&Named; 2]) -> Spec {
    let mut used: Vec<Axis> = Vec::new();
    let mut dims = Vec::with_capacity(order.len());
    for c in order {
        let mut entries = operands.iter().filter_map(|n| n.axes(*c));
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
