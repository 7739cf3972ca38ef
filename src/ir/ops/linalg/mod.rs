//! Factorizations, solvers, and spectra of matrices (feature `linalg`).
//!
//! The last two dimensions are those of matrices, and the others are batch dimensions. Each
//! primitive is a [`RowKernel`](crate::ir::program::RowKernel) with two loops within a row: batch
//! dimensions may be sharded in any way, and matrices must be unsharded. The crate `atmesh_linalg`
//! computes the results for one matrix with `faer`. Derivatives are formulas in terms of the same
//! primitives.
//!
//! Without the feature, the primitives exist, and their type check returns an error that names it.

mod cholesky;
#[cfg(feature = "linalg")]
mod compute;
#[cfg(not(feature = "linalg"))]
#[path = "no_compute.rs"]
mod compute;
mod determinant;
mod eigen;
mod lu;
mod matrix_kernel;
mod pinv;
mod qr;
mod solve;
mod svd;
mod triangular;

pub use cholesky::Cholesky;
pub use determinant::{Cofactors, Det, Slogdet};
pub use eigen::{Eigh, Eigvalsh};
pub use lu::Lu;
pub use pinv::Pinv;
pub use qr::Qr;
pub use solve::{Inv, Solve};
pub use svd::{Svd, Svdvals};
pub use triangular::TriangularSolve;

use super::elementwise::{Binary, DTypeClass, common_dtype};
use super::{dim_check::arity, dot_general::DotGeneral};
use crate::core::{
    ArrayType, Axes, Axis, AxisType, DType, ErrorKind, Fault, Result, Scalar, Shape, Spec, TypePart,
};
use crate::ir::program::{Builder, Dim, ExplicitRule, Factors, Prim, Primitive, TypedOperand, Value};
use matrix_kernel::MatrixOp;
use std::sync::Arc;

/// The kind of elements that a result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultKind {
    /// The operand's element type.
    Float,
    /// The element type int32, for indices.
    Int,
}

/// Defines the rules that are the same for all matrix primitives.
///
/// The first form is for primitives with one operand. The form with `@all` has no transpose rule
/// and takes the `vmap` rule as an expression.
macro_rules! matrix_op_rules {
    ($name:literal) => {
        crate::ir::ops::linalg::matrix_op_rules!(@all $name, |prim| crate::ir::program::BatchedOp::new(prim));
        fn transpose(
            &self,
            _: crate::ir::program::TransposeArgs<'_>,
        ) -> crate::core::diagnostic::Result<crate::ir::program::Tangents> {
            Err(crate::ir::program::typing::not_linear_error($name))
        }
    };
    (@all $name:literal, |$prim:ident| $batched:expr) => {
        fn name(&self) -> &'static str {
            $name
        }
        fn shapes(
            &self,
            operands: &[crate::ir::program::TypedOperand],
        ) -> Result<Vec<(crate::core::types::DType, crate::core::types::Shape)>, crate::core::diagnostic::Fault> {
            crate::ir::ops::linalg::result_shapes(self, operands)
        }
        fn types(
            &self,
            operands: &[crate::ir::program::TypedOperand],
        ) -> Result<Vec<crate::core::types::ArrayType>, crate::core::diagnostic::Fault> {
            let types = crate::ir::program::typing::by_factors(self, operands)?;
            crate::ir::ops::linalg::check_not_reduced(operands).map(|()| types)
        }
        fn factors(
            &self,
            operands: &[crate::core::types::ArrayType],
            results: &[(crate::core::types::DType, crate::core::types::Shape)],
        ) -> crate::ir::program::Factors {
            crate::ir::ops::linalg::matrix_kernel::MatrixOp::loops(self, operands, results)
        }
        fn linearity(&self) -> crate::ir::program::Linearity {
            crate::ir::program::Linearity::None
        }
        fn vmap(&self, _: &crate::ir::program::VmapArgs<'_>) -> crate::ir::program::BatchedOp {
            // parameters do not depend on the rank, since dimensions are counted from the last one
            let $prim = std::sync::Arc::new(self.clone());
            $batched
        }
        fn loop_nests(
            &self,
            operands: &[crate::core::types::ArrayType],
            results: &[crate::core::types::ArrayType],
        ) -> Vec<crate::ir::program::loop_nest::LoopNest> {
            crate::ir::ops::linalg::matrix_kernel::matrix_loop_nests(self, operands, results)
        }
    };
}
use matrix_op_rules;

/// Implements [`MatrixOp`]: `Operation, time: |self, operands, sizes| results => computed results`.
///
/// The time is that of one multiplication, in nanoseconds; other items of the trait follow it in
/// braces. `T` is the element type of the matrices.
macro_rules! matrix_op {
    ($op:ty, $ns_per_mul:literal $(, {$($item:tt)*})?:
        |$self:ident, $operands:ident, $sizes:pat_param| $kinds:expr => $results:expr) => {
        #[allow(unused_variables)]
        impl crate::ir::ops::linalg::matrix_kernel::MatrixOp for $op {
            const NS_PER_MUL: f64 = $ns_per_mul;
            $($($item)*)?
            fn result_kinds(&$self, $sizes: [usize; 3]) -> crate::ir::ops::linalg::ResultKinds {
                #[allow(unused_imports)]
                use crate::ir::ops::linalg::ResultKind::{Float, Int};
                $kinds
            }
        }
        #[cfg(feature = "linalg")]
        impl crate::ir::ops::linalg::compute::ComputeMatrix for $op {
            fn compute<T: atmesh_linalg::Real>(
                &$self,
                $operands: &[Vec<T>],
                $sizes: [usize; 3],
            ) -> Vec<crate::ir::ops::linalg::compute::MatrixResult<T>> {
                #[allow(unused_imports)]
                use crate::ir::ops::linalg::compute::MatrixResult::{Floats, Ints};
                $results
            }
        }
    };
}
use matrix_op;

/// The kinds of an operation's results, and their dimensions after the batch dimensions.
type ResultKinds = Vec<(ResultKind, Shape)>;

/// Returns the last two sizes.
fn matrix_sizes(ty: &ArrayType) -> [usize; 2] {
    let first = ty.rank() - 2;
    [ty.shape[first], ty.shape[first + 1]]
}

/// Returns the error of an operation in a build without the feature `linalg`.
fn missing_feature(name: &str) -> Fault {
    fault!(Unsupported, "{name} needs the feature `linalg` of atmesh, which is off in this build")
        .help("turn it on in Cargo.toml: `atmesh = { .., features = [\"linalg\"] }`")
}

/// Returns the element types and shapes of the results.
///
/// Returns an error for operands that are not floats, not matrices, or whose sizes do not match.
fn result_shapes<P: MatrixOp>(prim: &P, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
    let name = prim.name();
    if cfg!(not(feature = "linalg")) {
        return Err(missing_feature(name));
    }
    let types = arity(name, operands, P::NUM_OPERANDS)?;
    let dtype = common_dtype(operands, 0)?;
    DTypeClass::Float.check(operands, 0)?;
    for (k, (ty, o)) in types.iter().zip(operands).enumerate() {
        if ty.rank() < 2 {
            let (number, ty) = (o.user_index(k), o.user_type());
            let text = format!("operand {number}, {ty}, is not a matrix: it has fewer than two dimensions");
            return Err(Fault::new(ErrorKind::Shape, text).help("make it one: `.reshape([n, m])`"));
        }
    }
    let first = types[0].rank() - 2;
    let [m, n] = matrix_sizes(types[0]);
    if P::SQUARE && m != n {
        let text = format!(
            "{name} takes square matrices, and operand {}, {}, has {m}×{n}",
            operands[0].user_index(0),
            operands[0].user_type()
        );
        let help = match name {
            "solve" => "the least-squares solution: `a.lstsq(&b, None)`",
            "inv" => "the pseudoinverse: `.pinv(None)`",
            _ => "make both sizes equal: `slice`, `pad`",
        };
        return Err(Fault::new(ErrorKind::Shape, text)
            .help(help)
            .highlight_dim(0, first)
            .highlight_dim(0, first + 1));
    }
    let mut k = 0;
    if let [a, b] = types[..] {
        let (same, other) = (prim.shared_dim(), 1 - prim.shared_dim());
        let number = |k: usize| operands[k].user_index(k);
        if a.shape[..first] != b.shape[..b.rank() - 2] {
            let text = format!(
                "operand {}, {}, and operand {}, {}, must have the same batch dimensions",
                number(0),
                operands[0].user_type(),
                number(1),
                operands[1].user_type()
            );
            return Err(Fault::new(ErrorKind::Shape, text).help(format!(
                "repeat the matrices: `.broadcast_to(…)` of operand {}",
                number(if a.rank() < b.rank() { 0 } else { 1 })
            )));
        }
        if matrix_sizes(b)[same] != n {
            let (d, text) = (first + same, format!("{}×{}", matrix_sizes(b)[0], matrix_sizes(b)[1]));
            let text = format!(
                "operand {} has matrices of {n}×{n}, operand {} of {text}: {} must be of size {n}",
                number(0),
                number(1),
                operands[1].describe_dim(1, d)
            );
            return Err(Fault::new(ErrorKind::Shape, text)
                .help("make them fit: `slice`, `pad`, `.t()`")
                .highlight_dim(1, d));
        }
        k = matrix_sizes(b)[other];
    }
    let lead = &types[0].shape[..first];
    let one = |(kind, dims): (ResultKind, Shape)| {
        let dtype = if kind == ResultKind::Int { DType::I32 } else { dtype };
        (dtype, lead.iter().chain(dims.iter()).copied().collect())
    };
    Ok(prim.result_kinds([m, n, k]).into_iter().map(one).collect())
}

/// Rejects operands that are reduced.
fn check_not_reduced(operands: &[TypedOperand]) -> Result<(), Fault> {
    // Derivatives contain matrix products, which do not keep the reduced set of an operand.
    for (k, o) in operands.iter().enumerate() {
        let ty = o.user_type();
        let reduced = ty.spec.reduced_axes();
        if !reduced.is_empty() {
            let is_manual =
                |a: &Axis| ty.mesh.as_ref().and_then(|m| m.axis_type(*a)) == Some(AxisType::Manual);
            let (manual, explicit): (Vec<Axis>, Vec<Axis>) = reduced.iter().partition(is_manual);
            let k = o.user_index(k);
            let text = format!("operand {k}, {ty}, is reduced over {reduced}");
            let vary = format!(".pvary({})", Axes::from(manual.clone()).quoted());
            let move_it = format!(".reshard({})", ty.spec.reduced(Axes::none()));
            let help = match (manual.is_empty(), explicit.is_empty()) {
                (true, _) => format!("make it replicated: `{move_it}`, of operand {k}"),
                (false, true) => format!("make it varying: `{vary}`, of operand {k}"),
                (false, false) => {
                    format!("make it varying and replicated: `{vary}{move_it}`, of operand {k}")
                }
            };
            return Err(Fault::new(ErrorKind::Sharding, text).help(help).highlight(k, TypePart::Sets));
        }
    }
    Ok(())
}

/// Returns factors with shared loops for the batch and separate, unsharded loops for matrices.
fn whole_matrix_factors(operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
    let batch = operands[0].rank() - 2;
    let mut f = Factors::default();
    let join = (operands.len() > 1).then_some(ExplicitRule::MustMatch);
    for n in &operands[0].shape[..batch] {
        let l = f.add_loop(*n);
        f.loops[l].explicit_rule = join;
    }
    for ty in operands {
        let matrix = matrix_sizes(ty).map(|n| {
            let l = f.add_loop(n);
            f.loops[l].need_replication = true;
            l
        });
        f.operands.push(Dim::each((0..batch).chain(matrix)));
    }
    for (_, shape) in results {
        let new: Vec<usize> = shape[batch..].iter().map(|n| f.add_loop(*n)).collect();
        f.results.push(Dim::each((0..batch).chain(new)));
    }
    f
}

/// A region of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatrixRegion {
    /// The diagonal and all elements below it.
    Lower,
    /// All elements below the diagonal.
    BelowDiagonal,
    /// The diagonal and all elements above it.
    Upper,
    /// All elements above the diagonal.
    AboveDiagonal,
    /// The diagonal.
    Diagonal,
}

/// Emits matrix operations for derivative rules.
impl Builder {
    /// Emits a primitive with one operand and one result.
    fn emit_matrix_op(&mut self, prim: impl Primitive, x: &Value) -> Result<Value> {
        self.emit1(Arc::new(prim) as Prim, std::slice::from_ref(x))
    }
    /// Emits the product of matrices.
    fn matmul(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let batch = x.ty.rank() - 2;
        let lead: Vec<usize> = (0..batch).collect();
        let (contracting, batch) = ([vec![batch + 1], vec![batch]], [lead.clone(), lead]);
        self.dot_general(x, y, DotGeneral { contracting, batch, ..DotGeneral::default() })
    }
    /// Emits the transpose of matrices.
    fn matrix_transpose(&mut self, x: &Value) -> Result<Value> {
        let mut order: Vec<usize> = (0..x.ty.rank()).collect();
        order.swap(x.ty.rank() - 2, x.ty.rank() - 1);
        self.transpose(x, &order)
    }
    /// Emits (x + xᵀ)/2.
    fn symmetrize(&mut self, x: &Value) -> Result<Value> {
        let turned = self.matrix_transpose(x)?;
        let sum = self.add(x, &turned)?;
        self.mul_scalar(&sum, 0.5)
    }
    /// Emits a mask that is true for the elements of matrices in a region.
    fn region_mask(&mut self, like: &ArrayType, region: MatrixRegion) -> Result<Value> {
        // new values do not vary over any axis
        let spec = Spec::from_dims(like.spec.dims().to_vec());
        let ty = ArrayType { dtype: DType::I32, spec, varying: Axes::none(), ..like.clone() };
        let (row, column) = (self.iota(&ty, ty.rank() - 2)?, self.iota(&ty, ty.rank() - 1)?);
        let compare = match region {
            MatrixRegion::Lower => Binary::Ge,
            MatrixRegion::BelowDiagonal => Binary::Gt,
            MatrixRegion::Upper => Binary::Le,
            MatrixRegion::AboveDiagonal => Binary::Lt,
            MatrixRegion::Diagonal => Binary::Eq,
        };
        self.binary(compare, &row, &column)
    }
    /// Emits matrices with zeros outside the region.
    fn keep_region(&mut self, x: &Value, region: MatrixRegion) -> Result<Value> {
        let (within, zero) = (self.region_mask(&x.ty, region)?, self.zero_like(&x.ty)?);
        self.select(&within, x, &zero)
    }
    /// Emits `x` with ones on the diagonal.
    fn with_unit_diagonal(&mut self, x: &Value) -> Result<Value> {
        let (within, one) = (
            self.region_mask(&x.ty, MatrixRegion::Diagonal)?,
            Value::literal(x.ty.dtype, Scalar::one(x.ty.dtype)),
        );
        self.select(&within, &one, x)
    }
    /// Emits a vector as a column, to broadcast one number over each row of matrices.
    fn as_column(&mut self, x: &Value) -> Result<Value> {
        self.expand_dims(x, &[x.ty.rank()])
    }
    /// Emits a vector as a row, to broadcast one number over each column of matrices.
    fn as_row(&mut self, x: &Value) -> Result<Value> {
        self.expand_dims(x, &[x.ty.rank() - 1])
    }
    /// Emits the sum over rows of the elementwise product x·y.
    fn dot_over_rows(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let product = self.mul(x, y)?;
        self.reduce_sum(&product, &[x.ty.rank() - 2], None)
    }
    /// Emits the sum over all matrix elements of the elementwise product x·y.
    fn matrix_inner_product(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let product = self.mul(x, y)?;
        self.reduce_sum(&product, &[x.ty.rank() - 2, x.ty.rank() - 1], None)
    }
    /// Emits a reshard of `x` to be unsharded along the given dimensions.
    fn unshard_dims(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        let entries = x.ty.spec.padded(x.ty.rank()).dims().iter().cloned().enumerate();
        let entries = entries.map(|(d, e)| if dims.contains(&d) { Axes::none() } else { e }).collect();
        let unsharded = ArrayType { spec: x.ty.spec.with_dims(entries), ..x.ty.clone() };
        self.reshard_to(x, &unsharded)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn builds_without_the_feature_name_it() {
        let fault = super::missing_feature("solve");
        assert_eq!(fault.message, "solve needs the feature `linalg` of atmesh, which is off in this build");
    }
}
