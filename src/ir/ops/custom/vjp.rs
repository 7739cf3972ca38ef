//! Derivatives of custom operations, by the user's VJP rule.
//!
//! A VJP rule only maps cotangents backward. In reverse mode, the JVP therefore emits a linear
//! placeholder primitive, [`CustomLin`], that is never executed: its transpose is the program of
//! the rule. Forward mode transposes the rule instead (`grad::custom`).

use super::CustomPrim;
use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Shape};
use crate::ir::program::dce::{dce, retain_outputs, used_inputs};
use crate::ir::program::{
    BatchedOp, Builder, Dim, Factors, JvpArgs, Linearity, LoopNest, Primitive, Program, Tangents,
    TransposeArgs, TypedOperand, Value, VmapArgs, typing::cotangent_type,
};
use std::sync::Arc;

/// The recorded VJP rule, restricted to the operands that are differentiated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BackwardProgram {
    /// The program that computes the cotangents of these operands.
    /// It takes the residuals, then the cotangents of the float results.
    pub(crate) program: Arc<Program>,
    /// The operands and results that the program reads, by index among operands, then results.
    pub(crate) residuals: Vec<usize>,
}

/// A linear placeholder for the tangents of the float results; it can only be transposed.
///
/// Its operands are the residuals of the rule, then the tangents of the operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CustomLin {
    /// The name of the custom operation.
    pub(crate) name: &'static str,
    /// The recorded VJP rule.
    pub(crate) backward: BackwardProgram,
    /// The types of the tangents.
    pub(crate) types: Vec<ArrayType>,
}

impl CustomPrim {
    /// Records the VJP rule for the active operands, which must be floats.
    pub(crate) fn backward_program(
        &self,
        b: &Builder,
        operands: &[Value],
        outputs: &[Value],
        active: &[bool],
    ) -> Result<BackwardProgram> {
        let name = self.declaration.name;
        let Some(rule) = &self.declaration.vjp_rule else {
            let fault = fault!(Unsupported, "{name} has no derivative")
                .help("say how cotangents go back: `.derivative(|operands, results, cotangents| …)`")
                .help("or hold its operands constant: `.stop_gradient()`");
            return Err(b.error(fault, name, operands));
        };
        let types = |all: &[Value]| all.iter().map(|v| v.ty.clone()).collect::<Vec<_>>();
        let program = rule.f.record(self, &types(operands), &types(outputs))?;
        let floats = (0..operands.len()).filter(|k| operands[*k].ty.dtype.is_float());
        let requested: Vec<bool> = floats.map(|k| active[k]).collect();
        let mut program = dce(&retain_outputs(&program, &requested));
        let given = operands.len() + outputs.len();
        let used = used_inputs(&program);
        let reads: Vec<usize> = (0..given).filter(|k| used[*k]).collect();
        let mut at = 0;
        program.inputs.retain(|_| (at >= given || used[at], at += 1).0);
        Ok(BackwardProgram { program: Arc::new(program), residuals: reads })
    }
    /// Returns the tangents of the results.
    pub(super) fn jvp_rule(&self, args: JvpArgs<'_>) -> Result<Tangents> {
        let JvpArgs { builder: b, operands, tangents, outputs } = args;
        let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        // VJP rules are defined for floats only.
        let complex = |v: &Value| v.ty.dtype.is_complex();
        if outputs.iter().any(complex)
            || operands.iter().zip(&active).any(|(v, active)| *active && complex(v))
        {
            let message = format!("{} has no derivative through complex numbers", self.declaration.name);
            let fault = Fault::new(ErrorKind::Unsupported, message)
                .help("take parts, `.real()` and `.imag()`, and put results together: `.complex(..)`")
                .help("or hold its operands constant: `.stop_gradient()`");
            return Err(b.error(fault, self.declaration.name, operands));
        }
        let float = |v: &&Value| v.ty.dtype.is_float();
        let types: Vec<ArrayType> = outputs.iter().filter(float).map(|v| v.ty.clone()).collect();
        if types.is_empty() {
            return Ok(vec![None; outputs.len()]);
        }
        let back = self.backward_program(b, operands, outputs, &active)?;
        let all: Vec<&Value> = operands.iter().chain(outputs).collect();
        let inputs = back.residuals.iter().map(|k| all[*k]).chain(tangents.iter().flatten()).cloned();
        let inputs: Vec<Value> = inputs.collect();
        let made =
            b.emit(Arc::new(CustomLin { name: self.declaration.name, backward: back, types }), &inputs)?;
        let mut made = made.into_iter();
        Ok(outputs.iter().map(|v| if float(&v) { made.next() } else { None }).collect())
    }
}

impl Primitive for CustomLin {
    described!(self, self.name, Linearity::None, "tangents".into());
    fn shapes(&self, _: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(self.types.iter().map(|ty| (ty.dtype, ty.shape.clone())).collect())
    }
    fn types(&self, _: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        Ok(self.types.clone())
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = Factors::default();
        let mut each =
            |shape: &Shape| shape.iter().map(|n| Dim::identity(f.add_loop(*n))).collect::<Vec<_>>();
        let operands = operands.iter().map(|ty| each(&ty.shape)).collect();
        let results = results.iter().map(|(_, shape)| each(shape)).collect();
        Factors { operands, results, ..f }
    }
    fn jvp(&self, JvpArgs { builder: b, .. }: JvpArgs<'_>) -> Result<Tangents> {
        Err(self.reverse_only_error(b))
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, cotangents, .. } = args;
        let known = self.backward.residuals.len();
        let residuals: Option<Vec<Value>> = operands[..known].iter().cloned().collect();
        let Some(mut inputs) = residuals else {
            return Err(crate::ir::program::typing::not_linear_error(self.name));
        };
        for (ct, ty) in cotangents.iter().zip(&self.types) {
            inputs.push(match ct {
                Some(ct) => ct.clone(),
                None => b.zeros(&cotangent_type(ty))?,
            });
        }
        let made = b.inline(&self.backward.program, &inputs).into_iter().map(Some);
        Ok(std::iter::repeat_n(None, known).chain(made).collect())
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        unreachable!("derivatives are transposed before they are mapped")
    }
    fn loop_nests(&self, _: &[ArrayType], _: &[ArrayType]) -> Vec<LoopNest> {
        unreachable!("derivatives are transposed before they run")
    }
}

impl CustomLin {
    /// Returns the error for differentiating the derivative in forward mode.
    fn reverse_only_error(&self, b: &Builder) -> crate::core::diagnostic::Error {
        let fault = fault!(Unsupported, "the derivative of {} goes backward only", self.name)
            .help("use `grad` or `vjp`: forward mode needs a rule that can be transposed");
        b.error(fault, self.name, &[])
    }
}
