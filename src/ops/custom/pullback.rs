//! How cotangents go back through a user's operation, as its rule says.
//!
//! A rule goes one way only, so tangents go through a stand-in, which is linear in them and never runs: turned round it is the rule's program.

use super::Custom;
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::cotangent_type;
use crate::program::dce::{dce, keep, used};
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::Sentence;
use crate::program::{Back, Batch, Batched, Builder, Forward, Operand, Primitive, Program, Tangents, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// The rule's program for the operands that are differentiated by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Backward {
    /// Inputs: what it reads of the operands and results, then the cotangents of results that are floats. Results: the cotangents of
    /// these operands.
    pub(crate) program: Arc<Program>,
    /// What it reads: the number among the operands, then the results.
    pub(crate) reads: Vec<usize>,
}

/// The tangents of an operation's results that are floats, from what its rule reads and the operands' tangents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pullback {
    /// The operation's name.
    pub(crate) name: &'static str,
    /// Its rule.
    pub(crate) back: Backward,
    /// The types of the tangents.
    pub(crate) types: Vec<ArrayType>,
}

impl Custom {
    /// The way back to these operands, all of which are floats.
    pub(crate) fn backward(
        &self,
        b: &Builder,
        operands: &[Value],
        outputs: &[Value],
        active: &[bool],
    ) -> Result<Backward> {
        let name = self.of.name;
        let Some(rule) = &self.of.rule else {
            let fault = Fault::new(ErrorKind::Unsupported, format!("{name} has no derivative"))
                .help("say how cotangents go back: `.derivative(|operands, results, cotangents| …)`")
                .help("or hold its operands constant: `.stop_gradient()`");
            return Err(b.refuse(fault, name, operands));
        };
        let types = |all: &[Value]| all.iter().map(|v| v.ty.clone()).collect::<Vec<_>>();
        let program = rule.f.record(self, &types(operands), &types(outputs))?;
        let floats = (0..operands.len()).filter(|k| operands[*k].ty.dtype.is_float());
        let wanted: Vec<bool> = floats.map(|k| active[k]).collect();
        let mut program = dce(&keep(&program, &wanted));
        let given = operands.len() + outputs.len();
        let used = used(&program);
        let reads: Vec<usize> = (0..given).filter(|k| used[*k]).collect();
        let mut at = 0;
        program.inputs.retain(|_| (at >= given || used[at], at += 1).0);
        Ok(Backward { program: Arc::new(program), reads })
    }
    /// Tangents of the results.
    pub(super) fn push_forward(
        &self,
        Forward { b, operands, tangents, outputs }: Forward<'_>,
    ) -> Result<Tangents> {
        let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        // a rule speaks of floats
        let complex = |v: &Value| v.ty.dtype.is_complex();
        if outputs.iter().any(complex)
            || operands.iter().zip(&active).any(|(v, active)| *active && complex(v))
        {
            let message = format!("{} has no derivative through complex numbers", self.of.name);
            let fault = Fault::new(ErrorKind::Unsupported, message)
                .help("take parts, `.real()` and `.imag()`, and put results together: `.complex(..)`")
                .help("or hold its operands constant: `.stop_gradient()`");
            return Err(b.refuse(fault, self.of.name, operands));
        }
        let float = |v: &&Value| v.ty.dtype.is_float();
        let types: Vec<ArrayType> = outputs.iter().filter(float).map(|v| v.ty.clone()).collect();
        if types.is_empty() {
            return Ok(vec![None; outputs.len()]);
        }
        let back = self.backward(b, operands, outputs, &active)?;
        let all: Vec<&Value> = operands.iter().chain(outputs).collect();
        let inputs = back.reads.iter().map(|k| all[*k]).chain(tangents.iter().flatten()).cloned();
        let inputs: Vec<Value> = inputs.collect();
        let made = b.emit(Arc::new(Pullback { name: self.of.name, back, types }), &inputs)?;
        let mut made = made.into_iter();
        Ok(outputs.iter().map(|v| if float(&v) { made.next() } else { None }).collect())
    }
}

impl Primitive for Pullback {
    fn name(&self) -> &'static str {
        self.name
    }
    fn params(&self) -> String {
        "tangents".into()
    }
    fn shapes(&self, _: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(self.types.iter().map(|ty| (ty.dtype, ty.shape.clone())).collect())
    }
    fn types(&self, _: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        Ok(self.types.clone())
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = Factors::default();
        let mut each = |shape: &Shape| shape.iter().map(|n| Dim::same(f.add(*n))).collect::<Vec<_>>();
        let operands = operands.iter().map(|ty| each(&ty.shape)).collect();
        let results = results.iter().map(|(_, shape)| each(shape)).collect();
        Factors { operands, results, ..f }
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { b, .. }: Forward<'_>) -> Result<Tangents> {
        Err(self.one_way(b))
    }
    fn transpose(&self, Back { b, operands, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let known = self.back.reads.len();
        let residuals: Option<Vec<Value>> = operands[..known].iter().cloned().collect();
        let Some(mut inputs) = residuals else { return Err(crate::ops::build::not_linear(self.name)) };
        for (ct, ty) in cotangents.iter().zip(&self.types) {
            inputs.push(match ct {
                Some(ct) => ct.clone(),
                None => b.zeros(&cotangent_type(ty))?,
            });
        }
        let made = b.inline(&self.back.program, &inputs).into_iter().map(Some);
        Ok(std::iter::repeat_n(None, known).chain(made).collect())
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        unreachable!("derivatives are turned round before they are mapped")
    }
    fn sentences(&self, _: &[ArrayType], _: &[ArrayType]) -> Vec<Sentence> {
        unreachable!("derivatives are turned round before they run")
    }
}

impl Pullback {
    fn one_way(&self, b: &Builder) -> crate::diagnostic::Error {
        let text = format!("the derivative of {} goes backward only", self.name);
        let fault = Fault::new(ErrorKind::Unsupported, text)
            .help("use `grad` or `vjp`: in forward mode it is the rule turned round, where that can be");
        b.refuse(fault, self.name, &[])
    }
}
