//! A user's own operation: letters say which dimensions it has, a kernel computes it line by line, a rule may say how cotangents go back.
//!
//! Dimensions that are *over* run over lines: the kernel sees one line at a time, so they may be sharded any way, and `vmap` adds to them. The
//! others are *along* a line, and needed whole.

mod kernel;
mod letters;
mod pullback;

pub(crate) use kernel::{Kernel, Own};
pub(crate) use letters::Letters;

use crate::diagnostic::{ErrorKind, Fault, Result, counted};
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Affine, Body, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{Back, Batch, Batched, Forward, Operand, Prim, Primitive, Program, Tangents, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use kernel::Lined;
use std::sync::Arc;

/// What the user said of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Declared {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its dimensions.
    pub(crate) letters: Letters,
    /// Those that run over lines.
    pub(crate) over: Vec<char>,
    /// Those that results are sums over.
    pub(crate) sums: Vec<char>,
    /// Sizes of those that no operand has.
    pub(crate) sizes: Vec<(char, usize)>,
    /// The operands' element types; none: any.
    pub(crate) takes: Vec<DType>,
    /// The results' element types; none: that of the first operand.
    pub(crate) returns: Vec<DType>,
    /// Nanoseconds that a line takes.
    pub(crate) cost: Option<Scalar>,
    /// What computes it.
    pub(crate) kernel: Kernel,
    /// How cotangents go back, if that is said.
    pub(crate) rule: Option<Own<dyn Rule>>,
}

/// How cotangents go back through an operation.
pub(crate) trait Rule: Send + Sync {
    /// A program of the operands, the results, and a cotangent of each result that is a float: a cotangent of each operand that is one.
    fn record(&self, of: &Custom, operands: &[ArrayType], results: &[ArrayType]) -> Result<Program>;
}

/// The operation, applied to so many examples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Custom {
    /// What it is.
    pub(crate) of: Arc<Declared>,
    /// Which operands have examples, for each `vmap` around it, the outermost first.
    pub(crate) lead: Vec<Vec<bool>>,
    /// The sharding asked for the result.
    pub(crate) out: Option<Spec>,
    /// Whether types track what varies over manual axes, where it is applied.
    pub(crate) checked: bool,
}

impl Declared {
    /// What is to be told of it beside its name: two that differ in this are two.
    fn text(&self) -> String {
        let mut parts = vec![self.letters.to_string()];
        if !self.over.is_empty() {
            parts.push(format!("over={}", self.over.iter().collect::<String>()));
        }
        if !self.sums.is_empty() {
            parts.push(format!("sums={}", self.sums.iter().collect::<String>()));
        }
        parts.extend(self.sizes.iter().map(|(c, n)| format!("{c}={n}")));
        if !self.returns.is_empty() {
            let returns: Vec<&str> = self.returns.iter().map(|d| d.name()).collect();
            parts.push(format!("returns={}", returns.join(",")));
        }
        parts.join(", ")
    }
}

/// The loops of an operation on certain operands.
#[derive(Default)]
struct Loops {
    sizes: Vec<usize>,
    /// How messages name each.
    names: Vec<String>,
    /// Which of them run over lines.
    over: Vec<bool>,
    /// Which of them results are sums over.
    sums: Vec<bool>,
    operands: Vec<Vec<usize>>,
    results: Vec<Vec<usize>>,
}

impl Custom {
    /// The loops, for operands that fit.
    fn loops(&self, operands: &[Operand]) -> Result<Loops, Fault> {
        let Declared { name, letters, over, sums, .. } = &*self.of;
        let shape = |text: String| Fault::new(ErrorKind::Shape, text);
        if operands.len() != letters.operands.len() {
            let (wanted, given) = (counted(letters.operands.len(), "operand"), operands.len());
            return Err(shape(format!("{name} is of {wanted}, `{letters}`, and there are {given}"))
                .help("give one array or number for each list of letters"));
        }
        let examples = |k: usize| self.lead.iter().filter(|m| m[k]).count();
        let mut dots = 0;
        for (k, (o, named)) in operands.iter().zip(&letters.operands).enumerate() {
            let (rank, told) = (o.ty.rank() - examples(k).min(o.ty.rank()), named.letters.len());
            if rank < told || rank > told && !named.dots {
                let least = if named.dots { "at least " } else { "" };
                return Err(shape(format!(
                    "operand {} of {name} has {}, and `{named}` is of {least}{told}",
                    o.number(k),
                    counted(rank, "dimension")
                ))
                .help("give it an array of these dimensions, or write other letters"));
            }
            dots = dots.max(rank - told);
        }
        let mut l = Loops::default();
        let mut known: Vec<Option<(usize, usize)>> = Vec::new();
        let mut chars: Vec<char> = Vec::new();
        let fixed = self.lead.len() + dots;
        for k in 0..fixed {
            l.names.push(if k < self.lead.len() { "the examples".into() } else { "`...`".into() });
            l.over.push(true);
            l.sums.push(false);
        }
        for c in letters.operands.iter().chain(&letters.results).flat_map(|n| &n.letters) {
            if !chars.contains(c) {
                chars.push(*c);
                l.names.push(format!("`{c}`"));
                l.over.push(over.contains(c));
                l.sums.push(sums.contains(c));
            }
        }
        l.sizes = vec![0; l.names.len()];
        known.resize(l.names.len(), None);
        let place = |c: &char| fixed + chars.iter().position(|k| k == c).unwrap_or(0);
        for (k, (o, named)) in operands.iter().zip(&letters.operands).enumerate() {
            let lead = (0..self.lead.len()).filter(|e| self.lead[*e][k]);
            let own = o.ty.rank() - named.letters.len() - examples(k);
            let all = lead.chain(fixed - own..fixed).chain(named.letters.iter().map(place));
            let all: Vec<usize> = all.collect();
            for (d, at) in all.iter().enumerate() {
                let n = o.ty.shape[d];
                match known[*at] {
                    Some((j, e)) if l.sizes[*at] != n => {
                        let (one, two) = (o.dimension(k, d), operands[j].dimension(j, e));
                        return Err(shape(format!(
                            "{one} of {name} has size {n}, and {two} has {}: both are {}",
                            l.sizes[*at], l.names[*at]
                        ))
                        .help("give operands that agree, or write another letter for one of the dimensions")
                        .dim(k, d)
                        .dim(j, e));
                    }
                    Some(_) => {}
                    None => (l.sizes[*at], known[*at]) = (n, Some((k, d))),
                }
            }
            l.operands.push(all);
        }
        for (c, n) in &self.of.sizes {
            l.sizes[place(c)] = *n;
        }
        for named in &letters.results {
            l.results.push((0..fixed).chain(named.letters.iter().map(place)).collect());
        }
        Ok(l)
    }
    fn loops_of(&self, operands: &[ArrayType]) -> Loops {
        let operands: Vec<Operand> = operands.iter().cloned().map(Operand::from).collect();
        self.loops(&operands).expect("called after `shapes` accepted the operands")
    }
    fn returns(&self, k: usize, operands: &[DType]) -> DType {
        self.of.returns.get(k).copied().unwrap_or(operands[0])
    }
}

impl Primitive for Custom {
    fn name(&self) -> &'static str {
        self.of.name
    }
    fn params(&self) -> String {
        let out = self.out.map(|o| format!(", out={o}")).unwrap_or_default();
        self.of.text() + &out
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let l = self.loops(operands)?;
        let dtypes: Vec<DType> = operands.iter().map(|o| o.ty.dtype).collect();
        for (k, (o, dtype)) in operands.iter().zip(&dtypes).enumerate() {
            let takes = self.of.takes.get(k).copied().unwrap_or(*dtype);
            if takes != *dtype || *dtype == DType::Key {
                let (why, help) = match dtype {
                    DType::Key => (
                        "kernels see numbers only".to_string(),
                        "draw from it first: `key.normal([n])`".to_string(),
                    ),
                    _ => (format!("it takes {takes}"), format!("convert it first: `.astype({takes:?})`")),
                };
                let text = format!("operand {} of {} is {dtype}, and {why}", o.number(k), self.of.name);
                return Err(Fault::new(ErrorKind::Dtype, text)
                    .help(help)
                    .mark(k, crate::diagnostic::Spot::Dtype));
            }
        }
        let made = |(k, dims): (usize, &Vec<usize>)| {
            (self.returns(k, &dtypes), dims.iter().map(|d| l.sizes[*d]).collect())
        };
        let added = |k: &usize| self.returns(*k, &dtypes).is_number();
        if let Some(k) = (0..l.results.len()).find(|k| !self.of.sums.is_empty() && !added(k)) {
            let dtype = self.returns(k, &dtypes);
            let text = format!("result {k} of {} is a sum, and {dtype} is no number", self.of.name);
            return Err(Fault::new(ErrorKind::Dtype, text)
                .help("say that it is of numbers, `.returns([…])`, or leave out `.sums_over(…)`"));
        }
        Ok(l.results.iter().enumerate().map(made).collect())
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let l = self.loops_of(operands);
        let mut f = Factors::over(&l.sizes);
        for ((own, over), sums) in f.loops.iter_mut().zip(&l.over).zip(&l.sums) {
            own.whole = !over && !sums;
        }
        let each = |all: Vec<Vec<usize>>| all.into_iter().map(Dim::each).collect();
        (f.operands, f.results) = (each(l.operands), each(l.results));
        f
    }
    fn linearity(&self) -> Linearity {
        if self.of.sums.is_empty() { Linearity::None } else { Linearity::Sums }
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, at: Forward<'_>) -> Result<Tangents> {
        self.push_forward(at)
    }
    fn transpose(&self, _: Back<'_>) -> Result<Tangents> {
        Err(crate::ops::build::not_linear(self.of.name))
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let lead = inserted(&self.lead, 0, batch.mapped.to_vec());
        Batched::of(Arc::new(Custom { lead, out: batch.out(self.out, 0), ..self.clone() }))
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let l = self.loops_of(operands);
        let along: Vec<usize> =
            (0..l.sizes.len()).filter(|k| !l.over[*k] && l.operands.iter().any(|o| o.contains(k))).collect();
        let within = |dims: &[usize]| dims.iter().filter_map(|d| along.iter().position(|a| a == d)).collect();
        let line = |dims: &Vec<usize>| dims.iter().filter(|d| !l.over[**d]).map(|d| l.sizes[*d]).collect();
        let of = Arc::new(Lined {
            of: self.of.clone(),
            axes: l.operands.iter().map(|o| within(o)).collect(),
            along: along.len(),
            sums: (0..along.len()).filter(|a| l.sums[along[*a]]).collect(),
            results: results
                .iter()
                .zip(&l.results)
                .map(|(ty, dims)| (ty.dtype.storage(), line(dims)))
                .collect(),
        });
        let sentence = |(k, ty): (usize, &ArrayType)| {
            let (dims, rank) = (&l.results[k], ty.rank());
            let mut extents = ty.shape.to_vec();
            extents.extend(along.iter().map(|a| l.sizes[*a]));
            let read = |(k, o): (usize, &ArrayType)| {
                let at = |d: &usize| match along.iter().position(|a| a == d) {
                    Some(a) => Affine::of(0, rank + a, 1),
                    None => {
                        let over = dims.iter().position(|r| r == d);
                        Affine::of(0, over.expect("what runs over lines is in each result"), 1)
                    }
                };
                let map = l.operands[k].iter().map(at).collect();
                let dtype = o.dtype.storage();
                let part = Part { from: Source::Value(k), span: Span::whole(&extents), map };
                Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) }
            };
            let reads = operands.iter().enumerate().map(read).collect();
            let along = (0..rank).filter(|d| !l.over[dims[*d]]).collect();
            let body = Body::Lines(Lines { of: of.clone(), result: k, along });
            Sentence { extents, rank, dtype: ty.dtype.storage(), reads, body }
        };
        results.iter().enumerate().map(sentence).collect()
    }
}
