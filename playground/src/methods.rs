//! Arguments of calls, and the methods of arrays by name.

use crate::error::ErrorResponse;
use crate::tree::Arrays;
use crate::value::{Value, spec, term};
use atmesh::{
    AllToAll, Array, ArrayType, Axes, Axis, CheckpointPolicy, CollectiveDim, DType, Dims, ImplicitReshard,
    Key, Mesh, Permutation, ScanOptions, Spec, Term, VmapOptions,
};
use std::rc::Rc;

/// The arguments of a call, which are consumed one by one.
pub(crate) struct Args<'v> {
    name: &'v str,
    values: &'v [Value],
    next: usize,
}

/// Writes methods that return the next argument if it is of one kind.
///
/// The text before the kind describes the argument if it is missing, the last one if it is another.
macro_rules! arguments { ($($name:ident: $what:literal, $pattern:pat => $ty:ty, $value:expr, $wanted:literal;)*) => { $(
    pub(crate) fn $name(&mut self) -> Result<$ty, ErrorResponse> {
        match self.any($what)?.inner() {
            $pattern => Ok($value),
            other => Err(self.wrong($wanted, other)),
        }
    }
)* } }
impl<'v> Args<'v> {
    pub(crate) fn new(name: &'v str, values: &'v [Value]) -> Args<'v> {
        Args { name, values, next: 0 }
    }
    /// Returns the next argument, of any kind.
    pub(crate) fn any(&mut self, what: &str) -> Result<&'v Value, ErrorResponse> {
        let value = self.values.get(self.next);
        self.next += 1;
        value.ok_or_else(|| syntax_error!("{} wants {what} as argument {}", self.name, self.next))
    }
    /// Returns the next argument if there is one.
    pub(crate) fn more(&mut self) -> Option<&'v Value> {
        let value = self.values.get(self.next);
        self.next += 1;
        value
    }
    pub(crate) fn wrong(&self, what: &str, value: &Value) -> ErrorResponse {
        syntax_error!("{} wants {what} as argument {}, not {}", self.name, self.next, value.what())
    }
    arguments! {
        array: "an array", Value::Array(x) => &'v Array, x, "an array";
        text: "a text", Value::Text(text) => &'v str, text, "a text";
        boolean: "a bool", Value::Bool(b) => bool, *b, "a bool";
        mesh: "a mesh", Value::Mesh(mesh) => Mesh, mesh.clone(), "a mesh";
        sharding: "a sharding", Value::Sharding(s) => atmesh::Sharding, s.clone(), "a sharding";
        key: "a key", Value::Key(key) => &'v Key, key, "a key";
        dtype: "an element type, like F32", Value::DType(t) => DType, *t, "an element type, like F32,";
        gather: "CollectiveDim::tiled(0)", Value::Gather(how) => CollectiveDim, *how,
            "CollectiveDim::tiled(0) or CollectiveDim::stacked(0)";
        exchange: "AllToAll::split(0).concat(1)", Value::Exchange(how) => AllToAll, *how,
            "AllToAll::split(0).concat(1)";
        vmap_options: "options", Value::Vmap(options) => VmapOptions, (**options).clone(), "VmapOptions";
        index: "an index, like ix![0, ..]", Value::Index(index) => &'v atmesh::array::Index, index,
            "an index, like ix![0, ..]";
    }
    /// Returns a function of the program.
    pub(crate) fn function(&mut self, what: &str) -> Result<&'v Value, ErrorResponse> {
        let value = self.any("a closure")?;
        match value {
            Value::Closure(_) | Value::Path(_) | Value::Jit(_) | Value::Mapped(_) => Ok(value),
            other => {
                let of = other.what();
                Err(syntax_error!("{} takes a closure {what}, not {of}", self.name))
            }
        }
    }
    /// Returns a tree of arrays.
    pub(crate) fn tree(&mut self) -> Result<Arrays, ErrorResponse> {
        Arrays::of(self.any("an array and a closure, or a tree of arrays")?)
    }
    pub(crate) fn arrays(&mut self) -> Result<Vec<Array>, ErrorResponse> {
        let list = match self.any("a list of arrays")?.inner() {
            Value::List(list) | Value::Tuple(list) => list,
            other => return Err(self.wrong("a list of arrays, like [a, b],", other)),
        };
        let each = list.iter().map(|v| match v.inner() {
            Value::Array(x) => Ok(x.clone()),
            other => Err(self.wrong("a list of arrays", other)),
        });
        each.collect()
    }
    pub(crate) fn operand(&mut self) -> Result<Term, ErrorResponse> {
        let value = self.any("an array or a number")?;
        term(value).map_err(|_| self.wrong("an array or a number", value))
    }
    pub(crate) fn number<N: TryFrom<i128>>(&mut self) -> Result<N, ErrorResponse> {
        let value = self.any("a whole number")?;
        let n = match value.inner() {
            Value::Int(n, _) => N::try_from(*n).ok(),
            _ => None,
        };
        n.ok_or_else(|| self.wrong("a whole number of its range", value))
    }
    pub(crate) fn float(&mut self) -> Result<f64, ErrorResponse> {
        match self.any("a number")?.inner() {
            Value::Float(x, _) => Ok(*x),
            Value::Int(n, _) => Ok(*n as f64),
            other => Err(self.wrong("a number", other)),
        }
    }
    pub(crate) fn numbers<N: TryFrom<i128>>(&self, list: &[Value]) -> Result<Vec<N>, ErrorResponse> {
        let each = list.iter().map(|v| match v.inner() {
            Value::Int(n, _) => N::try_from(*n).map_err(|_| self.wrong("other numbers", v)),
            other => Err(self.wrong("whole numbers", other)),
        });
        each.collect()
    }
    pub(crate) fn sizes(&mut self) -> Result<Vec<usize>, ErrorResponse> {
        match self.any("sizes, like [4, 2]")?.inner() {
            Value::List(list) => self.numbers(list),
            Value::Unit => Ok(Vec::new()),
            other => Err(self.wrong("sizes, like [4, 2],", other)),
        }
    }
    /// Returns the type of a new array: a shape, or a type.
    pub(crate) fn array_type(&mut self) -> Result<ArrayType, ErrorResponse> {
        match self.any("a shape, like [4, 2]")?.inner() {
            Value::Type(ty) => Ok(ty.clone()),
            Value::List(list) => Ok(self.numbers::<usize>(list)?.into()),
            other => Err(self.wrong("a shape, like [4, 2], or a type", other)),
        }
    }
    /// Returns two bounds of a range.
    pub(crate) fn bounds(&mut self) -> Result<(Value, Value), ErrorResponse> {
        match self.any("a range, like 0..10")?.inner() {
            Value::Range(range) if !range.2 => Ok((range.0.clone(), range.1.clone())),
            other => Err(self.wrong("a range, like 0..10,", other)),
        }
    }
    pub(crate) fn dims(&mut self) -> Result<Dims, ErrorResponse> {
        Ok(match self.any("dimensions: 0, [0, 1] or ..")?.inner() {
            Value::Range(range) if matches!((&range.0, &range.1), (Value::Unit, Value::Unit)) => {
                Dims::from(..)
            }
            Value::Dims(dims) => dims.clone(),
            Value::Int(n, _) => match i64::try_from(*n) {
                Ok(d) => Dims::from(d),
                Err(_) => return Err(syntax_error!("there is no dimension {n}")),
            },
            Value::List(list) => Dims::from(self.numbers::<i64>(list)?),
            other => return Err(self.wrong("dimensions: 0, [0, 1] or ..,", other)),
        })
    }
    pub(crate) fn spec(&mut self) -> Result<Spec, ErrorResponse> {
        spec(self.any("a spec, like p![\"X\", _]")?)
    }
    pub(crate) fn axes(&mut self) -> Result<Axes, ErrorResponse> {
        let value = self.any("an axis, like \"X\"")?;
        axes(value).ok_or_else(|| self.wrong("an axis, like \"X\",", value))
    }
    pub(crate) fn permutation(&mut self) -> Result<Permutation, ErrorResponse> {
        match self.any("Permutation::ring(1)")?.inner() {
            Value::Permutation(how) => Ok(how.clone()),
            Value::List(list) => {
                let pair = |v: &Value| match v {
                    Value::Tuple(pair) => {
                        Ok(<[usize; 2]>::try_from(self.numbers(pair)?).ok().map(|[a, b]| (a, b)))
                    }
                    _ => Ok(None),
                };
                let pairs: Option<Vec<_>> = list.iter().map(pair).collect::<Result<_, ErrorResponse>>()?;
                pairs.map(Permutation::from).ok_or_else(|| syntax_error!("a permutation is a list of pairs"))
            }
            other => Err(self.wrong("Permutation::ring(1) or Permutation::shift(1)", other)),
        }
    }
    /// Returns widths of padding: `(low, high, interior)` for each dimension.
    pub(crate) fn widths(&mut self) -> Result<Vec<(i64, i64, usize)>, ErrorResponse> {
        let value = self.any("widths, like [(1, 1, 0)]")?;
        let Value::List(list) = value.inner() else {
            return Err(self.wrong("widths, like [(1, 1, 0)],", value));
        };
        let one = |v: &Value| match v {
            Value::Tuple(t) => match self.numbers::<i64>(t)?[..] {
                [a, b, c] => Ok((a, b, usize::try_from(c).unwrap_or(0))),
                _ => Err(self.wrong("widths of three numbers", v)),
            },
            _ => Err(self.wrong("widths, like [(1, 1, 0)],", v)),
        };
        list.iter().map(one).collect()
    }
    pub(crate) fn scan_options(&mut self) -> Result<ScanOptions, ErrorResponse> {
        match self.any("options")?.inner() {
            Value::Struct(record) if &*record.name == "ScanOptions" => {
                let mut options = ScanOptions::default();
                for (name, value) in &record.fields {
                    match (&**name, value) {
                        ("length", Value::Int(n, _)) => {
                            options = options.length(usize::try_from(*n).unwrap_or(0))
                        }
                        _ => options = options.reversed(),
                    }
                }
                Ok(options)
            }
            other => Err(self.wrong("ScanOptions", other)),
        }
    }
    pub(crate) fn index_options(&mut self) -> Result<atmesh::IndexOptions, ErrorResponse> {
        let mut options = atmesh::IndexOptions::default();
        match self.any("IndexOptions::default()")?.inner() {
            Value::Struct(record) if &*record.name == "IndexOptions" => {
                for (name, value) in &record.fields {
                    options = match (&**name, value) {
                        ("out_sharding", Value::Spec(spec)) => options.out_sharding(*spec),
                        ("mode", Value::Path(mode)) => options.mode(index_mode(mode)),
                        _ => return Err(syntax_error!("`IndexOptions` has no option `{name}` here")),
                    };
                }
                Ok(options)
            }
            other => Err(self.wrong("IndexOptions::default()", other)),
        }
    }
    pub(crate) fn checkpoint_policy(&mut self) -> Result<CheckpointPolicy, ErrorResponse> {
        match self.any("a policy, like CheckpointPolicy::SaveNothing")? {
            Value::Path(name) => {
                crate::transform::policy(name).ok_or_else(|| syntax_error!("`{name}` is not a policy here"))
            }
            Value::Struct(record) if &*record.name == "CheckpointPolicy" => {
                let names = record.fields.iter().map(|f| crate::format::plain(&f.1));
                Ok(CheckpointPolicy::named(names))
            }
            other => Err(self.wrong("a policy, like CheckpointPolicy::SaveNothing,", other)),
        }
    }
    pub(crate) fn implicit_reshard(&mut self) -> Result<ImplicitReshard, ErrorResponse> {
        match self.any("ImplicitReshard::Deny(0)")? {
            Value::Struct(record) if &*record.name == "Deny" => {
                let bytes = record.fields.first().map_or(0, |f| crate::library::whole(&f.1).unwrap_or(0));
                Ok(ImplicitReshard::Deny(bytes as u64))
            }
            _ => Ok(ImplicitReshard::Allow),
        }
    }
    pub(crate) fn end(&self) -> Result<(), ErrorResponse> {
        match self.values.len() {
            n if n <= self.next => Ok(()),
            n => Err(syntax_error!("{} takes {} arguments, not {n}", self.name, self.next)),
        }
    }
}

/// Returns the mode of this name.
pub(crate) fn index_mode(name: &str) -> atmesh::IndexMode {
    if name.ends_with("Clip") { atmesh::IndexMode::Clip } else { atmesh::IndexMode::Fill }
}

/// Returns axes: a name, or a list or tuple of them.
pub(crate) fn axes(value: &Value) -> Option<Axes> {
    let one = |v: &Value| match v {
        Value::Text(name) | Value::Path(name) => Some(Axis::from(&**name)),
        _ => None,
    };
    match value.inner() {
        Value::List(list) | Value::Tuple(list) => list.iter().map(one).collect::<Option<Axes>>(),
        Value::Unit => Some(Axes::none()),
        other => one(other).map(Axes::from),
    }
}

/// Defines the methods of arrays by name: those of the table of scalar functions, then these, each
/// with the kinds of its arguments.
macro_rules! methods {
    (
        [$($other:ident($($arg:ident),*))*]
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        $($rest:tt)*
    ) => { methods! { $($name())* $($other($($arg),*))* } };
    ($($name:ident($($kind:ident),*))*) => {
    /// The names of methods of arrays that return an array.
    pub(crate) const METHODS: &[&str] = &[$(stringify!($name)),*];
    /// Evaluates a method of an array that returns an array; `None` if there is none of this name.
    #[track_caller]
    pub(crate) fn of_array(x: &Array, name: &str, args: &mut Args<'_>) -> Result<Option<Array>, ErrorResponse> {
        Ok(Some(match name {
            $(stringify!($name) => {
                let made = x.$name($(args.$kind()?),*);
                args.end()?;
                made
            })*
            _ => return Ok(None),
        }))
    }
    };
}
atmesh::scalar_functions! { methods
    is_finite() square() reciprocal() relu() silu() softplus() stop_gradient() gelu() is_nan() real() imag() conj() angle()
    maximum(operand) minimum(operand) pow(operand) atan2(operand) hypot(operand) eq(operand) ne(operand) lt(operand) le(operand)
    gt(operand) ge(operand) select(operand, operand) clamp(operand, operand) astype(dtype) bitcast(dtype) powi(number)
    sum(dims) sum_to(dims, spec) prod(dims) max(dims) min(dims) any(dims) all(dims) mean(dims) mean_to(dims, spec) var(dims) std(dims)
    logsumexp(dims) count_nonzero(dims) softmax(dims) log_softmax(dims) argmax(dims) argmin(dims) norm(dims)
    dot(array) dot_to(array, spec) matmul(array) matmul_to(array, spec)
    outer(array)
    reshape(sizes) reshape_to(sizes, spec) ravel() t() transpose(dims) swapaxes(number, number) moveaxis(dims, dims) broadcast_to(sizes)
    broadcast_as(sizes, spec) broadcast_in_dim(sizes, sizes) broadcast_in_dim_to(sizes, sizes, spec) expand_dims(dims) squeeze(dims) flip(dims)
    roll(number, number) shift(number, number, operand) pad(operand, widths)
    tril(number) triu(number) zeros_like() ones_like()
    cumsum(number) cumprod(number) cummax(number) cummin(number) sort(number) argsort(number)
    take(array, number) take_to(array, number, spec) take_along_axis(array, number) one_hot(number)
    take_with(array, number, index_options)
    slice(index_of) segment_sum(array, number) segment_sum_to(array, number, spec)

    shift_left(operand) floor_divide(operand) remainder(operand) rint() full_like(operand) to_compute(spec) to_storage(spec)


    reshard(spec) constrain(spec) put(mesh_of, spec) put_stored(mesh_of, spec) checkpoint_name(text)
    psum(axes) pmean(axes) pmax(axes) pmin(axes) pvary(axes) all_gather(axes, gather) psum_scatter(axes, gather) all_to_all(axes, exchange)
    ppermute(axes, permutation) pbroadcast(axes, number) pshuffle(axes, sizes)
}

impl<'v> Args<'v> {
    /// Returns a mesh by reference, as `put` takes it.
    fn mesh_of(&mut self) -> Result<&'v Mesh, ErrorResponse> {
        match self.any("a mesh")?.inner() {
            Value::Mesh(mesh) => Ok(mesh),
            other => Err(self.wrong("a mesh", other)),
        }
    }
    /// Returns an index by value, as `slice` takes it.
    fn index_of(&mut self) -> Result<atmesh::array::Index, ErrorResponse> {
        Ok(self.index()?.clone())
    }
}

/// Evaluates a method of an array.
#[track_caller]
pub(crate) fn method(x: &Array, name: &str, values: &[Value]) -> Result<Value, ErrorResponse> {
    let args = &mut Args::new(name, values);
    match name {
        "at" => return Ok(Value::Update(Rc::new(x.at(args.index_of()?)))),
        "unstack" => return Ok(Value::arrays(x.unstack(args.number()?))),
        "split" => return Ok(Value::arrays(x.split(args.sizes()?, args.number()?))),
        "split_equal" => return Ok(Value::arrays(x.split_equal(args.number()?, args.number()?))),
        _ => {}
    }
    match of_array(x, name, args)? {
        Some(made) => Ok(Value::Array(made)),
        None => Err(crate::functions::unknown("method", name)),
    }
}
