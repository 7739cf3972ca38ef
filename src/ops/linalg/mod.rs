//! Linear algebra: factors, solutions and spectra of the matrices that the last two dimensions are; the others are batch dimensions.
//!
//! Each is a function of whole matrices (a [`Line`](crate::program::Line) over two dimensions): a batch passes, split in any way, a matrix is
//! needed whole. What is computed of one is in the crate `atmesh_linalg`, by `faer`. Derivatives are formulas of the same operations.

mod cholesky;
mod determinant;
mod eigen;
mod line;
mod lu;
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

use super::elementwise::{Binary, Takes, one_dtype};
use super::product::DotGeneral;
use super::view::arity;
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::mesh::{Axes, Axis, AxisType};
use crate::program::factors::{Dim, Factors, Join};
use crate::program::{Builder, Operand, Prim, Primitive, Value, typing};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use line::{Kind, Matrix};
use std::sync::Arc;

/// What all of them are: a primitive of one operand.
macro_rules! of_matrices {
    ($name:literal) => {
        crate::ops::linalg::of_matrices!(@all $name, |prim| crate::program::Batched::of(prim));
        fn transpose(
            &self,
            _: crate::program::Back<'_>,
        ) -> crate::diagnostic::Result<crate::program::Tangents> {
            Err(crate::ops::build::not_linear($name))
        }
    };
    (@all $name:literal, |$prim:ident| $batched:expr) => {
        fn name(&self) -> &'static str {
            $name
        }
        fn shapes(
            &self,
            operands: &[crate::program::Operand],
        ) -> Result<Vec<(crate::types::DType, crate::types::Shape)>, crate::diagnostic::Fault> {
            crate::ops::linalg::shapes(self, operands)
        }
        fn types(
            &self,
            operands: &[crate::program::Operand],
        ) -> Result<Vec<crate::types::ArrayType>, crate::diagnostic::Fault> {
            crate::ops::linalg::types(self, operands)
        }
        fn factors(
            &self,
            operands: &[crate::types::ArrayType],
            results: &[(crate::types::DType, crate::types::Shape)],
        ) -> crate::program::Factors {
            crate::ops::linalg::line::Matrix::loops(self, operands, results)
        }
        fn linearity(&self) -> crate::program::Linearity {
            crate::program::Linearity::None
        }
        fn priority(&self) -> crate::program::Priority {
            crate::program::Priority::Plain
        }
        fn out(&self) -> Option<crate::sharding::Spec> {
            None
        }
        fn batched(&self, _: &crate::program::Batch<'_>) -> crate::program::Batched {
            // dimensions are counted from the last one
            let $prim = std::sync::Arc::new(self.clone());
            $batched
        }
        fn sentences(
            &self,
            operands: &[crate::types::ArrayType],
            results: &[crate::types::ArrayType],
        ) -> Vec<crate::program::sentence::Sentence> {
            crate::ops::linalg::line::sentences(self, operands, results)
        }
    };
}
use of_matrices;

/// The last two sizes.
fn sizes(ty: &ArrayType) -> [usize; 2] {
    let first = ty.rank() - 2;
    [ty.shape[first], ty.shape[first + 1]]
}

/// The results' element types and shapes; refuses what are no floats, no matrices, or none that fit.
fn shapes(of: &impl Matrix, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
    let name = of.name();
    let types = arity(name, operands, of.operands())?;
    let dtype = one_dtype(operands, 0)?;
    Takes::Float.check(operands, 0)?;
    for (k, (ty, o)) in types.iter().zip(operands).enumerate() {
        if ty.rank() < 2 {
            let (number, ty) = (o.number(k), o.told());
            let text = format!("operand {number}, {ty}, is no matrix: the last two dimensions are");
            return Err(Fault::new(ErrorKind::Shape, text).help("make it one: `.reshape([n, m])`"));
        }
    }
    let first = types[0].rank() - 2;
    let [m, n] = sizes(types[0]);
    if of.square() && m != n {
        let text = format!(
            "{name} takes square matrices, and operand {}, {}, has {m}×{n}",
            operands[0].number(0),
            operands[0].told()
        );
        let help = match name {
            "solve" => "the nearest solution: `a.lstsq(&b, None)`",
            "inv" => "the inverse of what has one: `.pinv(None)`",
            _ => "make both sizes equal: `slice`, `pad`",
        };
        return Err(Fault::new(ErrorKind::Shape, text).help(help).dim(0, first).dim(0, first + 1));
    }
    let mut k = 0;
    if let [a, b] = types[..] {
        let (same, other) = (of.shared(), 1 - of.shared());
        let number = |k: usize| operands[k].number(k);
        if a.shape[..first] != b.shape[..b.rank() - 2] {
            let text = format!(
                "operand {}, {}, and operand {}, {}, are not as many matrices",
                number(0),
                operands[0].told(),
                number(1),
                operands[1].told()
            );
            return Err(Fault::new(ErrorKind::Shape, text).help(format!(
                "repeat the one: `.broadcast_to(…)` of operand {}",
                number(if a.rank() < b.rank() { 0 } else { 1 })
            )));
        }
        if sizes(b)[same] != n {
            let (d, text) = (first + same, format!("{}×{}", sizes(b)[0], sizes(b)[1]));
            let text = format!(
                "operand {} has matrices of {n}×{n}, operand {} of {text}: {} must be of size {n}",
                number(0),
                number(1),
                operands[1].dimension(1, d)
            );
            return Err(Fault::new(ErrorKind::Shape, text)
                .help("make them fit: `slice`, `pad`, `.t()`")
                .dim(1, d));
        }
        k = sizes(b)[other];
    }
    let lead = &types[0].shape[..first];
    let one = |(kind, dims): (Kind, Shape)| {
        let dtype = if kind == Kind::Int { DType::I32 } else { dtype };
        (dtype, lead.iter().chain(dims.iter()).copied().collect())
    };
    Ok(of.made([m, n, k]).into_iter().map(one).collect())
}

/// From the factors; operands are whole values.
fn types(of: &impl Primitive, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
    let types = typing::by_factors(of, operands)?;
    // derivatives are products, which forget that a value is reduced
    for (k, o) in operands.iter().enumerate() {
        let ty = o.told();
        let reduced = ty.spec.reduced_axes();
        if !reduced.is_empty() {
            let is_manual =
                |a: &Axis| ty.mesh.as_ref().and_then(|m| m.axis_type(*a)) == Some(AxisType::Manual);
            let (manual, explicit): (Vec<Axis>, Vec<Axis>) = reduced.iter().partition(is_manual);
            let k = o.number(k);
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
            return Err(Fault::new(ErrorKind::Sharding, text).help(help).mark(k, Spot::Sets));
        }
    }
    Ok(types)
}

/// Loops of a batch that passes, and of matrices that are needed whole; those of results are new.
fn whole(operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
    let batch = operands[0].rank() - 2;
    let mut f = Factors::default();
    let join = (operands.len() > 1).then_some(Join::Equal);
    for n in &operands[0].shape[..batch] {
        let l = f.add(*n);
        f.loops[l].join = join;
    }
    for ty in operands {
        let matrix = sizes(ty).map(|n| {
            let l = f.add(n);
            f.loops[l].whole = true;
            l
        });
        f.operands.push(Dim::each((0..batch).chain(matrix)));
    }
    for (_, shape) in results {
        let new: Vec<usize> = shape[batch..].iter().map(|n| f.add(*n)).collect();
        f.results.push(Dim::each((0..batch).chain(new)));
    }
    f
}

/// Which elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Lower,
    BelowDiagonal,
    Upper,
    AboveDiagonal,
    Diagonal,
}

/// Matrices in derivative rules.
impl Builder {
    fn of(&mut self, prim: impl Primitive, x: &Value) -> Result<Value> {
        self.emit1(Arc::new(prim) as Prim, std::slice::from_ref(x))
    }
    /// The products of matrices.
    fn matmul(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let batch = x.ty.rank() - 2;
        let lead: Vec<usize> = (0..batch).collect();
        let (contracting, batch) = ([vec![batch + 1], vec![batch]], [lead.clone(), lead]);
        self.dot_general(x, y, DotGeneral { contracting, batch, ..DotGeneral::default() })
    }
    /// The transposed matrices.
    fn turned(&mut self, x: &Value) -> Result<Value> {
        let mut order: Vec<usize> = (0..x.ty.rank()).collect();
        order.swap(x.ty.rank() - 2, x.ty.rank() - 1);
        self.transpose(x, &order)
    }
    /// (x + xᵀ)/2
    fn symmetric(&mut self, x: &Value) -> Result<Value> {
        let turned = self.turned(x)?;
        let sum = self.add(x, &turned)?;
        self.times(&sum, 0.5)
    }
    /// Where an element of matrices of this type is in that part.
    fn within(&mut self, like: &ArrayType, part: Part) -> Result<Value> {
        // new values vary over nothing
        let spec = Spec::of(like.spec.dims().to_vec());
        let ty = ArrayType { dtype: DType::I32, spec, varying: Axes::none(), ..like.clone() };
        let (row, column) = (self.iota(&ty, ty.rank() - 2)?, self.iota(&ty, ty.rank() - 1)?);
        let compare = match part {
            Part::Lower => Binary::Ge,
            Part::BelowDiagonal => Binary::Gt,
            Part::Upper => Binary::Le,
            Part::AboveDiagonal => Binary::Lt,
            Part::Diagonal => Binary::Eq,
        };
        self.binary(compare, &row, &column)
    }
    /// The part of matrices, and zeros elsewhere.
    fn part(&mut self, x: &Value, part: Part) -> Result<Value> {
        let (within, zero) = (self.within(&x.ty, part)?, self.zero_beside(&x.ty)?);
        self.select(&within, x, &zero)
    }
    /// x, and 1 on the diagonal.
    fn with_ones(&mut self, x: &Value) -> Result<Value> {
        let (within, one) =
            (self.within(&x.ty, Part::Diagonal)?, Value::literal(x.ty.dtype, Scalar::one(x.ty.dtype)));
        self.select(&within, &one, x)
    }
    /// A number for each row of matrices: a vector as a column.
    fn rows_of(&mut self, x: &Value) -> Result<Value> {
        self.expand_dims(x, &[x.ty.rank()])
    }
    /// A number for each column.
    fn columns_of(&mut self, x: &Value) -> Result<Value> {
        self.expand_dims(x, &[x.ty.rank() - 1])
    }
    /// The sum over rows of x·y, element by element.
    fn sum_of_rows(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let product = self.mul(x, y)?;
        self.reduce_sum(&product, &[x.ty.rank() - 2], None)
    }
    /// The sum over matrices of x·y, element by element.
    fn inner(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let product = self.mul(x, y)?;
        self.reduce_sum(&product, &[x.ty.rank() - 2, x.ty.rank() - 1], None)
    }
    /// Unsharded along these dimensions.
    fn unsplit(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        let entries = x.ty.spec.padded(x.ty.rank()).dims().iter().cloned().enumerate();
        let entries = entries.map(|(d, e)| if dims.contains(&d) { Axes::none() } else { e }).collect();
        let want = ArrayType { spec: x.ty.spec.with_dims(entries), ..x.ty.clone() };
        self.reshard_to(x, &want)
    }
}
