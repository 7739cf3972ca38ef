//! Custom operations, which users declare by subscripts, a kernel and a VJP rule.
//!
//! Subscripts name the dimensions. The kernel is called for one row of each operand at a time. A
//! *batch* dimension enumerates rows: it may be sharded in any way, and `vmap` adds further batch
//! dimensions. All other dimensions are within a row and must be unsharded, except for those that
//! the kernel sums over.

mod kernel;
mod subscripts;
mod vjp;

pub(crate) use kernel::{IdentifiedFn, UserKernel};
pub(crate) use subscripts::Subscripts;
pub(crate) use vjp::{BackwardProgram, CustomLin};

use crate::core::{
    ArrayType, Axes, DType, ErrorKind, Fault, Result, Scalar, Shape, Spec, diagnostic::pluralize,
};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, BatchedOp, Compute, Dim, Factors, JvpArgs, Linearity, LoopNest,
    Primitive, Program, RowKernelCall, Source, StridedRange, Tangents, TransposeArgs, TypedOperand, VmapArgs,
    with_inserted,
};
use kernel::CustomRowKernel;
use std::sync::Arc;

/// The user's declaration of a custom operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpDeclaration {
    /// The name of the operation.
    pub(crate) name: &'static str,
    /// The subscripts of operands and results.
    pub(crate) subscripts: Subscripts,
    /// The labels of batch dimensions.
    pub(crate) batch_labels: Vec<char>,
    /// The labels of dimensions that the results sum over.
    pub(crate) summed_labels: Vec<char>,
    /// The sizes of dimensions that no operand has.
    pub(crate) sizes: Vec<(char, usize)>,
    /// The element types of the operands.
    /// Empty if any is accepted.
    pub(crate) operand_dtypes: Vec<DType>,
    /// The element types of the results.
    /// Empty if they are that of the first operand.
    pub(crate) result_dtypes: Vec<DType>,
    /// The duration of the kernel for one row, in nanoseconds.
    /// `None` means one nanosecond per element.
    pub(crate) ns_per_row: Option<Scalar>,
    /// The user's kernel.
    pub(crate) kernel: UserKernel,
    /// The VJP rule.
    /// `None` if the operation has no derivative.
    pub(crate) vjp_rule: Option<IdentifiedFn<dyn VjpRule>>,
}

/// A rule that computes the cotangents of a custom operation's operands.
pub(crate) trait VjpRule: Send + Sync {
    /// Records the rule as a program.
    ///
    /// The program takes the operands, the results, and a cotangent for each float result. It
    /// returns a cotangent for each float operand.
    fn record(&self, op: &CustomPrim, operands: &[ArrayType], results: &[ArrayType]) -> Result<Program>;
}

/// A custom operation as a primitive, possibly under `vmap`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CustomPrim {
    /// The declaration of the operation.
    pub(crate) declaration: Arc<OpDeclaration>,
    /// For each enclosing `vmap`, outermost first, the operands that are batched.
    pub(crate) vmapped: Vec<Vec<bool>>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub(crate) out_sharding: Option<Spec>,
    /// The manual axes that types do not track where the operation is applied.
    pub(crate) untracked: Axes,
}

impl OpDeclaration {
    /// Describes the declaration without its name.
    ///
    /// Kernels with different descriptions are distinct.
    fn description(&self) -> String {
        let mut parts = vec![self.subscripts.to_string()];
        if !self.batch_labels.is_empty() {
            parts.push(format!("over={}", self.batch_labels.iter().collect::<String>()));
        }
        if !self.summed_labels.is_empty() {
            parts.push(format!("sums={}", self.summed_labels.iter().collect::<String>()));
        }
        parts.extend(self.sizes.iter().map(|(c, n)| format!("{c}={n}")));
        if !self.result_dtypes.is_empty() {
            let returns: Vec<&str> = self.result_dtypes.iter().map(|d| d.name()).collect();
            parts.push(format!("returns={}", returns.join(",")));
        }
        parts.join(", ")
    }
}

/// The loops of a custom operation for certain operands.
#[derive(Default)]
struct CustomLoops {
    /// The size of each loop.
    sizes: Vec<usize>,
    /// The name of each loop in messages.
    names: Vec<String>,
    /// A flag for each loop that is true for batch dimensions.
    is_batch: Vec<bool>,
    /// A flag for each loop that is true if the results sum over it.
    is_summed: Vec<bool>,
    /// The loop of each dimension of each operand.
    operands: Vec<Vec<usize>>,
    /// The loop of each dimension of each result.
    results: Vec<Vec<usize>>,
}

impl CustomPrim {
    /// Returns the loops of the operation, or an error if the operands do not match the subscripts.
    fn loops(&self, operands: &[TypedOperand]) -> Result<CustomLoops, Fault> {
        let OpDeclaration { name, subscripts: letters, batch_labels: over, summed_labels: sums, .. } =
            &*self.declaration;
        let shape = |text: String| Fault::new(ErrorKind::Shape, text);
        if operands.len() != letters.operands.len() {
            let (wanted, given) = (pluralize(letters.operands.len(), "operand"), operands.len());
            return Err(shape(format!("{name} takes {wanted}, `{letters}`, but got {given}"))
                .help("give one array or number for each operand"));
        }
        let examples = |k: usize| self.vmapped.iter().filter(|m| m[k]).count();
        let mut dots = 0;
        for (k, (o, named)) in operands.iter().zip(&letters.operands).enumerate() {
            let (rank, count) = (o.ty.rank() - examples(k).min(o.ty.rank()), named.labels.len());
            if rank < count || rank > count && !named.ellipsis {
                let least = if named.ellipsis { "at least " } else { "" };
                return Err(shape(format!(
                    "operand {} of {name} has {}, but `{named}` names {least}{count}",
                    o.user_index(k),
                    pluralize(rank, "dimension")
                ))
                .help("give it an array of these dimensions, or change the subscripts"));
            }
            dots = dots.max(rank - count);
        }
        let mut l = CustomLoops::default();
        let mut known: Vec<Option<(usize, usize)>> = Vec::new();
        let mut chars: Vec<char> = Vec::new();
        let fixed = self.vmapped.len() + dots;
        for k in 0..fixed {
            l.names.push(if k < self.vmapped.len() { "the examples".into() } else { "`...`".into() });
            l.is_batch.push(true);
            l.is_summed.push(false);
        }
        for c in letters.operands.iter().chain(&letters.results).flat_map(|n| &n.labels) {
            if !chars.contains(c) {
                chars.push(*c);
                l.names.push(format!("`{c}`"));
                l.is_batch.push(over.contains(c));
                l.is_summed.push(sums.contains(c));
            }
        }
        l.sizes = vec![0; l.names.len()];
        known.resize(l.names.len(), None);
        let loop_of = |c: &char| fixed + chars.iter().position(|k| k == c).unwrap_or(0);
        for (k, (o, named)) in operands.iter().zip(&letters.operands).enumerate() {
            let lead = (0..self.vmapped.len()).filter(|e| self.vmapped[*e][k]);
            let own = o.ty.rank() - named.labels.len() - examples(k);
            let all = lead.chain(fixed - own..fixed).chain(named.labels.iter().map(loop_of));
            let all: Vec<usize> = all.collect();
            for (d, at) in all.iter().enumerate() {
                let n = o.ty.shape[d];
                match known[*at] {
                    Some((j, e)) if l.sizes[*at] != n => {
                        let (one, two) = (o.describe_dim(k, d), operands[j].describe_dim(j, e));
                        return Err(shape(format!(
                            "{one} of {name} has size {n}, and {two} has {}: both are {}",
                            l.sizes[*at], l.names[*at]
                        ))
                        .help("give operands that agree, or use another letter for one of the dimensions")
                        .highlight_dim(k, d)
                        .highlight_dim(j, e));
                    }
                    Some(_) => {}
                    None => (l.sizes[*at], known[*at]) = (n, Some((k, d))),
                }
            }
            l.operands.push(all);
        }
        for (c, n) in &self.declaration.sizes {
            l.sizes[loop_of(c)] = *n;
        }
        for named in &letters.results {
            l.results.push((0..fixed).chain(named.labels.iter().map(loop_of)).collect());
        }
        Ok(l)
    }
    /// Returns the loops for operands that were accepted before.
    fn loops_for_types(&self, operands: &[ArrayType]) -> CustomLoops {
        let operands: Vec<TypedOperand> = operands.iter().cloned().map(TypedOperand::from).collect();
        self.loops(&operands).expect("called after `shapes` accepted the operands")
    }
    /// Returns the element type of result `k`.
    fn result_dtype(&self, k: usize, operands: &[DType]) -> DType {
        self.declaration.result_dtypes.get(k).copied().unwrap_or(operands[0])
    }
}

impl Primitive for CustomPrim {
    fn name(&self) -> &'static str {
        self.declaration.name
    }
    fn params(&self) -> String {
        let out = self.out_sharding.map(|o| format!(", out={o}")).unwrap_or_default();
        self.declaration.description() + &out
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let l = self.loops(operands)?;
        let dtypes: Vec<DType> = operands.iter().map(|o| o.ty.dtype).collect();
        for (k, (o, dtype)) in operands.iter().zip(&dtypes).enumerate() {
            let takes = self.declaration.operand_dtypes.get(k).copied().unwrap_or(*dtype);
            if takes != *dtype || *dtype == DType::Key {
                let (why, help) = match dtype {
                    DType::Key => (
                        "kernels cannot read keys".to_string(),
                        "draw from it first: `key.normal([n])`".to_string(),
                    ),
                    _ => (format!("it takes {takes}"), format!("convert it first: `.astype({takes:?})`")),
                };
                let text =
                    format!("operand {} of {} is {dtype}, and {why}", o.user_index(k), self.declaration.name);
                return Err(Fault::new(ErrorKind::Dtype, text)
                    .help(help)
                    .highlight(k, crate::core::diagnostic::TypePart::Dtype));
            }
        }
        let made = |(k, dims): (usize, &Vec<usize>)| {
            (self.result_dtype(k, &dtypes), dims.iter().map(|d| l.sizes[*d]).collect())
        };
        let added = |k: &usize| self.result_dtype(*k, &dtypes).is_number();
        if let Some(k) =
            (0..l.results.len()).find(|k| !self.declaration.summed_labels.is_empty() && !added(k))
        {
            let dtype = self.result_dtype(k, &dtypes);
            let text = format!(
                "result {k} of {} is a sum, but {dtype} is not a numeric type",
                self.declaration.name
            );
            return Err(Fault::new(ErrorKind::Dtype, text)
                .help("declare a numeric type, `.returns([…])`, or leave out `.sums_over(…)`"));
        }
        Ok(l.results.iter().enumerate().map(made).collect())
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let l = self.loops_for_types(operands);
        let mut f = Factors::from_sizes(&l.sizes);
        for ((own, over), sums) in f.loops.iter_mut().zip(&l.is_batch).zip(&l.is_summed) {
            own.need_replication = !over && !sums;
        }
        let each = |all: Vec<Vec<usize>>| all.into_iter().map(Dim::each).collect();
        (f.operands, f.results) = (each(l.operands), each(l.results));
        f
    }
    fn linearity(&self) -> Linearity {
        if self.declaration.summed_labels.is_empty() { Linearity::None } else { Linearity::NonlinearSum }
    }
    out_sharding_rules!();
    fn jvp(&self, at: JvpArgs<'_>) -> Result<Tangents> {
        self.jvp_rule(at)
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Err(crate::ir::program::typing::not_linear_error(self.declaration.name))
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let lead = with_inserted(&self.vmapped, 0, batch.mapped.to_vec());
        BatchedOp::new(Arc::new(CustomPrim {
            vmapped: lead,
            out_sharding: batch.out_sharding(self.out_sharding, 0),
            ..self.clone()
        }))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let l = self.loops_for_types(operands);
        let along: Vec<usize> = (0..l.sizes.len())
            .filter(|k| !l.is_batch[*k] && l.operands.iter().any(|o| o.contains(k)))
            .collect();
        let within = |dims: &[usize]| dims.iter().filter_map(|d| along.iter().position(|a| a == d)).collect();
        let row_shape =
            |dims: &Vec<usize>| dims.iter().filter(|d| !l.is_batch[**d]).map(|d| l.sizes[*d]).collect();
        let of = Arc::new(CustomRowKernel {
            declaration: self.declaration.clone(),
            operand_loops: l.operands.iter().map(|o| within(o)).collect(),
            row_rank: along.len(),
            summed_loops: (0..along.len()).filter(|a| l.is_summed[along[*a]]).collect(),
            result_rows: results
                .iter()
                .zip(&l.results)
                .map(|(ty, dims)| (ty.dtype.storage(), row_shape(dims)))
                .collect(),
        });
        let nest = |(k, ty): (usize, &ArrayType)| {
            let (dims, rank) = (&l.results[k], ty.rank());
            let mut extents = ty.shape.to_vec();
            extents.extend(along.iter().map(|a| l.sizes[*a]));
            let read = |(k, o): (usize, &ArrayType)| {
                let at = |d: &usize| match along.iter().position(|a| a == d) {
                    Some(a) => AffineExpr::linear(0, rank + a, 1),
                    None => {
                        let over = dims.iter().position(|r| r == d);
                        AffineExpr::linear(0, over.expect("batch dimensions are in each result"), 1)
                    }
                };
                let map = l.operands[k].iter().map(at).collect();
                let dtype = o.dtype.storage();
                let piece =
                    AccessPiece { source: Source::Value(k), ranges: StridedRange::full_box(&extents), map };
                Access { dtype, pieces: vec![piece], fill: Scalar::zero(dtype) }
            };
            let reads = operands.iter().enumerate().map(read).collect();
            let along = (0..rank).filter(|d| !l.is_batch[dims[*d]]).collect();
            let body =
                Compute::RowKernel(RowKernelCall { kernel: of.clone(), result_index: k, row_loops: along });
            LoopNest { extents, rank, dtype: ty.dtype.storage(), accesses: reads, compute: body }
        };
        results.iter().enumerate().map(nest).collect()
    }
}
