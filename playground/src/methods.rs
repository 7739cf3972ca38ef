//! The methods and functions that a program may call, by name.

use crate::error::ErrorResponse;
use crate::eval::{Value, term};
use atmesh::{AllToAll, Array, Axes, CollectiveDim, DType, Dims, Permutation, Scalar, Spec, Term};

/// The arguments of a call, which are consumed one by one.
struct Args<'v, 'a> {
    name: &'v str,
    values: &'v [Value<'a>],
    next: usize,
}

/// Writes methods that return the next argument if it is of one kind.
///
/// The text before the kind describes the argument if it is missing, the last one if it is another.
macro_rules! arguments { ($($name:ident: $what:literal, $pattern:pat => $ty:ty, $value:expr, $wanted:literal;)*) => { $(
    fn $name(&mut self) -> Result<$ty, ErrorResponse> {
        match self.next($what)? {
            $pattern => Ok($value),
            other => Err(self.wrong($wanted, other)),
        }
    }
)* } }
impl<'v, 'a> Args<'v, 'a> {
    fn next(&mut self, what: &str) -> Result<&'v Value<'a>, ErrorResponse> {
        let value = self.values.get(self.next);
        self.next += 1;
        value.ok_or_else(|| syntax_error!("{} wants {what} as argument {}", self.name, self.next))
    }
    fn wrong(&self, what: &str, value: &Value<'_>) -> ErrorResponse {
        syntax_error!("{} wants {what} as argument {}, not {}", self.name, self.next, value.what())
    }
    arguments! {
        array: "an array", Value::Array(x) => &'v Array, x, "an array";
        text: "a text", Value::Text(text) => &'v str, text, "a text";
        dtype: "an element type, like F32", Value::DType(t) => DType, *t, "an element type, like F32,";
        gather: "CollectiveDim::tiled(0)", Value::Gather(how) => CollectiveDim, *how,
            "CollectiveDim::tiled(0) or CollectiveDim::stacked(0)";
        exchange: "AllToAll::split(0).concat(1)", Value::Exchange(how) => AllToAll, *how,
            "AllToAll::split(0).concat(1)";
        permutation: "Permutation::ring(1)", Value::Permutation(how) => Permutation, how.clone(),
            "Permutation::ring(1) or Permutation::shift(1)";
    }
    fn arrays(&mut self) -> Result<Vec<&'v Array>, ErrorResponse> {
        let list = match self.next("a list of arrays")? {
            Value::List(list) => list,
            other => return Err(self.wrong("a list of arrays, like [a, b],", other)),
        };
        let each = list.iter().map(|v| match v {
            Value::Array(x) => Ok(x),
            other => Err(self.wrong("a list of arrays", other)),
        });
        each.collect()
    }
    fn operand(&mut self) -> Result<Term, ErrorResponse> {
        let value = self.next("an array or a number")?;
        term(value).map_err(|_| self.wrong("an array or a number", value))
    }
    fn number<N: TryFrom<i128>>(&mut self) -> Result<N, ErrorResponse> {
        let value = self.next("a whole number")?;
        let n = match value {
            Value::Number(Scalar::Int(n)) => N::try_from(*n).ok(),
            _ => None,
        };
        n.ok_or_else(|| self.wrong("a whole number of its range", value))
    }
    fn float(&mut self) -> Result<f64, ErrorResponse> {
        match self.next("a number")? {
            Value::Number(Scalar::Float(x)) => Ok(*x),
            Value::Number(Scalar::Int(n)) => Ok(*n as f64),
            other => Err(self.wrong("a number", other)),
        }
    }
    fn numbers<N: TryFrom<i128>>(&self, list: &[Value<'_>]) -> Result<Vec<N>, ErrorResponse> {
        let each = list.iter().map(|v| match v {
            Value::Number(Scalar::Int(n)) => N::try_from(*n).map_err(|_| self.wrong("other numbers", v)),
            other => Err(self.wrong("whole numbers", other)),
        });
        each.collect()
    }
    fn sizes(&mut self) -> Result<Vec<usize>, ErrorResponse> {
        match self.next("sizes, like [4, 2]")? {
            Value::List(list) => self.numbers(list),
            other => Err(self.wrong("sizes, like [4, 2],", other)),
        }
    }
    fn dims(&mut self) -> Result<Dims, ErrorResponse> {
        Ok(match self.next("dimensions: 0, [0, 1] or ..")? {
            Value::All => Dims::from(..),
            Value::Dims(dims) => dims.clone(),
            Value::Number(Scalar::Int(n)) => match i64::try_from(*n) {
                Ok(d) => Dims::from(d),
                Err(_) => return Err(syntax_error!("there is no dimension {n}")),
            },
            Value::List(list) => Dims::from(self.numbers::<i64>(list)?),
            other => return Err(self.wrong("dimensions: 0, [0, 1] or ..,", other)),
        })
    }
    fn spec(&mut self) -> Result<Spec, ErrorResponse> {
        spec(self.next("a spec, like p![\"X\", _]")?)
    }
    fn axes(&mut self) -> Result<Axes, ErrorResponse> {
        let one = |v: &Value<'_>| match v {
            Value::Text(name) => Some(atmesh::Axis::from(name.as_str())),
            _ => None,
        };
        let value = self.next("an axis, like \"X\"")?;
        let axes = match value {
            Value::List(list) => list.iter().map(one).collect::<Option<Axes>>(),
            other => one(other).map(Axes::from),
        };
        axes.ok_or_else(|| self.wrong("an axis, like \"X\",", value))
    }
    fn end(&self) -> Result<(), ErrorResponse> {
        match self.values.len() {
            n if n <= self.next => Ok(()),
            n => Err(syntax_error!("{} takes {} arguments, not {n}", self.name, self.next)),
        }
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
    const METHODS: &[&str] = &[$(stringify!($name)),*];
    fn of_array(x: &Array, name: &str, args: &mut Args<'_, '_>) -> Result<Option<Array>, ErrorResponse> {
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
    gt(operand) ge(operand) select(operand, operand) clamp(operand, operand) astype(dtype) powi(number)
    sum(dims) sum_to(dims, spec) prod(dims) max(dims) min(dims) any(dims) all(dims) mean(dims) var(dims) std(dims) logsumexp(dims)
    softmax(dims) log_softmax(dims) argmax(dims) argmin(dims) norm(dims)
    dot(array) dot_to(array, spec) matmul(array) matmul_to(array, spec) inner(array) inner_to(array, spec) vdot(array) vdot_to(array, spec)
    outer(array) kron(array) kron_to(array, spec) tensordot(array, number) tensordot_to(array, number, spec)
    reshape(sizes) reshape_to(sizes, spec) ravel() t() transpose(dims) swapaxes(number, number) moveaxis(dims, dims) broadcast_to(sizes)
    broadcast_as(sizes, spec) broadcast_in_dim(sizes, sizes) expand_dims(dims) squeeze(dims) flip(dims) tile(sizes) repeat(number, number)
    roll(number, number) diff(number, number) tril(number) triu(number) diagonal(number) trace(number)
    cumsum(number) cumprod(number) cummax(number) cummin(number) sort(number) argsort(number) median(number) quantile(float, number)
    take(array, number) take_to(array, number, spec)
    reshard(spec) constrain(spec)
    psum(axes) pmean(axes) pmax(axes) pmin(axes) pvary(axes) all_gather(axes, gather) psum_scatter(axes, gather) all_to_all(axes, exchange)
    ppermute(axes, permutation)
}
/// The names of the functions.
const FUNCTIONS: &[&str] = &[
    "einsum",
    "einsum_to",
    "concat",
    "stack",
    "axis_index",
    "grad",
    "shard_map",
    "Dims::keep",
    "CollectiveDim::tiled",
    "CollectiveDim::stacked",
    "AllToAll::split",
    "Permutation::ring",
    "Permutation::shift",
];

/// Evaluates `object.name(values)`.
pub(crate) fn method<'a>(
    object: &Value<'a>,
    name: &str,
    values: &[Value<'a>],
) -> Result<Value<'a>, ErrorResponse> {
    let mut args = Args { name, values, next: 0 };
    match (object, name) {
        (Value::Array(x), _) => match of_array(x, name, &mut args)? {
            Some(made) => return Ok(Value::Array(made)),
            None => return Err(unknown("method", name, METHODS)),
        },
        (Value::Gather(how), "invarying") => return Ok(Value::Gather(how.invarying())),
        (Value::Gather(how), "reduced") => return Ok(Value::Gather(how.reduced())),
        (Value::Split(d), "concat") => {
            return Ok(Value::Exchange(AllToAll::split(*d).concat(args.number()?)));
        }
        (Value::Split(d), "stack") => return Ok(Value::Exchange(AllToAll::split(*d).stack(args.number()?))),
        // methods of numbers, such as `2.0.exp()`, are not supported: programs rarely need them
        _ => {}
    }
    Err(syntax_error!("{} has no method `{name}` here", object.what()))
}

/// Evaluates `name(values)`.
pub(crate) fn function<'a>(name: &str, values: &[Value<'a>]) -> Result<Value<'a>, ErrorResponse> {
    let args = &mut Args { name, values, next: 0 };
    let made = match name {
        "einsum" => Value::Array(atmesh::einsum(args.text()?, args.arrays()?)),
        "einsum_to" => Value::Array(atmesh::einsum_to(args.text()?, args.arrays()?, args.spec()?)),
        "concat" => Value::Array(atmesh::concat(args.arrays()?, args.number()?)),
        "stack" => Value::Array(atmesh::stack(args.arrays()?, args.number()?)),
        "axis_index" => Value::Array(atmesh::axis_index(args.axes()?)),
        "Dims::keep" => Value::Dims(Dims::keep(args.dims()?)),
        "CollectiveDim::tiled" => Value::Gather(CollectiveDim::tiled(args.number()?)),
        "CollectiveDim::stacked" => Value::Gather(CollectiveDim::stacked(args.number()?)),
        "AllToAll::split" => Value::Split(args.number()?),
        "Permutation::ring" => Value::Permutation(Permutation::ring(args.number()?)),
        "Permutation::shift" => Value::Permutation(Permutation::shift(args.number()?)),
        _ => return Err(unknown("function", name, FUNCTIONS)),
    };
    args.end()?;
    Ok(made)
}

/// Evaluates `a op b`.
pub(crate) fn binary<'a>(op: &str, a: Value<'a>, b: Value<'a>) -> Result<Value<'a>, ErrorResponse> {
    macro_rules! by {
        ($a:expr, $b:expr) => {
            match op {
                "+" => $a + $b,
                "-" => $a - $b,
                "*" => $a * $b,
                "/" => $a / $b,
                "%" => $a % $b,
                "&" => $a & $b,
                "|" => $a | $b,
                "^" => $a ^ $b,
                "<<" => $a << $b,
                _ => return Err(syntax_error!("`{op}` wants an array on its left")),
            }
        };
    }
    Ok(match (a, b) {
        (Value::Array(a), b) => {
            let b = term(&b)?;
            Value::Array(if op == ">>" { &a >> b } else { by!(&a, b) })
        }
        (Value::Number(Scalar::Int(a)), Value::Array(b)) => match i32::try_from(a) {
            Ok(a) => Value::Array(by!(a, &b)),
            Err(_) => return Err(syntax_error!("{a} is too large a number here")),
        },
        (Value::Number(Scalar::Float(a)), Value::Array(b)) => Value::Array(by!(a, &b)),
        (Value::Number(a), Value::Number(b)) => Value::Number(numbers(op, a, b)?),
        (a, b) => {
            return Err(syntax_error!("`{op}` is not defined for {} and {}", a.what(), b.what()));
        }
    })
}

fn numbers(op: &str, a: Scalar, b: Scalar) -> Result<Scalar, ErrorResponse> {
    let out_of_range = || syntax_error!("`{op}` of these two numbers is not a numeric type");
    if let (Scalar::Int(a), Scalar::Int(b)) = (a, b) {
        let made = match op {
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "/" => a.checked_div(b),
            "%" => a.checked_rem(b),
            _ => None,
        };
        return made.filter(|n| i64::try_from(*n).is_ok()).map(Scalar::Int).ok_or_else(out_of_range);
    }
    let float = |x| match x {
        Scalar::Int(n) => Ok(n as f64),
        Scalar::Float(x) => Ok(x),
        _ => Err(out_of_range()),
    };
    let (a, b) = (float(a)?, float(b)?);
    Ok(Scalar::Float(match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "%" => a % b,
        _ => return Err(out_of_range()),
    }))
}

/// Returns the error for an unknown name, which suggests the most similar known name.
fn unknown(what: &str, name: &str, names: &[&str]) -> ErrorResponse {
    let response = syntax_error!("the playground knows no {what} `{name}`");
    let near = names.iter().map(|n| (distance(name, n), *n)).min();
    match near {
        Some((d, near)) if d <= 2 => response.help(format!("there is `{near}`"), None),
        _ => response.help(format!("it knows {}", names.join(", ")), None),
    }
}

/// Returns the edit distance: the number of insertions, deletions and substitutions.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let other = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = other.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Returns the value as an array, or an error if it is something else.
pub(crate) fn array(value: &Value<'_>) -> Result<Array, ErrorResponse> {
    match value {
        Value::Array(x) => Ok(x.clone()),
        other => Err(syntax_error!("an array is expected, not {}", other.what())),
    }
}

/// Returns the value as a spec, or an error if it is something else.
pub(crate) fn spec(value: &Value<'_>) -> Result<Spec, ErrorResponse> {
    match value {
        Value::Spec(spec) => Ok(*spec),
        other => Err(syntax_error!("a spec, like p![\"X\", _], is expected, not {}", other.what())),
    }
}
