//! Writes loop nests: scalar code, reductions, contractions and reshapes.
//!
//! This code handles all primitives in the same way, by their loop nests.

use super::syntax::{list, tensor};
use super::writer::{Ssa, Writer, accum_dtype, precision_name};
use super::{FaultResult, unsupported};
use crate::core::{DType, Precision, util::small_sort};
use crate::ir::program::{Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source};

impl Writer {
    /// Writes a loop nest with these operands, and returns its result.
    pub(super) fn loop_nest(&mut self, s: &LoopNest, operands: &[Ssa]) -> FaultResult<Ssa> {
        match &s.compute {
            Compute::Map(code) => self.code(code, s, operands),
            Compute::Reduce { reducer: combine, code } => self.fold(*combine, code, s, operands),
            Compute::Contract { accum_dtype: accumulate, precision } => {
                self.contract((*accumulate, *precision), s, operands)
            }
            Compute::Gather { indices: at } => self.gather(at, s, operands),
            Compute::Scatter { indices: at, reducer: combine } => self.scatter(at, *combine, s, operands),
            Compute::Reshape => match s.accesses[0].pieces[0].source {
                Source::Value(k) => match operands[k].splat {
                    Some(c) => Ok(self.constant(s.dtype, c, &s.extents)),
                    None => Ok(self.reshape(&operands[k], &s.extents)),
                },
                Source::Const(c) => Ok(self.constant(s.dtype, c, &s.extents)),
            },
            Compute::RowKernel(row_kernel) => {
                let message = format!("the row kernel {:?} has no StableHLO", row_kernel.kernel.key());
                let help = "run this part of the program with a built-in engine: `jit(..).engine(EngineKind::Lockstep)`";
                Err(unsupported(message).help(help))
            }
        }
    }

    fn fold(
        &mut self,
        combine: Reducer,
        code: &ScalarCode,
        s: &LoopNest,
        operands: &[Ssa],
    ) -> FaultResult<Ssa> {
        let whole = |w: &mut Self| Ok((w.code(code, s, operands)?, (s.rank..s.extents.len()).collect()));
        let (x, dims): (Ssa, Vec<usize>) = match &s.accesses[..] {
            // the operand is a full tensor: reduce it directly
            [read] if is_copy(code) => {
                let (x, loops) = self.minimal_read(read, &s.extents, operands)?;
                let kept: Vec<usize> = loops.iter().copied().filter(|l| *l < s.rank).collect();
                let folded = (0..loops.len()).filter(|d| loops[*d] >= s.rank).collect();
                let all = loops.len() == s.extents.len();
                if all && kept.is_sorted() { (x, folded) } else { whole(self)? }
            }
            _ => whole(self)?,
        };
        // sums and products of 16-bit floats are accumulated in float32 and rounded once
        let rounds = matches!(combine, Reducer::Add | Reducer::Mul);
        let wide = if rounds { accum_dtype(s.dtype) } else { s.dtype };
        let x = self.convert(&x, wide);
        let out = self.reduce(&x, reducer_op(combine), combine.neutral(wide), &dims);
        Ok(self.convert(&out, s.dtype))
    }

    fn contract(
        &mut self,
        (accumulate, precision): (DType, Precision),
        s: &LoopNest,
        operands: &[Ssa],
    ) -> FaultResult<Ssa> {
        let [a, b] = &s.accesses[..] else { return Err(unsupported("a product of other than two reads")) };
        let mut sides =
            [self.minimal_read(a, &s.extents, operands)?, self.minimal_read(b, &s.extents, operands)?];
        // broadcast the operands so that both have the reduced loops, and one of them has each loop
        // of the result
        for l in 0..s.extents.len() {
            let known = [sides[0].1.contains(&l), sides[1].1.contains(&l)];
            for (k, (x, loops)) in sides.iter_mut().enumerate() {
                let wants = if l < s.rank { known == [false, false] && k == 0 } else { !known[k] };
                if wants {
                    let mut shape = x.shape.clone();
                    shape.push(s.extents[l]);
                    *x = self.broadcast(x, &(0..loops.len()).collect::<Vec<_>>(), &shape);
                    loops.push(l);
                }
            }
        }
        let [(x, xl), (y, yl)] = &sides;
        let place = |loops: &[usize], l: usize| loops.iter().position(|m| *m == l);
        let mut both: Vec<usize> = xl.iter().copied().filter(|l| yl.contains(l)).collect();
        small_sort::sort(&mut both);
        let (batch, summed): (Vec<usize>, Vec<usize>) = both.into_iter().partition(|l| *l < s.rank);
        let own = |a: &[usize], b: &[usize]| a.iter().copied().filter(|l| !b.contains(l)).collect::<Vec<_>>();
        let order: Vec<usize> = batch.iter().copied().chain(own(xl, yl)).chain(own(yl, xl)).collect();
        let dims = |loops: &[usize], of: &[usize]| list(of.iter().filter_map(|l| place(loops, *l)));
        let shape: Vec<usize> = order.iter().map(|l| s.extents[*l]).collect();
        let batching = match batch.is_empty() {
            true => String::new(),
            false => format!("batching_dims = {} x {}, ", dims(xl, &batch), dims(yl, &batch)),
        };
        let text = format!(
            "stablehlo.dot_general {}, {}, {batching}contracting_dims = {} x {}{}",
            x.name,
            y.name,
            dims(xl, &summed),
            dims(yl, &summed),
            match precision_name(precision, [x, y]) {
                Some(name) => format!(", precision = [{name}, {name}]"),
                None => String::new(),
            },
        );
        // XLA accumulates products of 16-bit floats in float32, whatever the type of the result
        let rounded_once = accumulate == accum_dtype(s.dtype) && [x, y].iter().all(|x| x.dtype == s.dtype);
        let dtype = if rounded_once { s.dtype } else { accumulate };
        let out = self.typed(&text, &[x, y], dtype, &shape);
        let back: Vec<usize> = (0..s.rank).filter_map(|l| place(&order, l)).collect();
        let out = self.transpose(&out, &back);
        Ok(self.convert(&out, s.dtype))
    }

    /// Writes the region that combines two elements; without a reducer it returns the second one.
    pub(super) fn reducer_region(&mut self, combine: Option<Reducer>, dtype: DType) {
        self.scalar_region(&[dtype, dtype], |w, args| match combine {
            None => vec![args[1].clone()],
            Some(c) => vec![w.elementwise(reducer_op(c), &[&args[0], &args[1]])],
        });
    }
    /// Writes an operation with one result that ends in a region of scalars.
    pub(super) fn with_region(
        &mut self,
        head: &str,
        args: &[&Ssa],
        out: (DType, &[usize]),
        region: impl FnOnce(&mut Self),
    ) -> Ssa {
        let value = self.new_value(out.0, out.1);
        self.fragment(&format!("{} = {head} ({{", value.name));
        self.indented(region);
        let operands = super::writer::types(args.iter().copied());
        self.line(&format!("}}) : ({operands}) -> {}", tensor(out.0, out.1)));
        value
    }
}

fn is_copy(code: &ScalarCode) -> bool {
    matches!(&code.insts[..], [i] if i.op == ScalarOp::Copy && i.args[..] == [ScalarArg::Access(0)])
}

pub(super) fn reducer_op(c: Reducer) -> &'static str {
    match c {
        Reducer::Add => "add",
        Reducer::Mul => "multiply",
        Reducer::Max => "maximum",
        Reducer::Min => "minimum",
        Reducer::And => "and",
        Reducer::Or => "or",
        // no program contains this reducer, and the per-device results that it combines are equal
        Reducer::AssumeEqual => "maximum",
    }
}
