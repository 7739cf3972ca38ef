//! The writer of StableHLO text: values, operations with one result, and operations with regions.

use super::syntax::{join, list, literal, quoted, tensor};
use crate::core::{ArrayType, Axis, DType, Mesh, Precision, Scalar, SourceLocation};
use crate::ir::program::ScopePath;
use std::collections::HashMap;
use std::fmt::Write;

/// An SSA value of the module.
#[derive(Clone, Debug)]
pub(super) struct Ssa {
    pub(super) name: String,
    /// The storage type of the elements.
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The value of all elements, if they are equal. Such a value may have no name yet.
    pub(super) splat: Option<Scalar>,
    /// The axes over which XLA holds the value as partial sums.
    /// A value whose type is unreduced over an axis may be summed already in the module; the axis
    /// is then missing here.
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

/// Joins the names of values, such as `%1, %2`.
pub(super) fn names<'a>(values: impl IntoIterator<Item = &'a Ssa>) -> String {
    join(values.into_iter().map(|v| &v.name))
}
/// Joins the types of values, such as `tensor<4xf32>, tensor<i1>`.
pub(super) fn types<'a>(values: impl IntoIterator<Item = &'a Ssa>) -> String {
    join(values.into_iter().map(Ssa::ty))
}

/// The way in which a float32 value comes from 16-bit floats of one type.
#[derive(Clone)]
pub(super) struct Origin {
    /// The type of the 16-bit floats.
    pub(super) dtype: DType,
    /// True if the value is a 16-bit float; false if only rounding makes it one.
    pub(super) is_exact: bool,
    pub(super) form: OriginForm,
}

/// The operation that makes the value.
#[derive(Clone)]
pub(super) enum OriginForm {
    Converted(Ssa),
    /// An elementwise operation on values that are 16-bit floats, and on constants.
    Operation(String, Vec<Ssa>),
    Reshaped(Ssa, Vec<usize>),
    /// The operand, its dimensions in the result, and the shape of the result.
    Broadcast(Ssa, Vec<usize>, Vec<usize>),
}

/// A module that is being written.
pub(super) struct Writer {
    pub(super) out: String,
    depth: usize,
    values: usize,
    channels: usize,
    /// The meshes with names, in the order of their first use.
    pub(super) meshes: Vec<Mesh>,
    /// The axes that are manual at the current position.
    pub(super) manual: Vec<Axis>,
    /// The user's source location of the current operation, if known.
    pub(super) location: Option<SourceLocation>,
    /// The named scopes of the current operation.
    pub(super) scope: ScopePath,
    pub(super) options: super::Options,
    /// The transposes that each open region has, by the name of the operand and the order.
    transposes: Vec<HashMap<(String, Vec<usize>), Ssa>>,
    /// The way in which float32 values come from 16-bit floats, by their names.
    pub(super) origins: HashMap<String, Origin>,
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
            location: None,
            scope: ScopePath::default(),
            options,
            transposes: vec![HashMap::new()],
            origins: HashMap::new(),
        }
    }
    /// Writes the last line of an operation, with its source location.
    pub(super) fn line(&mut self, text: &str) {
        let _ = write!(self.out, "{:width$}{text}", "", width = 2 * self.depth);
        if let (Some(p), true) = (self.location, self.options.locations) {
            let place = format!("{}:{}:{}", quoted(p.file()), p.line(), p.column());
            let _ = match self.scope.name() {
                Some(scope) => write!(self.out, " loc({}({place}))", quoted(scope)),
                None => write!(self.out, " loc({place})"),
            };
        }
        self.out.push('\n');
    }
    /// Writes a line of an operation that is not its last one.
    pub(super) fn fragment(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = 2 * self.depth);
    }
    /// Indents the lines that `body` writes by one level.
    pub(super) fn indented<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.depth += 1;
        self.transposes.push(HashMap::new());
        let out = body(self);
        self.transposes.pop();
        self.depth -= 1;
        out
    }
    pub(super) fn fresh_name(&mut self) -> String {
        self.values += 1;
        format!("%{}", self.values - 1)
    }
    /// Returns a value of this type with a fresh name.
    pub(super) fn new_value(&mut self, dtype: DType, shape: &[usize]) -> Ssa {
        Ssa {
            name: self.fresh_name(),
            dtype: dtype.storage(),
            shape: shape.to_vec(),
            splat: None,
            unreduced: Vec::new(),
        }
    }
    pub(super) fn value_of_type(&mut self, ty: &ArrayType) -> Ssa {
        self.new_value(ty.dtype, &ty.shape)
    }
    /// Writes an operation with one result.
    pub(super) fn op(&mut self, text: impl AsRef<str>, dtype: DType, shape: &[usize]) -> Ssa {
        let out = self.new_value(dtype, shape);
        self.line(&format!("{} = {}", out.name, text.as_ref()));
        out
    }
    /// Writes an elementwise operation whose operands and result have the same type.
    pub(super) fn elementwise(&mut self, op: &str, args: &[&Ssa]) -> Ssa {
        let x = args[0];
        let text = format!("stablehlo.{op} {} : {}", names(args.iter().copied()), x.ty());
        let made = self.op(text, x.dtype, &x.shape);
        self.record_operation(&made, op, args);
        made
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
    /// Writes an operation whose text ends in the types of its operands and result.
    pub(super) fn typed(&mut self, text: &str, args: &[&Ssa], dtype: DType, shape: &[usize]) -> Ssa {
        let text = format!("{text} : ({}) -> {}", types(args.iter().copied()), tensor(dtype, shape));
        self.op(text, dtype, shape)
    }
    pub(super) fn convert(&mut self, x: &Ssa, to: DType) -> Ssa {
        if x.dtype == to.storage() {
            return x.clone();
        }
        if let Some(rounded) = self.rounded(x, to) {
            return rounded;
        }
        let made = self.typed(&format!("stablehlo.convert {}", x.name), &[x], to, &x.shape);
        self.record_conversion(&made, x);
        made
    }
    pub(super) fn reshape(&mut self, x: &Ssa, shape: &[usize]) -> Ssa {
        if x.shape == shape {
            return x.clone();
        }
        let made = self.typed(&format!("stablehlo.reshape {}", x.name), &[x], x.dtype, shape);
        self.record_reshape(&made, x);
        made
    }
    /// Transposes a value: dimension `k` of the result is dimension `order[k]` of the operand.
    /// Gradients transpose some values again; a region has each transpose once.
    pub(super) fn transpose(&mut self, x: &Ssa, order: &[usize]) -> Ssa {
        if order.is_sorted() {
            return x.clone();
        }
        let key = (x.name.clone(), order.to_vec());
        if let Some(known) = self.transposes.iter().find_map(|region| region.get(&key)) {
            return known.clone();
        }
        let shape: Vec<usize> = order.iter().map(|d| x.shape[*d]).collect();
        let text = format!("stablehlo.transpose {}, dims = {}", x.name, list(order));
        let made = self.typed(&text, &[x], x.dtype, &shape);
        if let Some(region) = self.transposes.last_mut() {
            region.insert(key, made.clone());
        }
        made
    }
    /// Broadcasts a value: dimension `k` of the operand is dimension `dims[k]` of the result.
    pub(super) fn broadcast(&mut self, x: &Ssa, dims: &[usize], shape: &[usize]) -> Ssa {
        if x.shape == shape && dims.len() == shape.len() {
            return x.clone();
        }
        let text = format!("stablehlo.broadcast_in_dim {}, dims = {}", x.name, list(dims));
        let made = self.typed(&text, &[x], x.dtype, shape);
        self.record_broadcast(&made, x, dims);
        made
    }
    /// Slices a value; `bounds` has `[start, limit, stride]` for each dimension.
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
    /// Pads a value; `widths` has `[low, high, interior]` for each dimension.
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
    pub(super) fn concatenate(&mut self, pieces: &[Ssa], d: usize) -> Ssa {
        if let [one] = pieces {
            return one.clone();
        }
        let mut shape = pieces[0].shape.clone();
        shape[d] = pieces.iter().map(|p| p.shape[d]).sum();
        let text = format!("stablehlo.concatenate {}, dim = {d}", names(pieces));
        self.typed(&text, &pieces.iter().collect::<Vec<_>>(), pieces[0].dtype, &shape)
    }
    pub(super) fn iota(&mut self, d: usize, dtype: DType, shape: &[usize]) -> Ssa {
        self.op(format!("stablehlo.iota dim = {d} : {}", tensor(dtype, shape)), dtype, shape)
    }
    /// Writes a constant whose elements are all `value`. Each use gets a separate constant.
    pub(super) fn constant(&mut self, d: DType, value: Scalar, shape: &[usize]) -> Ssa {
        let text = format!("stablehlo.constant dense<{}> : {}", literal(d, value), tensor(d, shape));
        let made = self.op(text, d, shape);
        Ssa { splat: Some(value), ..made }
    }
    /// Writes the splat values that have no name yet, and returns all values with names.
    pub(super) fn materialised(&mut self, values: &[Ssa]) -> Vec<Ssa> {
        let one = |x: &Ssa| match x.splat {
            Some(value) if x.name.is_empty() => self.constant(x.dtype, value, &x.shape),
            _ => x.clone(),
        };
        values.iter().map(one).collect()
    }
    /// Writes an integer constant.
    pub(super) fn int(&mut self, d: DType, value: i64, shape: &[usize]) -> Ssa {
        self.constant(d, Scalar::Int(value.into()), shape)
    }
    /// Writes a constant with these elements, in row-major order.
    pub(super) fn dense(&mut self, d: DType, values: &[Scalar], shape: &[usize]) -> Ssa {
        fn rows(d: DType, values: &[Scalar], shape: &[usize], out: &mut String) {
            let Some((n, rest)) = shape.split_first() else {
                *out += &values.first().map_or(String::new(), |v| literal(d, *v));
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
    /// Reduces a value over dimensions, which the result does not have.
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
    /// Returns the start of the text of an operation with results of these types, and the results.
    pub(super) fn results(&mut self, of: &[(DType, Vec<usize>)]) -> (String, Vec<Ssa>) {
        let name = self.fresh_name();
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
    /// Writes the terminator of a region or function.
    pub(super) fn terminator(&mut self, op: &str, values: &[Ssa]) {
        match values {
            [] => self.line(op),
            _ => self.line(&format!("{op} {} : {}", names(values), types(values))),
        }
    }
    /// Writes a region of scalars with operands of these types, such as a reducer or a comparison.
    pub(super) fn scalar_region(
        &mut self,
        operands: &[DType],
        body: impl FnOnce(&mut Self, &[Ssa]) -> Vec<Ssa>,
    ) {
        let args: Vec<Ssa> = operands.iter().map(|d| self.new_value(*d, &[])).collect();
        let heads = join(args.iter().map(|a| format!("{}: {}", a.name, a.ty())));
        self.fragment(&format!("^bb0({heads}):"));
        self.indented(|w| {
            let outs = body(w, &args);
            w.terminator("stablehlo.return", &outs);
        });
    }
    pub(super) fn channel(&mut self) -> String {
        self.channels += 1;
        format!("channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>", self.channels)
    }
}

/// Returns XLA's name of the precision of a product, or `None` if its attribute is not written.
/// Only float32 and complex64 have several levels, and `DEFAULT` is what XLA assumes.
pub(super) fn precision_name(precision: Precision, operands: [&Ssa; 2]) -> Option<&'static str> {
    let has_levels = operands.iter().any(|x| matches!(x.dtype, DType::F32 | DType::C64));
    (has_levels && precision != Precision::Default).then(|| precision.xla_name())
}

/// Returns the accumulator type: float32 for 16-bit floats, otherwise the type itself.
pub(super) fn accum_dtype(d: DType) -> DType {
    if matches!(d, DType::F16 | DType::BF16) { DType::F32 } else { d }
}
