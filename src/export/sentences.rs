//! Sentences as operations: code, folds, products, reshapes. No primitive is named here.

use super::text::{list, tensor};
use super::writer::{Ssa, Writer};
use super::{Out, unsupported};
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Sentence, Source};
use crate::sorted;
use crate::types::DType;

impl Writer {
    /// What one sentence makes of these operands.
    pub(super) fn sentence(&mut self, s: &Sentence, operands: &[Ssa]) -> Out<Ssa> {
        match &s.body {
            Body::Map(code) => self.code(code, s, operands),
            Body::Fold { combine, code } => self.fold(*combine, code, s, operands),
            Body::Product { accumulate } => self.product(*accumulate, s, operands),
            Body::Take { at } => self.take(at, s, operands),
            Body::Put { at, combine } => self.put(at, *combine, s, operands),
            Body::Reshape => match s.reads[0].parts[0].from {
                Source::Value(k) => match operands[k].splat {
                    Some(c) => Ok(self.constant(s.dtype, c, &s.extents)),
                    None => Ok(self.reshape(&operands[k], &s.extents)),
                },
                Source::Const(c) => Ok(self.constant(s.dtype, c, &s.extents)),
            },
            Body::Lines(lines) => {
                let refused = format!("the function of lines {:?} has no StableHLO", lines.of.key());
                let help =
                    "run this part of the program by our own engines: `jit(..).engine(EngineKind::Lockstep)`";
                Err(unsupported(refused).help(help))
            }
        }
    }

    fn fold(&mut self, combine: Combine, code: &Code, s: &Sentence, operands: &[Ssa]) -> Out<Ssa> {
        let whole = |w: &mut Self| Ok((w.code(code, s, operands)?, (s.rank..s.extents.len()).collect()));
        let (x, dims): (Ssa, Vec<usize>) = match &s.reads[..] {
            // a whole operand: reduce it where it is
            [read] if is_copy(code) => {
                let (x, loops) = self.slim(read, &s.extents, operands)?;
                let kept: Vec<usize> = loops.iter().copied().filter(|l| *l < s.rank).collect();
                let folded = (0..loops.len()).filter(|d| loops[*d] >= s.rank).collect();
                let all = loops.len() == s.extents.len();
                if all && kept.is_sorted() { (x, folded) } else { whole(self)? }
            }
            _ => whole(self)?,
        };
        // 16-bit floats are combined in float32 and rounded once
        let wide = if matches!(s.dtype, DType::F16 | DType::BF16) { DType::F32 } else { s.dtype };
        let x = self.convert(&x, wide);
        let out = self.reduce(&x, combiner(combine), combine.neutral(wide), &dims);
        Ok(self.convert(&out, s.dtype))
    }

    fn product(&mut self, accumulate: DType, s: &Sentence, operands: &[Ssa]) -> Out<Ssa> {
        let [a, b] = &s.reads[..] else { return Err(unsupported("a product of other than two reads")) };
        let mut sides = [self.slim(a, &s.extents, operands)?, self.slim(b, &s.extents, operands)?];
        // a summed loop that one side knows runs over both, and a loop of the result over one
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
        let [(x, xl), (y, yl)] = &sides[..] else {
            return Err(unsupported("a product of other than two reads"));
        };
        let place = |loops: &[usize], l: usize| loops.iter().position(|m| *m == l);
        let mut both: Vec<usize> = xl.iter().copied().filter(|l| yl.contains(l)).collect();
        sorted::sort(&mut both);
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
            "stablehlo.dot_general {}, {}, {batching}contracting_dims = {} x {}",
            x.name,
            y.name,
            dims(xl, &summed),
            dims(yl, &summed),
        );
        let out = self.typed(&text, &[x, y], accumulate, &shape);
        let back: Vec<usize> = (0..s.rank).filter_map(|l| place(&order, l)).collect();
        let out = self.transpose(&out, &back);
        Ok(self.convert(&out, s.dtype))
    }

    /// Two elements combined, as a region.
    pub(super) fn combined(&mut self, combine: Option<Combine>, dtype: DType) {
        self.scalars(&[dtype, dtype], |w, args| match combine {
            None => vec![args[1].clone()],
            Some(c) => vec![w.same(combiner(c), &[&args[0], &args[1]])],
        });
    }
    /// An operation of one result that ends in a region of scalars.
    pub(super) fn with_region(
        &mut self,
        head: &str,
        args: &[&Ssa],
        out: (DType, &[usize]),
        region: impl FnOnce(&mut Self),
    ) -> Ssa {
        let value = self.bound(out.0, out.1);
        self.part(&format!("{} = {head} ({{", value.name));
        self.inside(region);
        let operands = super::writer::types(args.iter().copied());
        self.line(&format!("}}) : ({operands}) -> {}", tensor(out.0, out.1)));
        value
    }
}

fn is_copy(code: &Code) -> bool {
    matches!(&code.insts[..], [i] if i.fun == Fun::Copy && i.args[..] == [Arg::Read(0)])
}

pub(super) fn combiner(c: Combine) -> &'static str {
    match c {
        Combine::Add => "add",
        Combine::Mul => "multiply",
        Combine::Max => "maximum",
        Combine::Min => "minimum",
        Combine::And => "and",
        Combine::Or => "or",
        // no program has it, and devices of per-device code are not told apart there
        Combine::Same => "maximum",
    }
}
