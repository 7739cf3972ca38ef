//! The text as it grows: values, operations of one result, and those with regions.

use super::text::{join, list, number, quoted, tensor};
use crate::diagnostic::Place;
use crate::mesh::{Axis, Mesh};
use crate::types::{ArrayType, DType, Scalar};
use std::fmt::Write;

/// A value in the text.
#[derive(Clone, Debug)]
pub(super) struct Ssa {
    pub(super) name: String,
    /// As it is stored.
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The number that it is everywhere. It may have no name yet.
    pub(super) splat: Option<Scalar>,
    /// The axes over which XLA knows it as a sum that is not made. What our type calls unreduced may be whole there: it has the sum.
    pub(super) unreduced: Vec<Axis>,
}

impl Ssa {
    pub(super) fn named(name: String, ty: &ArrayType) -> Ssa {
        Ssa { name, dtype: ty.dtype.storage(), shape: ty.shape.to_vec(), splat: None, unreduced: Vec::new() }
    }
    pub(super) fn ty(&self) -> String {
        tensor(self.dtype, &self.shape)
    }
}

/// `%1, %2`
pub(super) fn names<'a>(values: impl IntoIterator<Item = &'a Ssa>) -> String {
    join(values.into_iter().map(|v| &v.name))
}
/// `tensor<4xf32>, tensor<i1>`
pub(super) fn types<'a>(values: impl IntoIterator<Item = &'a Ssa>) -> String {
    join(values.into_iter().map(Ssa::ty))
}

/// A module as it is written.
pub(super) struct Writer {
    pub(super) out: String,
    depth: usize,
    values: usize,
    channels: usize,
    /// The meshes that are named so far.
    pub(super) meshes: Vec<Mesh>,
    /// The axes that are manual here.
    pub(super) manual: Vec<Axis>,
    /// The user's line of what is written.
    pub(super) place: Option<Place>,
    pub(super) options: super::Options,
}

impl Writer {
    pub(super) fn new(options: super::Options) -> Writer {
        Writer {
            out: String::new(),
            depth: 2,
            values: 0,
            channels: 0,
            meshes: Vec::new(),
            manual: Vec::new(),
            place: None,
            options,
        }
    }
    /// A line; the operation that it ends is the user's line's.
    pub(super) fn line(&mut self, text: &str) {
        let _ = write!(self.out, "{:width$}{text}", "", width = 2 * self.depth);
        if let (Some(p), true) = (self.place, self.options.locations) {
            let _ = write!(self.out, " loc({}:{}:{})", quoted(p.file()), p.line(), p.column());
        }
        self.out.push('\n');
    }
    /// A line within an operation that is not at its end.
    pub(super) fn part(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = 2 * self.depth);
    }
    /// What `body` writes, one step further in.
    pub(super) fn inside<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.depth += 1;
        let out = body(self);
        self.depth -= 1;
        out
    }
    pub(super) fn fresh(&mut self) -> String {
        self.values += 1;
        format!("%{}", self.values - 1)
    }
    /// A value of this type that a region binds.
    pub(super) fn bound(&mut self, dtype: DType, shape: &[usize]) -> Ssa {
        Ssa {
            name: self.fresh(),
            dtype: dtype.storage(),
            shape: shape.to_vec(),
            splat: None,
            unreduced: Vec::new(),
        }
    }
    pub(super) fn like(&mut self, ty: &ArrayType) -> Ssa {
        self.bound(ty.dtype, &ty.shape)
    }
    /// One more operation of one result.
    pub(super) fn op(&mut self, text: impl AsRef<str>, dtype: DType, shape: &[usize]) -> Ssa {
        let out = self.bound(dtype, shape);
        self.line(&format!("{} = {}", out.name, text.as_ref()));
        out
    }
    /// An elementwise operation of operands and result of one type.
    pub(super) fn same(&mut self, op: &str, args: &[&Ssa]) -> Ssa {
        let x = args[0];
        let text = format!("stablehlo.{op} {} : {}", names(args.iter().copied()), x.ty());
        self.op(text, x.dtype, &x.shape)
    }
    pub(super) fn compare(&mut self, how: &str, a: &Ssa, b: &Ssa) -> Ssa {
        let text = format!(
            "stablehlo.compare {how}, {}, {} : ({}, {}) -> {}",
            a.name,
            b.name,
            a.ty(),
            b.ty(),
            tensor(DType::Bool, &a.shape)
        );
        self.op(text, DType::Bool, &a.shape)
    }
    pub(super) fn select(&mut self, which: &Ssa, yes: &Ssa, no: &Ssa) -> Ssa {
        let text = format!("stablehlo.select {} : {}, {}", names([which, yes, no]), which.ty(), yes.ty());
        self.op(text, yes.dtype, &yes.shape)
    }
    /// An operation whose text ends in its operands' and its result's types.
    pub(super) fn typed(&mut self, text: &str, args: &[&Ssa], dtype: DType, shape: &[usize]) -> Ssa {
        let text = format!("{text} : ({}) -> {}", types(args.iter().copied()), tensor(dtype, shape));
        self.op(text, dtype, shape)
    }
    pub(super) fn convert(&mut self, x: &Ssa, to: DType) -> Ssa {
        if x.dtype == to.storage() {
            return x.clone();
        }
        self.typed(&format!("stablehlo.convert {}", x.name), &[x], to, &x.shape)
    }
    pub(super) fn reshape(&mut self, x: &Ssa, shape: &[usize]) -> Ssa {
        if x.shape == shape {
            return x.clone();
        }
        self.typed(&format!("stablehlo.reshape {}", x.name), &[x], x.dtype, shape)
    }
    /// Dimension k of the result is dimension `order[k]`.
    pub(super) fn transpose(&mut self, x: &Ssa, order: &[usize]) -> Ssa {
        if order.is_sorted() {
            return x.clone();
        }
        let shape: Vec<usize> = order.iter().map(|d| x.shape[*d]).collect();
        self.typed(&format!("stablehlo.transpose {}, dims = {}", x.name, list(order)), &[x], x.dtype, &shape)
    }
    /// Dimension k of the operand is dimension `dims[k]` of the result.
    pub(super) fn broadcast(&mut self, x: &Ssa, dims: &[usize], shape: &[usize]) -> Ssa {
        if x.shape == shape && dims.len() == shape.len() {
            return x.clone();
        }
        let text = format!("stablehlo.broadcast_in_dim {}, dims = {}", x.name, list(dims));
        self.typed(&text, &[x], x.dtype, shape)
    }
    /// `[start, limit, stride]` along each dimension.
    pub(super) fn slice(&mut self, x: &Ssa, bounds: &[[i64; 3]]) -> Ssa {
        let shape: Vec<usize> =
            bounds.iter().map(|[a, b, s]| ((b - a + s - 1) / s).max(0) as usize).collect();
        if shape == x.shape {
            return x.clone();
        }
        let spans = bounds.iter().map(|[a, b, s]| match s {
            1 => format!("{a}:{b}"),
            s => format!("{a}:{b}:{s}"),
        });
        self.typed(&format!("stablehlo.slice {} {}", x.name, list(spans)), &[x], x.dtype, &shape)
    }
    /// `[low, high, interior]` along each dimension.
    pub(super) fn pad(&mut self, x: &Ssa, fill: Scalar, widths: &[[i64; 3]]) -> Ssa {
        if widths.iter().zip(&x.shape).all(|(w, n)| w[..2] == [0, 0] && (w[2] == 0 || *n < 2)) {
            return x.clone();
        }
        let grown = |(n, [low, high, inner]): (&usize, &[i64; 3])| {
            (*n as i64 + low + high + inner * (*n as i64 - 1).max(0)) as usize
        };
        let shape: Vec<usize> = x.shape.iter().zip(widths).map(grown).collect();
        let fill = self.constant(x.dtype, fill, &[]);
        let of = |k: usize| list(widths.iter().map(|w| w[k]));
        let text = format!(
            "stablehlo.pad {}, {}, low = {}, high = {}, interior = {}",
            x.name,
            fill.name,
            of(0),
            of(1),
            of(2)
        );
        self.typed(&text, &[x, &fill], x.dtype, &shape)
    }
    pub(super) fn concatenate(&mut self, parts: &[Ssa], d: usize) -> Ssa {
        if let [one] = parts {
            return one.clone();
        }
        let mut shape = parts[0].shape.clone();
        shape[d] = parts.iter().map(|p| p.shape[d]).sum();
        let text = format!("stablehlo.concatenate {}, dim = {d}", names(parts));
        self.typed(&text, &parts.iter().collect::<Vec<_>>(), parts[0].dtype, &shape)
    }
    pub(super) fn iota(&mut self, d: usize, dtype: DType, shape: &[usize]) -> Ssa {
        self.op(format!("stablehlo.iota dim = {d} : {}", tensor(dtype, shape)), dtype, shape)
    }
    /// One number everywhere; a constant of its own at every use.
    pub(super) fn constant(&mut self, d: DType, value: Scalar, shape: &[usize]) -> Ssa {
        let text = format!("stablehlo.constant dense<{}> : {}", number(d, value), tensor(d, shape));
        let made = self.op(text, d, shape);
        Ssa { splat: Some(value), ..made }
    }
    /// The values with names: numbers that are not written yet are now.
    pub(super) fn written(&mut self, values: &[Ssa]) -> Vec<Ssa> {
        let one = |x: &Ssa| match x.splat {
            Some(value) if x.name.is_empty() => self.constant(x.dtype, value, &x.shape),
            _ => x.clone(),
        };
        values.iter().map(one).collect()
    }
    /// A whole number.
    pub(super) fn int(&mut self, d: DType, value: i64, shape: &[usize]) -> Ssa {
        self.constant(d, Scalar::Int(value.into()), shape)
    }
    /// Numbers side by side, row by row.
    pub(super) fn dense(&mut self, d: DType, values: &[Scalar], shape: &[usize]) -> Ssa {
        fn rows(d: DType, values: &[Scalar], shape: &[usize], out: &mut String) {
            let Some((n, rest)) = shape.split_first() else {
                *out += &values.first().map_or(String::new(), |v| number(d, *v));
                return;
            };
            out.push('[');
            let step = rest.iter().product::<usize>();
            for k in 0..*n {
                *out += if k == 0 { "" } else { ", " };
                rows(d, &values[k * step..(k + 1) * step], rest, out);
            }
            out.push(']');
        }
        let mut text = String::new();
        rows(d, values, shape, &mut text);
        self.op(format!("stablehlo.constant dense<{text}> : {}", tensor(d, shape)), d, shape)
    }
    /// Combined over dimensions, which drop out.
    pub(super) fn reduce(&mut self, x: &Ssa, op: &str, neutral: Scalar, dims: &[usize]) -> Ssa {
        if dims.is_empty() {
            return x.clone();
        }
        let first = self.constant(x.dtype, neutral, &[]);
        let kept = (0..x.shape.len()).filter(|d| !dims.contains(d)).map(|d| x.shape[d]).collect::<Vec<_>>();
        let text = format!(
            "stablehlo.reduce({} init: {}) applies stablehlo.{op} across dimensions = {}",
            x.name,
            first.name,
            list(dims)
        );
        self.typed(&text, &[x, &first], x.dtype, &kept)
    }
    /// The names of an operation's results: how its text begins, and the results.
    pub(super) fn results(&mut self, of: &[(DType, Vec<usize>)]) -> (String, Vec<Ssa>) {
        let name = self.fresh();
        let one = |k: usize| if of.len() == 1 { name.clone() } else { format!("{name}#{k}") };
        let value = |(k, (d, s)): (usize, &(DType, Vec<usize>))| Ssa {
            name: one(k),
            dtype: d.storage(),
            shape: s.clone(),
            splat: None,
            unreduced: Vec::new(),
        };
        let outs = of.iter().enumerate().map(value).collect();
        let head = match of.len() {
            0 => String::new(),
            1 => format!("{name} = "),
            n => format!("{name}:{n} = "),
        };
        (head, outs)
    }
    /// What a region or function ends in.
    pub(super) fn ret(&mut self, op: &str, values: &[Ssa]) {
        match values {
            [] => self.line(op),
            _ => self.line(&format!("{op} {} : {}", names(values), types(values))),
        }
    }
    /// A region of scalars, of these operands: what combines two elements, or compares them.
    pub(super) fn scalars(&mut self, operands: &[DType], body: impl FnOnce(&mut Self, &[Ssa]) -> Vec<Ssa>) {
        let args: Vec<Ssa> = operands.iter().map(|d| self.bound(*d, &[])).collect();
        let heads = join(args.iter().map(|a| format!("{}: {}", a.name, a.ty())));
        self.part(&format!("^bb0({heads}):"));
        self.inside(|w| {
            let outs = body(w, &args);
            w.ret("stablehlo.return", &outs);
        });
    }
    pub(super) fn channel(&mut self) -> String {
        self.channels += 1;
        format!("channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>", self.channels)
    }
}
