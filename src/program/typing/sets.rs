//! The sets of a result: which axes it is unreduced and reduced over.

use super::Rule;
use super::advice::resharded;
use crate::diagnostic::{Fault, Spot};
use crate::mesh::{Axes, Axis, AxisType};
use crate::program::factors::{At, Dim, Linearity, LoopId, Role};
use crate::sharding::Spec;

/// The spec reduced over these axes, which split nothing then.
fn reduced_over(spec: Spec, axes: &Axes) -> Spec {
    spec.only(|a| !axes.contains(a)).reduced(axes)
}

/// How a number becomes an array of this kind.
fn number(kind: &str, spec: Spec) -> String {
    format!("make the number {kind}: `Array::from(…).put(&mesh, {spec})`")
}

impl Rule<'_> {
    fn number(&self, k: usize) -> usize {
        self.operands[k].number(k)
    }
    fn spec(&self, k: usize) -> Spec {
        self.operands[k].told().spec
    }
    /// An operand as messages name it.
    fn named(&self, k: usize) -> String {
        format!("operand {}, {}", self.number(k), self.operands[k].told())
    }
    /// How to sum an unreduced operand.
    fn summed(&self, k: usize) -> String {
        format!("sum operand {} first: `.reshard({})`", self.number(k), self.spec(k).unreduced(Axes::none()))
    }
    fn manual(&self, axis: Axis) -> bool {
        self.mesh.axis_type(axis) == Some(AxisType::Manual)
    }
    /// The unreduced and reduced axes of the results.
    pub(super) fn sets(&self, linearity: Linearity, out: Option<Spec>) -> Result<(Axes, Axes), Fault> {
        let mut real: Vec<(usize, Spec)> = self
            .operands
            .iter()
            .enumerate()
            .filter(|(_, o)| !o.literal)
            .map(|(k, o)| (k, o.ty.spec))
            .collect();
        let mut literal = real.len() < self.operands.len();
        let mut linearity = linearity;
        if let Linearity::Placed(n) | Linearity::Filled(n) = linearity {
            let unreduced = |real: &[(usize, Spec)]| real.iter().any(|(_, s)| !s.unreduced_axes().is_empty());
            let (linear, places): (Vec<_>, Vec<_>) = real.into_iter().partition(|(k, _)| *k < n);
            if unreduced(&places) {
                return Err(self.not_linear(Linearity::Placed(n), &places));
            }
            if matches!(linearity, Linearity::Filled(_)) && unreduced(&linear) {
                return Err(self.not_linear(linearity, &linear));
            }
            literal = linear.len() < n;
            (real, linearity) = (linear, Linearity::Joint);
        }
        if linearity == Linearity::Chosen
            && let [(0, which), chosen @ ..] = &real[..]
        {
            if !which.unreduced_axes().is_empty() {
                return Err(self.not_linear(linearity, &real));
            }
            if !chosen.is_empty() {
                real.remove(0);
            }
        }
        if self.elementwise {
            for (k, spec) in &mut real {
                *spec = spec
                    .reduced(spec.reduced_axes().iter().filter(|a| !self.spread(*k, *a)).collect::<Axes>());
            }
        }
        let (mut u, mut r) = (Axes::none(), Axes::none());
        for (_, spec) in &real {
            u.extend(spec.unreduced_axes());
            r.extend(spec.reduced_axes());
        }
        let joins =
            matches!(linearity, Linearity::Joint | Linearity::Chosen | Linearity::None | Linearity::Sums)
                || linearity == Linearity::Product && u.is_empty();
        if joins {
            self.reduced_alike(&real, literal && r.iter().any(|a| self.manual(a)))?;
        }
        if !u.is_empty() {
            match linearity {
                Linearity::Joint | Linearity::Chosen => self.unreduced_alike(&real, &u, literal)?,
                Linearity::Product => {
                    self.times_reduced(&real, literal)?;
                    r = Axes::none();
                }
                _ => return Err(self.not_linear(linearity, &real)),
            }
        }
        if matches!(linearity, Linearity::Contraction | Linearity::Nullary) {
            r = Axes::none();
        }
        match out {
            Some(out) => self.sets_asked(linearity, out, &u, &r),
            None => Ok((u, r)),
        }
    }
    /// The same where a sharding is asked for: its sets, of results that would be unreduced and reduced over `u` and `r`.
    fn sets_asked(&self, linearity: Linearity, out: Spec, u: &Axes, r: &Axes) -> Result<(Axes, Axes), Fault> {
        // what is asked for speaks of explicit axes; sets over manual ones are the body's own
        let (own, u): (Axes, Axes) =
            (u.iter().filter(|a| self.manual(*a)).collect(), u.iter().filter(|a| !self.manual(*a)).collect());
        let asked = out.unreduced_axes();
        let (partial, even) = self.partial(linearity);
        let sums = (0..self.factors.loops.len())
            .any(|l| self.factors.loops[l].size > 1 && self.factors.role(l) == Role::Sum);
        match linearity {
            Linearity::Contraction if !(asked.is_empty() || even && asked.same_set(&partial)) => {
                return Err(self.not_partial(out, &partial));
            }
            Linearity::Sums if !(asked.is_empty() || even && asked.within(&partial)) => {
                let may = if even { partial } else { Axes::none() };
                return Err(self.not_partial(out, &may));
            }
            Linearity::Joint if !asked.iter().all(|a| partial.contains(a) || u.contains(a)) => {
                let mut may = partial.clone();
                may.extend(&u);
                return Err(self.not_partial(out, &may));
            }
            Linearity::Joint if !u.within(asked) => {
                return Err(self
                    .refuse(format!(
                        "the operand is unreduced over {u}, which the sharding asked for, {out}, leaves out"
                    ))
                    .help(format!(
                        "reshard it first: `x.reshard({})`",
                        self.operands[0].ty.spec.unreduced(Axes::none())
                    ))
                    .mark(0, Spot::Sets));
            }
            Linearity::None | Linearity::Product | Linearity::Nullary if !asked.within(&u) => {
                return Err(self.not_partial(out, &u));
            }
            _ => {}
        }
        let mut unreduced = asked.clone();
        unreduced.extend(&own);
        // the mirror of a sum whose result is unreduced: along a new dimension that is split over a reduced axis each device
        // keeps its own part
        let new = self.new_axes(out);
        let mut reduced: Axes =
            r.iter().filter(|a| linearity != Linearity::Joint || !new.contains(*a)).collect();
        if !sums {
            reduced.extend(out.reduced_axes());
        }
        Ok((unreduced, reduced))
    }
    /// The axes that split the first result's dimensions which no operand has.
    fn new_axes(&self, out: Spec) -> Axes {
        let held = |l: LoopId| {
            self.factors.operands.iter().flatten().any(|d| d.at != At::Stretched && d.loops.contains(&l))
        };
        let new = |dim: &Dim| !dim.loops.iter().any(|l| held(*l));
        let dims = self.factors.results.first().map_or(&[][..], Vec::as_slice);
        let axes = dims.iter().zip(out.dims()).filter(|(dim, _)| new(dim)).flat_map(|(_, axes)| axes.iter());
        axes.collect()
    }
    /// Whether this axis splits a dimension that another operand of an elementwise operation has and operand `k` has not, or has with size
    /// 1: then operand `k`, where it is reduced over the axis, is repeated along that dimension in the blocks of the other, as a broadcast
    /// with that sharding repeats it. The sum over the dimension, on the way back, is its cotangent's sum over the axis.
    fn spread(&self, k: usize, axis: Axis) -> bool {
        let has = |l: &LoopId| {
            self.factors.operands[k].iter().any(|d| d.at != At::Stretched && d.loops.contains(l))
        };
        let others = self.factors.operands.iter().zip(self.operands).enumerate().filter(|(j, _)| *j != k);
        let mut dims =
            others.flat_map(|(_, (dims, o))| dims.iter().enumerate().map(|(d, dim)| (dim, o.ty.spec.dim(d))));
        dims.any(|(dim, axes)| axes.contains(&axis) && !dim.loops.iter().any(has))
    }
    fn reduced_alike(&self, real: &[(usize, Spec)], literal: bool) -> Result<(), Fault> {
        let reduced = real.iter().find(|(_, s)| !s.reduced_axes().is_empty());
        let lacking = reduced
            .and_then(|(_, with)| real.iter().find(|(_, s)| !s.reduced_axes().same_set(with.reduced_axes())));
        match (lacking, reduced) {
            (Some(&(k, _)), Some(&(j, other))) => {
                let fault = self.refuse(format!(
                    "{}, is reduced over {}, but {}, is not",
                    self.named(j),
                    other.reduced_axes(),
                    self.named(k)
                ));
                let mend = |k, spec| format!("reshard operand {}: `.reshard({spec})`", self.number(k));
                let (own, to) = (self.spec(k), reduced_over(self.spec(k), other.reduced_axes()));
                // where the other operand is split over one of them, it would be gathered to be made like this one
                let fault = if own.dims() == to.dims() { fault.help(mend(k, to)) } else { fault };
                Err(fault
                    .help(mend(j, self.spec(j).reduced(Axes::none())))
                    .mark(k, Spot::Sets)
                    .mark(j, Spot::Sets))
            }
            (None, Some((j, other))) if literal => Err(self
                .refuse(format!(
                    "{}, is reduced over {}, but a number is not",
                    self.named(*j),
                    other.reduced_axes()
                ))
                .help(format!("cast it first: `.pcast(…, Cast::Varying)` over {}", other.reduced_axes()))
                .mark(*j, Spot::Sets)),
            _ => Ok(()),
        }
    }
    fn unreduced_alike(&self, real: &[(usize, Spec)], u: &Axes, literal: bool) -> Result<(), Fault> {
        let Some((j, with)) = real.iter().find(|(_, s)| !s.unreduced_axes().is_empty()) else {
            return Ok(());
        };
        let summed = self.summed(*j);
        let other = real.iter().find(|(_, s)| !s.unreduced_axes().same_set(with.unreduced_axes()));
        if let Some((k, _)) = other {
            let wanted = with.unreduced_axes();
            let fault = self
                .refuse(format!(
                    "{}, is unreduced over {wanted}, but {}, is not",
                    self.named(*j),
                    self.named(*k)
                ))
                .mark(*k, Spot::Sets)
                .mark(*j, Spot::Sets);
            let parts = self.spec(*k).only(|a| !wanted.contains(a)).unreduced(wanted);
            return Err(fault
                .help(format!("reshard operand {}: `.reshard({parts})`", self.number(*k)))
                .help(format!("or {summed}")));
        }
        if literal {
            return Err(self
                .refuse(format!(
                    "{}, is unreduced over {u}: a number beside it would count once for each part",
                    self.named(*j)
                ))
                .help(number("unreduced", Spec::whole(0).unreduced(u)))
                .help(format!("or {summed}"))
                .mark(*j, Spot::Sets));
        }
        Ok(())
    }
    /// An unreduced factor wants the other one reduced over the same axes.
    fn times_reduced(&self, real: &[(usize, Spec)], literal: bool) -> Result<(), Fault> {
        let (with, others): (Vec<_>, Vec<_>) = real.iter().partition(|(_, s)| !s.unreduced_axes().is_empty());
        if let ([(_, a)], [(_, b)]) = (&with[..], &others[..])
            && !literal
            && a.unreduced_axes().same_set(b.reduced_axes())
            && a.reduced_axes().is_empty()
        {
            return Ok(());
        }
        let Some((k, spec)) = with.first().copied() else { return Ok(()) };
        let u = spec.unreduced_axes();
        let why = if with.len() > 1 {
            "a product of two unreduced values is not the sum of the products of their parts".to_string()
        } else if literal {
            format!("its factor must be reduced over {u}, and a number is not")
        } else {
            format!("the other factor must be reduced over {u} too")
        };
        let mut fault = self.refuse(format!("{}, is unreduced over {u}: {why}", self.named(k)));
        if let ([_, (j, _)], []) = (&with[..], &others[..]) {
            let whole = |k: usize| self.spec(k).unreduced(Axes::none());
            return Err(fault
                .mark(k, Spot::Sets)
                .mark(*j, Spot::Sets)
                .help(format!(
                    "sum operand {} first: `.reshard({})`",
                    self.number(*j),
                    reduced_over(whole(*j), u)
                ))
                .help(resharded(&[(self.number(k), whole(k)), (self.number(*j), whole(*j))])));
        }
        if let [(j, _)] = &others[..] {
            let to = reduced_over(self.spec(*j), u);
            fault = fault.help(format!("reshard operand {}: `.reshard({to})`", self.number(*j)));
        }
        if literal {
            fault = fault.help(number("reduced", Spec::whole(0).reduced(u)));
        }
        fault = others.iter().fold(fault, |f, (j, _)| f.mark(*j, Spot::Sets));
        fault = with.iter().fold(fault, |f, (k, _)| f.mark(*k, Spot::Sets));
        let or = if fault.help.is_empty() { "" } else { "or " };
        Err(fault.help(format!("{or}{}", self.summed(k))))
    }
    fn not_linear(&self, linearity: Linearity, real: &[(usize, Spec)]) -> Fault {
        let Some((k, spec)) = real.iter().find(|(_, s)| !s.unreduced_axes().is_empty()) else {
            return self.refuse("an operand is unreduced".into());
        };
        let why = match linearity {
            Linearity::Contraction => "its product cannot be left unreduced".to_string(),
            Linearity::Filled(_) => "the value beyond the end would be added once per device".to_string(),
            _ if self.prim == "div" => "a quotient cannot be left unreduced".to_string(),
            _ if self.prim == "convert_element_type" => {
                "a sum is rounded once, not each of its summands".to_string()
            }
            _ => {
                let name = self.prim.strip_prefix("reduce_").unwrap_or(self.prim);
                format!("{name} of a sum is not the sum of {name} of its parts")
            }
        };
        self.refuse(format!("{}, is unreduced over {}: {why}", self.named(*k), spec.unreduced_axes()))
            .help(match self.operands.len() {
                1 => format!("sum it first: `.reshard({})`", self.spec(*k).unreduced(Axes::none())),
                _ => self.summed(*k),
            })
            .mark(*k, Spot::Sets)
    }
    fn not_partial(&self, out: Spec, partial: &Axes) -> Fault {
        let asked = out.unreduced_axes();
        let fault = self.refuse(format!(
            "the result is asked to be unreduced over {asked}, but it is unreduced over {}",
            if partial.is_empty() { "no axis".to_string() } else { format!("{partial} only") }
        ));
        let rank = self.shapes.first().map_or(0, |s| s.1.rank());
        let dims = out.padded(rank).dims().iter();
        let dims = dims.map(|d| d.iter().filter(|a| !partial.contains(*a)).collect()).collect();
        let may = out.with_dims(dims).unreduced(partial);
        match partial.is_empty() {
            true => fault.help(format!(
                "ask for {may}: only a sum over a dimension that is sharded over {asked} is unreduced over it"
            )),
            false => fault.help(format!("ask for {may}")),
        }
    }
    /// The axes along which a split sum leaves partial results (of a contraction: those of loops in two operands), and whether
    /// all that carry such a loop are sharded the same way.
    pub(super) fn partial(&self, linearity: Linearity) -> (Axes, bool) {
        let (mut partial, mut even) = (Axes::none(), true);
        for l in (0..self.factors.loops.len()).filter(|l| self.factors.role(*l) == Role::Sum) {
            let entries = self.factors.operands.iter().zip(self.operands).flat_map(|(dims, o)| {
                dims.iter().enumerate().filter(|(_, d)| d.loops[..] == [l]).map(|(d, _)| o.ty.spec.dim(d))
            });
            // each device reads its block of what is whole
            let mut entries = entries.filter(|e| linearity != Linearity::Sums || !e.is_empty());
            let Some(first) = entries.next() else { continue };
            let (mut count, mut same) = (1, true);
            for e in entries {
                (count, same) = (count + 1, same && e == first);
            }
            if linearity != Linearity::Contraction || count > 1 {
                partial.extend(&Axes::from(first));
                even &= same;
            }
        }
        (partial, even)
    }
}
