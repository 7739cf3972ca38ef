//! Kernels as values: sentences of a small language of reads, elementwise code, folds and products.
//!
//! A [`Sentence`] says what one result is, element by element, over a box of loop indices: the result's dimensions first, then
//! the loops that are summed or folded. Each operand is a [`Read`]: disjoint parts, each an affine map from loop
//! indices to positions of a stored value. Structural operations (slice, pad, concatenate, transpose, broadcast, update) are reads only,
//! so they compose and need no kernel. `runtime` runs sentences; nothing here knows of threads or memory.

use super::Line;
pub use super::bound::{Beyond, Bound};
use crate::types::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// What one result of an equation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    /// The sizes of the loops: the result's dimensions, then those folded away.
    pub extents: Vec<usize>,
    /// How many of the loops are dimensions of the result.
    pub rank: usize,
    /// The element type of the result.
    pub dtype: DType,
    /// What is read.
    pub reads: Vec<Read>,
    /// What is done with it.
    pub body: Body,
}

/// An operand of a sentence, as a function of the loop indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The element type of what is read.
    pub dtype: DType,
    /// Disjoint parts of the space of loop indices.
    pub parts: Vec<Part>,
    /// The value where there is no part.
    pub fill: Scalar,
}

/// One part of a read: a box of loop indices, and where it reads.
///
/// It is where its span covers the index and its map is inside what it reads; elsewhere the read is its fill. So windows have
/// padding: where positions are made of two loops (a window's and a step within it), some of them may be outside. A position of one
/// loop is inside wherever the span covers: there the span says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What is read.
    pub from: Source,
    /// For each loop, where the part begins, where it ends, and every which step it covers.
    pub span: Vec<Span>,
    /// For each dimension of what is read, the position as a function of the loop indices.
    pub map: Vec<Affine>,
}

/// The steps `lo, lo+step, …` below `hi` of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First step.
    pub lo: i64,
    /// End (not included).
    pub hi: i64,
    /// Every which step: 1 but behind an interior pad.
    pub step: i64,
}

/// What a part reads: operand k of the equation (in a per-device program: a slot), or a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// An operand or slot by number.
    Value(usize),
    /// The same number everywhere.
    Const(Scalar),
}

/// The position `at + Σ coefficient · k` where k = (index − lo) / step of the part's span.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Affine {
    /// The position where all k are 0.
    pub at: i64,
    /// Loops and coefficients (possibly negative); a loop in no map of a part is broadcast.
    pub terms: SmallVec<[(usize, i64); 2]>,
}

/// What is done with the reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Each element is `code` of the reads at its index.
    Map(Code),
    /// `code` at every index, combined over the loops beyond the rank.
    Fold {
        /// How.
        combine: Combine,
        /// What is combined.
        code: Code,
    },
    /// The sum over the loops beyond the rank of reads 0 and 1 multiplied.
    Product {
        /// The element type of the sums.
        accumulate: DType,
    },
    /// Whole lines through a function. The loops beyond the rank run along what goes in.
    Lines(Lines),
    /// Read 0 at the one step that each loop beyond the rank has: it is bound to a number. Where nothing is there: the fill of read 0.
    Take {
        /// The loops beyond the rank, each once.
        at: Vec<Bound>,
    },
    /// Read 0, which is what was there, with read 1 written over it, or combined with it, at bound loops of the result. Read 1 runs over
    /// the loops beyond the rank too; several steps that meet one element do so in the row-major order of these loops.
    Put {
        /// Loops of the result.
        at: Vec<Bound>,
        /// How; nothing: the last one stays.
        combine: Option<Combine>,
    },
    /// Read 0's source with another shape, in the same linear order; the read has one part, which spans all loops and whose map (all
    /// zeros) says no more than the rank of what is read.
    Reshape,
}

/// A function of whole lines, and which loops run along them.
///
/// Several results of one function are sentences with the same reads, of which each names another `result`.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The function.
    pub of: Arc<dyn Line>,
    /// Which of its results this is.
    pub result: usize,
    /// The loops of the result that run along what comes out of a line, in the function's order; its other loops run over lines. No
    /// read depends on these.
    pub along: SmallVec<[usize; 2]>,
}

/// Functions are equal when their keys are.
impl PartialEq for Lines {
    fn eq(&self, other: &Lines) -> bool {
        self.result == other.result && self.along == other.along && self.of.key() == other.of.key()
    }
}

/// How folded values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Combine {
    Add,
    Mul,
    /// NaN where any is NaN.
    Max,
    /// NaN where any is NaN.
    Min,
    And,
    Or,
    /// All are promised to be the same: the first. Nothing is to be combined, and no operation of a program does it: it is how results of unchecked
    /// per-device code become one value.
    Same,
}

/// Straight-line elementwise code: each instruction makes one value, the last one is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// The instructions, in order.
    pub insts: Vec<Inst>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it computes.
    pub fun: Fun,
    /// The element type of its operands (of the values, for select).
    pub from: DType,
    /// The element type of what it makes.
    pub dtype: DType,
    /// Its operands.
    pub args: SmallVec<[Arg; 3]>,
}

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A read of the sentence.
    Read(usize),
    /// An earlier instruction.
    Inst(usize),
    /// A number.
    Const(Scalar),
    /// The global index of a loop, as int64 whatever `from` says.
    Index(usize),
}

/// Elementwise functions. Integer arithmetic wraps; floats of 16 bits are computed in float32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "most names say it; the others are commented")]
pub enum Fun {
    /// The operand itself.
    Copy,
    /// The operand as another element type (`from` → `dtype`): floats are cut towards zero, to bool is `!= 0`.
    Convert,
    /// The operand's bits as another element type of the same width.
    Bitcast,
    Neg,
    /// Of a complex number z/|z|.
    Sign,
    /// Of a complex number its modulus, a float.
    Abs,
    Floor,
    Ceil,
    /// Halves away from zero.
    Round,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Sqrt,
    Rsqrt,
    Cbrt,
    Logistic,
    Erf,
    ErfInv,
    IsFinite,
    /// The real part of a complex number.
    Real,
    /// The imaginary part of a complex number.
    Imag,
    Conj,
    /// Bitwise; logical on bool.
    Not,
    Add,
    Sub,
    Mul,
    /// Integers: towards zero.
    Div,
    /// With the dividend's sign.
    Rem,
    /// NaN where any is NaN. Of complex numbers by their real parts, then by their imaginary ones.
    Max,
    /// As `Max`.
    Min,
    Pow,
    Atan2,
    NextAfter,
    /// The complex number of two parts.
    Complex,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRightLogical,
    ShiftRightArithmetic,
    /// args: a bool, then what is taken where it holds, then what else.
    Select,
    /// The 20-round threefry hash: args are a key and a counter (high word, low word in its upper and lower halves), all uint64;
    /// the result's lower half is the first output word, its upper half the second.
    Threefry,
}

/// What stages decide by a body, by the reason: a new body is answered for here, and nowhere else but where it is run and printed.
impl Body {
    /// Whether each read says by its maps which elements it needs at which indices: then what a part of the loops reads is known, reads
    /// of views compose, and boxes are fetched. A reshape goes by the linear order.
    pub(crate) fn reads_by_position(&self) -> bool {
        match self {
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) => true,
            Body::Take { .. } | Body::Put { .. } => true,
            Body::Reshape => false,
        }
    }
    /// Whether it is what it reads by another name: nothing is computed, and it is held as that is.
    pub(crate) fn renames(&self) -> bool {
        match self {
            Body::Reshape => true,
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) => false,
            Body::Take { .. } | Body::Put { .. } => false,
        }
    }
    /// Whether its loops may come in another order, its result with them.
    pub(crate) fn may_permute(&self) -> bool {
        match self {
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) | Body::Take { .. } => {
                true
            }
            // what was there is found in its own order
            Body::Reshape | Body::Put { .. } => false,
        }
    }
    /// What makes each element of those at its own index alone, if it is so: it may run wherever they are.
    pub(crate) fn elementwise(&self) -> Option<&Code> {
        match self {
            Body::Map(code) => Some(code),
            Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) | Body::Reshape => None,
            Body::Take { .. } | Body::Put { .. } => None,
        }
    }
    /// Whether each read must be one block that covers all loops, not pieces of several values.
    pub(crate) fn reads_blocks(&self) -> bool {
        match self {
            Body::Product { .. } | Body::Lines(_) | Body::Take { .. } | Body::Put { .. } => true,
            Body::Map(_) | Body::Fold { .. } | Body::Reshape => false,
        }
    }
    /// Whether its loops beyond the rank are contracted dimensions.
    pub(crate) fn contracts(&self) -> bool {
        match self {
            Body::Product { .. } => true,
            Body::Map(_) | Body::Fold { .. } | Body::Lines(_) | Body::Reshape => false,
            Body::Take { .. } | Body::Put { .. } => false,
        }
    }
    /// Whether of the parts of a result one has each element, and the others nothing: they are put together, whatever combines them.
    pub(crate) fn finds(&self) -> bool {
        match self {
            Body::Take { .. } => true,
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) => false,
            Body::Reshape | Body::Put { .. } => false,
        }
    }
    /// The loops of the result that run along what comes out of lines.
    pub(crate) fn along(&self) -> &[usize] {
        match self {
            Body::Lines(lines) => &lines.along,
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Reshape => &[],
            Body::Take { .. } | Body::Put { .. } => &[],
        }
    }
    /// The loops that have one step, where a number says.
    pub fn bound(&self) -> &[Bound] {
        match self {
            Body::Take { at } | Body::Put { at, .. } => at,
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) | Body::Reshape => &[],
        }
    }
    /// Renames the loops that it names: loop l becomes loop `to(l)`.
    pub(crate) fn rename(&mut self, to: impl Fn(usize) -> usize) {
        match self {
            Body::Map(code) | Body::Fold { code, .. } => {
                for arg in code.insts.iter_mut().flat_map(|i| &mut i.args) {
                    if let Arg::Index(l) = arg {
                        *l = to(*l);
                    }
                }
            }
            Body::Lines(lines) => lines.along.iter_mut().for_each(|l| *l = to(*l)),
            Body::Take { at } | Body::Put { at, .. } => at.iter_mut().for_each(|b| b.rename(&to)),
            Body::Product { .. } | Body::Reshape => {}
        }
    }
    /// How parts of its result are put together, of which each device made one.
    pub(crate) fn combine(&self) -> Combine {
        match self {
            Body::Fold { combine, .. } | Body::Put { combine: Some(combine), .. } => *combine,
            Body::Map(_) | Body::Product { .. } | Body::Lines(_) | Body::Reshape => Combine::Add,
            Body::Take { .. } | Body::Put { combine: None, .. } => Combine::Add,
        }
    }
}

impl Span {
    /// All steps of a loop.
    pub fn all(size: usize) -> Span {
        Span { lo: 0, hi: size as i64, step: 1 }
    }
    /// All steps of loops of these sizes.
    pub fn whole(extents: &[usize]) -> Vec<Span> {
        extents.iter().map(|n| Span::all(*n)).collect()
    }
    /// How many steps it covers.
    pub fn len(&self) -> i64 {
        ((self.hi - self.lo + self.step - 1) / self.step).max(0)
    }
    /// Whether it covers none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Affine {
    /// The same position at every step.
    pub fn constant(at: i64) -> Affine {
        Affine { at, terms: SmallVec::new() }
    }
    /// `at + coefficient · k`.
    pub fn of(at: i64, index: usize, coefficient: i64) -> Affine {
        Affine { at, terms: SmallVec::from_slice(&[(index, coefficient)]) }
    }
    /// Each dimension at the loop of its number.
    pub fn identity(rank: usize) -> Vec<Affine> {
        (0..rank).map(|d| Affine::of(0, d, 1)).collect()
    }
}

impl Affine {
    /// The least and the greatest position over these spans, none of which is empty.
    pub(crate) fn bounds(&self, span: &[Span]) -> (i64, i64) {
        self.terms.iter().fold((self.at, self.at), |(lo, hi), (l, c)| {
            let last = c * (span[*l].len() - 1);
            (lo + last.min(0), hi + last.max(0))
        })
    }
}

impl Affine {
    /// How far all loops but the widest move the position: how far windows can be outside of a dimension that each of them meets.
    pub(crate) fn reach(&self, span: &[Span]) -> i128 {
        let ranges = self
            .terms
            .iter()
            .map(|(l, c)| i128::from(*c).abs().saturating_mul(i128::from((span[*l].len() - 1).max(0))));
        let (sum, widest) =
            ranges.fold((0i128, 0), |(sum, widest), r| (sum.saturating_add(r), r.max(widest)));
        sum - widest
    }
}

impl Part {
    /// The same without the steps at which every position is outside of dimensions of these sizes.
    pub(crate) fn inside(&self, sizes: &[usize]) -> Part {
        let mut p = self.clone();
        // what one loop loses may leave another with steps that meet nothing; each round only cuts, so a few do
        for _ in 0..3 {
            for (d, n) in sizes.iter().enumerate() {
                for k in 0..p.map[d].terms.len() {
                    if p.span.iter().any(Span::is_empty) {
                        return p;
                    }
                    let (l, c) = p.map[d].terms[k];
                    if c == 0 {
                        continue;
                    }
                    let (lo, hi) = p.map[d].bounds(&p.span);
                    let own = c * (p.span[l].len() - 1);
                    // where the other loops are least and greatest
                    let (least, most) = (lo - own.min(0), hi - own.max(0));
                    let (first, last) = (-most, *n as i64 - 1 - least);
                    // the steps i with first ≤ c·i ≤ last
                    let (first, last) = if c > 0 { (first, last) } else { (-last, -first) };
                    let c = c.abs();
                    let steps = p.span[l].len();
                    let from = (first + c - 1).div_euclid(c).clamp(0, steps);
                    let to = (last.div_euclid(c) + 1).clamp(from, steps);
                    let s = &mut p.span[l];
                    let end = s.lo + (to - 1) * s.step + 1;
                    let lo = s.lo + from * s.step;
                    (s.hi, s.lo) =
                        if from == to { (lo.min(s.hi), lo.min(s.hi)) } else { (end.min(s.hi), lo) };
                    for m in &mut p.map {
                        m.at += m.terms.iter().filter(|t| t.0 == l).map(|t| t.1 * from).sum::<i64>();
                    }
                }
            }
        }
        p
    }
    /// Whether a position of dimension `d`, of size `n`, may be outside: then the part is not there.
    pub(crate) fn leaves(&self, d: usize, n: usize) -> bool {
        if self.span.iter().any(Span::is_empty) {
            return false;
        }
        let (lo, hi) = self.map[d].bounds(&self.span);
        lo < 0 || hi >= n as i64
    }
}

impl Read {
    /// An operand read by one part that covers all loops: dimension d at the loop `loops[d]`; `None`: at position 0 (stretched).
    pub fn plain(operand: usize, dtype: DType, extents: &[usize], loops: &[Option<usize>]) -> Read {
        let map = loops.iter().map(|l| l.map_or(Affine::constant(0), |l| Affine::of(0, l, 1))).collect();
        let span = Span::whole(extents);
        Read {
            dtype,
            parts: vec![Part { from: Source::Value(operand), span, map }],
            fill: Scalar::zero(dtype),
        }
    }
}

impl Code {
    /// Read 0 itself.
    pub fn copy(dtype: DType) -> Code {
        Code::one(Fun::Copy, dtype, dtype, &[Arg::Read(0)])
    }
    /// One instruction.
    pub fn one(fun: Fun, from: DType, dtype: DType, args: &[Arg]) -> Code {
        Code { insts: vec![Inst { fun, from, dtype, args: SmallVec::from_slice(args) }] }
    }
    /// The number that this is, whatever is read.
    pub(crate) fn number(&self) -> Option<Scalar> {
        match &self.insts[..] {
            [Inst { fun: Fun::Copy, args, .. }] => match args[..] {
                [Arg::Const(x)] => Some(x),
                _ => None,
            },
            _ => None,
        }
    }
    /// One more instruction; what it makes is returned as an operand.
    pub fn push(&mut self, fun: Fun, from: DType, dtype: DType, args: &[Arg]) -> Arg {
        self.insts.push(Inst { fun, from, dtype, args: SmallVec::from_slice(args) });
        Arg::Inst(self.insts.len() - 1)
    }
}
