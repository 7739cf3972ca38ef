//! Compares results with expectations.

use atmesh::{Array, Complex, DType, Error};
use half::{bf16, f16};
use serde_json::Value;
use std::collections::BTreeMap;

/// Parses the numbers of cases.
pub(crate) mod numbers {
    use serde_json::Value;

    /// Parses a float; `"nan"` and `"inf"` are strings.
    pub(crate) fn float(v: &Value) -> f64 {
        match v {
            Value::String(s) => s.parse().unwrap_or(f64::NAN),
            Value::Bool(b) => f64::from(u8::from(*b)),
            other => other.as_f64().unwrap_or(f64::NAN),
        }
    }
    /// Parses an integer.
    pub(crate) fn int(v: &Value) -> i128 {
        match v {
            Value::Bool(b) => i128::from(*b),
            other => {
                let whole = other.as_i64().map(i128::from).or_else(|| other.as_u64().map(i128::from));
                whole.unwrap_or_else(|| float(other) as i128)
            }
        }
    }
}

/// Compares an error with the expected one, if an error is expected.
pub(crate) fn error(
    expect: &Value,
    got: Option<&(String, String, String)>,
    error: Option<&Error>,
) -> Result<(), String> {
    let want = expect["error"].as_str().map(|kind| (kind, expect["at"].as_str().unwrap_or("")));
    match (want, got) {
        (None, None) => match error {
            None => Ok(()),
            Some(e) => Err(format!("rejected at the end: {e}")),
        },
        (Some((kind, at)), Some((name, found, _))) if kind == found && at == name => Ok(()),
        (Some((kind, at)), Some((name, found, text))) => {
            Err(format!("rejected ({found}) at {name}, wanted {kind} at {at}: {text}"))
        }
        (Some((kind, at)), None) => {
            let rest = error.map_or_else(|| "accepted".into(), |e| format!("rejected at the end: {e}"));
            Err(format!("{rest}; wanted {kind} at {at}"))
        }
        (None, Some((name, kind, text))) => Err(format!("rejected ({kind}) at {name}: {text}")),
    }
}

/// Compares the type of every value.
pub(crate) fn types(want: &Value, got: &BTreeMap<String, String>) -> Result<(), String> {
    let Some(want) = want.as_object() else { return Ok(()) };
    let wrong = want.iter().find(|(name, text)| got.get(*name).map(String::as_str) != text.as_str());
    match wrong {
        None => Ok(()),
        Some((name, text)) => {
            let got = got.get(name).map_or("nothing", String::as_str);
            Err(format!("{name} has type {got}, wanted {}", text.as_str().unwrap_or("?")))
        }
    }
}

/// Removes the sharding from a printed type: `float32[8@(X,Y),2]{U:Z}` becomes `float32[8,2]`.
pub(crate) fn unsharded(ty: &str) -> String {
    let (mut text, mut rest) = (String::new(), ty.split('{').next().unwrap_or(""));
    while let Some((before, axes)) = rest.split_once('@') {
        text += before;
        let end = if axes.starts_with('(') { axes.find(')').map(|k| k + 1) } else { axes.find([',', ']']) };
        rest = &axes[end.unwrap_or(axes.len())..];
    }
    text + rest
}

/// All elements: floats or integers.
enum Flat {
    Floats(Vec<f64>),
    Complex(Vec<Complex<f64>>),
    Ints(Vec<i128>),
}

impl Flat {
    /// Returns integers that are equal exactly if the elements are.
    fn bits(self) -> Vec<i128> {
        match self {
            Flat::Floats(x) => x.iter().map(|x| x.to_bits().into()).collect(),
            Flat::Complex(x) => {
                let low = |x: f64| i128::from(x.to_bits());
                x.iter().map(|z| low(z.re) | low(z.im) << 64).collect()
            }
            Flat::Ints(x) => x,
        }
    }
}

/// Compares the elements of these arrays bit by bit.
pub(crate) fn same_bits(got: &[Array], want: &[Array]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} results, {} on unsharded operands", got.len(), want.len()));
    }
    for (k, (a, b)) in got.iter().zip(want).enumerate() {
        let bits = |x: &Array| flat(x).map(Flat::bits).map_err(|e| format!("{e}"));
        if bits(a)? != bits(b)? {
            return Err(format!("result {k} has other bits than on unsharded operands"));
        }
    }
    Ok(())
}

fn flat(x: &Array) -> Result<Flat, Error> {
    macro_rules! floats {
        ($t:ty) => {
            Flat::Floats(x.to_vec::<$t>()?.into_iter().map(f64::from).collect())
        };
    }
    macro_rules! ints {
        ($t:ty) => {
            Flat::Ints(x.to_vec::<$t>()?.into_iter().map(i128::from).collect())
        };
    }
    Ok(match x.dtype()? {
        DType::F16 => floats!(f16),
        DType::BF16 => floats!(bf16),
        DType::F32 => floats!(f32),
        DType::F64 => floats!(f64),
        DType::C64 | DType::C128 => Flat::Complex(x.astype(DType::C128).to_vec()?),
        DType::Bool => ints!(bool),
        DType::I8 => ints!(i8),
        DType::I16 => ints!(i16),
        DType::I32 => ints!(i32),
        DType::I64 => ints!(i64),
        DType::U8 => ints!(u8),
        DType::U16 => ints!(u16),
        DType::U32 => ints!(u32),
        DType::U64 => ints!(u64),
        _ => return flat(&atmesh::Key::from_array(x.clone()).data()),
    })
}

/// Flips the signs of columns (or rows) of matrices to match the expected ones, where the sign is
/// arbitrary.
fn turned(got: &mut [f64], want: &[Value], shape: &[usize], lines: &str) {
    let [.., m, n] = *shape else { return };
    let (count, each) = if lines == "rows" { (m, n) } else { (n, m) };
    for matrix in 0..got.len() / (m * n).max(1) {
        let at = |line: usize, k: usize| {
            matrix * m * n + if lines == "rows" { line * n + k } else { k * n + line }
        };
        for line in 0..count {
            let product: f64 = (0..each).map(|k| got[at(line, k)] * numbers::float(&want[at(line, k)])).sum();
            if product < 0.0 {
                (0..each).for_each(|k| got[at(line, k)] *= -1.0);
            }
        }
    }
}

/// Compares the elements of a result. `up_to_sign` says which rows or columns may have either sign.
pub(crate) fn values(
    name: &str,
    got: &Array,
    want: &Value,
    tol: f64,
    up_to_sign: Option<&str>,
) -> Result<(), String> {
    let want = want.as_array().ok_or("values are no list")?;
    let shape = got.shape().map_err(|e| format!("{name}: {e}"))?;
    let mut got = flat(got).map_err(|e| format!("{name}: {e}"))?;
    if let (Flat::Floats(x), Some(lines)) = (&mut got, up_to_sign)
        && x.len() == want.len()
    {
        turned(x, want, &shape, lines);
    }
    let len = match &got {
        Flat::Floats(x) => x.len(),
        Flat::Complex(x) => x.len(),
        Flat::Ints(x) => x.len(),
    };
    if len != want.len() {
        return Err(format!("{name} has {len} elements, wanted {}", want.len()));
    }
    for (i, w) in want.iter().enumerate() {
        let differs = match &got {
            Flat::Floats(x) => {
                let (x, w) = (x[i], numbers::float(w));
                let close = x == w || (x.is_nan() && w.is_nan()) || (x - w).abs() <= tol + tol * w.abs();
                (!close).then(|| x.to_string())
            }
            Flat::Complex(x) => {
                let (x, w) = (x[i], Complex::new(numbers::float(&w[0]), numbers::float(&w[1])));
                let close = x == w || (x.is_nan() && w.is_nan()) || (x - w).norm() <= tol + tol * w.norm();
                (!close).then(|| x.to_string())
            }
            Flat::Ints(x) => (x[i] != numbers::int(w)).then(|| x[i].to_string()),
        };
        if let Some(x) = differs {
            return Err(format!("{name}[{i}] is {x}, wanted {w}"));
        }
    }
    Ok(())
}

/// Compares each device's shard with its slice of the full array. For an unreduced value, only
/// shapes are compared, since its copies are summands.
pub(crate) fn shards(name: &str, x: &Array) -> Result<(), String> {
    let fail = |e: Error| format!("shards of {name}: {e}");
    let ty = x.ty().map_err(fail)?;
    let shards = x.shards().map_err(fail)?;
    let whole = flat(x).map_err(fail)?.bits();
    let in_parts = !ty.spec.unreduced_axes().is_empty();
    for shard in shards {
        let data = flat(&shard.data).map_err(fail)?.bits();
        let mut positions = vec![0];
        for (r, n) in shard.index.iter().zip(ty.shape.iter()) {
            positions = positions.iter().flat_map(|p| r.clone().map(move |i| p * n + i)).collect();
        }
        // An element of a key is two words.
        let words = whole.len() / ty.shape.num_elements().max(1);
        let slice: Vec<i128> =
            positions.iter().flat_map(|p| (0..words).map(move |w| p * words + w)).map(|p| whole[p]).collect();
        if slice.len() != data.len() || (!in_parts && slice != data) {
            return Err(format!(
                "{name}: the shard of {} differs from its slice {:?}",
                shard.device, shard.index
            ));
        }
    }
    Ok(())
}
