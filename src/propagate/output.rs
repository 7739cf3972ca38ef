//! Results that must lie elsewhere than they do are returned as copies.

use crate::diagnostic::{Fault, Result};
use crate::program::Var;
use crate::program::sentence::{Body, Code, Read, Sentence};
use crate::program::{
    Builder, Dim, Equation, Factors, Input, Linearity, Op, Operand, Placement, Primitive, Program, Rank,
    Tangents, Value, VarInfo,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// Adds a copy of each result that does not lie as asked.
pub(super) fn settle(program: &mut Program, wanted: &[Option<Placement>]) {
    for (k, wanted) in wanted.iter().enumerate().take(program.outputs.len()) {
        let (Some(wanted), Input::Var(var)) = (wanted, program.outputs[k]) else { continue };
        if program.vars[var.index()].placement.as_ref() == Some(wanted) {
            continue;
        }
        let made_by = |e: &&Equation| e.outputs.contains(&var);
        let place = program.equations.iter().find(made_by).and_then(|e| e.place);
        let ty = program.ty(var).clone();
        let copy = Var(program.vars.len() as u32);
        program.vars.push(VarInfo { ty, placement: Some(wanted.clone()) });
        program.equations.push(Equation {
            op: Op::Prim(Arc::new(Relay)),
            inputs: vec![Input::Var(var)],
            outputs: vec![copy],
            place,
        });
        program.outputs[k] = Input::Var(copy);
    }
}

/// The value itself, as a value of its own that may lie elsewhere.
#[derive(Debug)]
struct Relay;

impl Primitive for Relay {
    fn name(&self) -> &'static str {
        "reshard"
    }
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(operands.iter().take(1).map(|o| (o.ty.dtype, o.ty.shape.clone())).collect())
    }
    fn factors(&self, _: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = Factors::default();
        let dims: Vec<Dim> = results[0].1.iter().map(|n| Dim::same(f.add(*n))).collect();
        f.operands = vec![dims.clone()];
        f.results = vec![dims];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn rank(&self) -> Rank {
        Rank::Elementwise
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, b: &mut Builder, _: &[Value], tangents: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        relay(b, &tangents[0])
    }
    fn transpose(
        &self,
        b: &mut Builder,
        _: &[Option<Value>],
        _: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
        relay(b, &cotangents[0])
    }
    fn sentences(&self, operands: &[ArrayType], _: &[ArrayType]) -> Vec<Sentence> {
        let ArrayType { dtype, shape, .. } = &operands[0];
        let (dtype, loops): (_, Vec<_>) = (dtype.storage(), (0..shape.rank()).map(Some).collect());
        vec![Sentence {
            extents: shape.to_vec(),
            rank: shape.rank(),
            dtype,
            reads: vec![Read::plain(0, dtype, shape, &loops)],
            body: Body::Map(Code::copy(dtype)),
        }]
    }
    fn cost(&self) -> f64 {
        0.0
    }
}

fn relay(b: &mut Builder, value: &Option<Value>) -> Result<Tangents> {
    value.as_ref().map(|v| b.emit1(Arc::new(Relay), std::slice::from_ref(v))).transpose().map(|v| vec![v])
}
