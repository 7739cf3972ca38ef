//! What structural primitives share: views as sentences, and small checks of parameters.

use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, AxisType};
use crate::program::sentence::{Affine, Body, Code, Part, Read, Sentence, Source, Span};
use crate::program::{Builder, Operand, Prim, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, Scalar};

/// The operands' types, if there are `n` of them.
pub(crate) fn arity<'a>(name: &str, operands: &'a [Operand], n: usize) -> Result<Vec<&'a ArrayType>, Fault> {
    if operands.len() != n {
        return Err(Fault::new(
            ErrorKind::Shape,
            format!("{name} takes {n} operands, but got {}", operands.len()),
        ));
    }
    Ok(operands.iter().map(|o| &o.ty).collect())
}

/// A `shape` fault.
pub(crate) fn shape_fault(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// Refuses dimensions that the rank does not have, or that appear twice.
pub(crate) fn check_dims(what: &str, dims: &[usize], rank: usize) -> Result<(), Fault> {
    for (i, d) in dims.iter().enumerate() {
        if *d >= rank {
            let fault = shape_fault(format!("there is no {what} {d} among {rank} dimensions"));
            return Err(match rank {
                0 => fault.help("a scalar has no dimensions"),
                _ => fault.help(format!("dimensions are 0 to {}", rank - 1)),
            });
        }
        if dims[..i].contains(d) {
            return Err(shape_fault(format!("{what} {d} is named twice")).help("name each dimension once"));
        }
    }
    Ok(())
}

/// The sentence of a result that is these parts of its operands, element by element.
pub(crate) fn view(result: &ArrayType, parts: Vec<Part>, fill: Scalar) -> Vec<Sentence> {
    let dtype = result.dtype.storage();
    vec![Sentence {
        extents: result.shape.to_vec(),
        rank: result.rank(),
        dtype,
        reads: vec![Read { dtype, parts, fill }],
        body: Body::Map(Code::copy(dtype)),
    }]
}

/// The sentence of a result whose dimension `loops[d]` is dimension d of operand 0 (`None`: of size 1, read at every step).
pub(crate) fn plain_view(result: &ArrayType, loops: &[Option<usize>]) -> Vec<Sentence> {
    let read = Read::plain(0, result.dtype.storage(), &result.shape, loops);
    view(result, read.parts, read.fill)
}

/// A part of the result's box `span` that reads operand `operand` at `map`.
pub(crate) fn part(operand: usize, span: Vec<Span>, map: Vec<Affine>) -> Part {
    Part { from: Source::Value(operand), span, map }
}

/// Sizes as parameters print them: `[4,2]`.
pub(crate) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}

/// `, out=p![…]`, where a sharding is asked for.
pub(crate) fn print_out(out: Option<Spec>) -> String {
    out.map_or_else(String::new, |spec| format!(", out={spec}"))
}

impl Builder {
    /// Applies a primitive of one result that can be asked for a sharding: without asking, where that already gives the
    /// sharding of `want` over explicit axes, else with it. What is wanted unreduced and is not is reduced first.
    pub(crate) fn emit_as(
        &mut self,
        make: impl Fn(Option<Spec>) -> Prim,
        inputs: &[Value],
        want: Spec,
    ) -> Result<Value> {
        let free = make(None);
        let Some(mesh) = inputs.iter().find_map(|v| v.ty.mesh.clone()) else {
            return self.emit1(free, inputs);
        };
        let operands: Vec<_> = inputs.iter().map(|v| Operand::new(v.ty.clone(), v.is_literal())).collect();
        let explicit = |s: Spec| s.only(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
        let comes = free.types(&operands).ok().map(|types| explicit(types[0].spec));
        let want = explicit(want);
        let prim = |want: Spec| if comes == Some(want) { free.clone() } else { make(Some(want)) };
        let asked = prim(want);
        if !want.unreduced_axes().is_empty() && asked.types(&operands).is_err() {
            let whole = self.emit1(prim(want.unreduced(Axes::none())), inputs)?;
            return self.reshard(&whole, &mesh, want);
        }
        self.emit1(asked, inputs)
    }
}
