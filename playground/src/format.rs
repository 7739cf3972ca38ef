//! Formats values, as `println!` does.

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::syntax::NumType;
use crate::tree::Arrays;
use crate::value::Value;
use std::rc::Rc;

/// The part of a format after the colon: `>8.3`.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: bool,
    alternate: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
    kind: String,
}

/// Formats a template with values by position, and others by name.
pub(crate) fn format(
    interp: &Rc<Interp>,
    template: &str,
    values: &[Value],
    find: &dyn Fn(&str) -> Eval,
) -> Eval<String> {
    let (mut out, mut next) = (String::new(), 0);
    let mut chars = template.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '{' | '}' if chars.next_if(|(_, n)| *n == c).is_some() => out.push(c),
            '{' => {
                let rest = &template[at + 1..];
                let end = rest
                    .find('}')
                    .ok_or_else(|| syntax_error!("a closing `}}` is expected in the format"))?;
                let hole = &rest[..end];
                while chars.next_if(|(i, _)| *i <= at + 1 + end).is_some() {}
                let (name, spec) = hole.split_once(':').unwrap_or((hole, ""));
                let mut argument = |name: &str| -> Eval {
                    if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
                        return find(name);
                    }
                    let at = name.parse().unwrap_or_else(|_| {
                        next += 1;
                        next - 1
                    });
                    let missing = || syntax_error!("the format has more `{{}}` than there are values");
                    Ok(values.get(at).cloned().ok_or_else(missing)?)
                };
                // `{:.*}` takes the precision first
                let spec = read(spec, &mut argument)?;
                let value = argument(name.trim())?;
                out += &padded(interp, &value, &spec)?;
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn read(text: &str, argument: &mut dyn FnMut(&str) -> Eval) -> Eval<Spec> {
    let mut spec = Spec::default();
    let chars: Vec<char> = text.trim_end().chars().collect();
    let mut at = 0;
    let is_align = |c: Option<&char>| c.is_some_and(|c| matches!(c, '<' | '>' | '^'));
    if is_align(chars.get(1)) {
        (spec.fill, spec.align) = (Some(chars[0]), Some(chars[1]));
        at = 2;
    } else if is_align(chars.first()) {
        spec.align = Some(chars[0]);
        at = 1;
    }
    let eat = |c: char, at: &mut usize| {
        let found = chars.get(*at) == Some(&c);
        *at += usize::from(found);
        found
    };
    spec.sign = eat('+', &mut at);
    spec.alternate = eat('#', &mut at);
    spec.zero = eat('0', &mut at);
    let mut count = |at: &mut usize| -> Eval<Option<usize>> {
        let start = *at;
        while chars.get(*at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
            *at += 1;
        }
        let word: String = chars[start..*at].iter().collect();
        if chars.get(*at) == Some(&'$') {
            *at += 1;
            return Ok(Some(crate::library::whole(&argument(&word)?)?));
        }
        let digits = word.chars().take_while(char::is_ascii_digit).count();
        *at = start + digits;
        Ok(word[..digits].parse().ok())
    };
    spec.width = count(&mut at)?;
    if chars.get(at) == Some(&'.') {
        at += 1;
        if chars.get(at) == Some(&'*') {
            at += 1;
            spec.precision = Some(crate::library::whole(&argument("")?)?);
        } else {
            spec.precision = count(&mut at)?;
        }
    }
    spec.kind = chars[at.min(chars.len())..].iter().collect();
    Ok(spec)
}

fn padded(interp: &Rc<Interp>, value: &Value, spec: &Spec) -> Eval<String> {
    let is_number = matches!(value, Value::Int(..) | Value::Float(..));
    let mut text = match (spec.kind.as_str(), value) {
        ("x", Value::Int(n, _)) => format!("{}{n:x}", if spec.alternate { "0x" } else { "" }),
        ("b", Value::Int(n, _)) => format!("{}{n:b}", if spec.alternate { "0b" } else { "" }),
        ("e", Value::Float(x, NumType::F32)) if spec.precision.is_none() => format!("{:e}", *x as f32),
        ("e", Value::Float(x, _)) => match spec.precision {
            Some(p) => format!("{x:.p$e}"),
            None => format!("{x:e}"),
        },
        ("?", _) => debug_with(interp, value, spec.precision)?,
        _ => display_with(interp, value, spec.precision)?,
    };
    if spec.sign && is_number && !text.starts_with('-') {
        text.insert(0, '+');
    }
    let wide = text.chars().count();
    let missing = spec.width.unwrap_or(0).min(1 << 12).saturating_sub(wide);
    if missing == 0 {
        return Ok(text);
    }
    if spec.zero && is_number {
        let sign = usize::from(text.starts_with(['-', '+']));
        text.insert_str(sign, &"0".repeat(missing));
        return Ok(text);
    }
    let fill = |n: usize| spec.fill.unwrap_or(' ').to_string().repeat(n);
    Ok(match spec.align.unwrap_or(if is_number { '>' } else { '<' }) {
        '>' => fill(missing) + &text,
        '^' => fill(missing / 2) + &text + &fill(missing - missing / 2),
        _ => text + &fill(missing),
    })
}

/// Returns the value as `{}` prints it.
pub(crate) fn display(interp: &Rc<Interp>, value: &Value) -> Eval<String> {
    display_with(interp, value, None)
}
/// Returns the value as `{:?}` prints it.
pub(crate) fn debug(interp: &Rc<Interp>, value: &Value) -> Eval<String> {
    debug_with(interp, value, None)
}

fn display_with(interp: &Rc<Interp>, value: &Value, precision: Option<usize>) -> Eval<String> {
    Ok(match (value, precision) {
        (Value::Float(x, NumType::F32), None) => (*x as f32).to_string(),
        (Value::Float(x, NumType::F32), Some(p)) => format!("{:.p$}", *x as f32),
        (Value::Float(x, _), Some(p)) => format!("{x:.p$}"),
        (Value::Text(text), Some(p)) => text.chars().take(p).collect(),
        (Value::Array(x), Some(p)) => format!("{x:.p$}"),
        (Value::Error(e), _) => interp.error_text(e),
        // a shape
        (Value::List(list), _) if is_shape(list) => debug_with(interp, value, None)?,
        (Value::Struct(record), _) if &*record.name == "Program" => plain(value),
        (
            Value::Result(_)
            | Value::Option(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Struct(_)
            | Value::Unit,
            _,
        ) => {
            return Err(syntax_error!("{} has no `Display`", value.what())
                .help("print it by `{:?}`, or take the value out by `?`", None)
                .into());
        }
        (value, _) => plain(value),
    })
}

/// Returns the value as `{}` prints it, where nothing else is needed.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Int(n, _) => n.to_string(),
        Value::Float(x, NumType::F32) => (*x as f32).to_string(),
        Value::Float(x, _) => x.to_string(),
        Value::Char(c) => c.to_string(),
        Value::Text(text) => text.to_string(),
        Value::Array(x) => x.to_string(),
        Value::Error(e) => e.to_string(),
        Value::Mesh(mesh) => mesh.to_string(),
        Value::Spec(spec) => spec.to_string(),
        Value::Sharding(s) => s.to_string(),
        Value::DType(t) => t.to_string(),
        Value::Type(ty) => ty.to_string(),
        Value::Device(d) => d.to_string(),
        Value::Path(name) => name.rsplit("::").next().unwrap_or(name).to_string(),
        Value::Traced(t) => located(t.with(ToString::to_string)),
        Value::Lowered(l) => located(l.with(ToString::to_string)),
        Value::Struct(record) if &*record.name == "Program" => {
            record.fields.first().map_or_else(String::new, |f| plain(&f.1))
        }
        Value::Collectives(report) => crate::lines::located(&report.to_string()),
        other => other.what().to_string(),
    }
}

/// Returns true for a shape, which prints like a type.
fn is_shape(list: &[Value]) -> bool {
    list.iter().all(|v| matches!(v, Value::Int(_, NumType::Extent))) && !list.is_empty()
}

fn located(text: Result<String, ErrorResponse>) -> String {
    text.map_or_else(|r| r.title(), |text| crate::lines::located(&text))
}

fn debug_with(interp: &Rc<Interp>, value: &Value, precision: Option<usize>) -> Eval<String> {
    let list = |list: &[Value], open: &str, close: &str| -> Eval<String> {
        let parts = list.iter().map(|v| debug_with(interp, v, precision)).collect::<Eval<Vec<_>>>()?;
        Ok(format!("{open}{}{close}", parts.join(", ")))
    };
    Ok(match value {
        Value::Unit => "()".into(),
        Value::Text(text) => format!("{text:?}"),
        Value::Char(c) => format!("{c:?}"),
        Value::Float(x, NumType::F32) => match precision {
            Some(p) => format!("{:.p$?}", *x as f32),
            None => format!("{:?}", *x as f32),
        },
        Value::Float(x, _) => match precision {
            Some(p) => format!("{x:.p$?}"),
            None => format!("{x:?}"),
        },
        Value::List(values) if is_shape(values) => {
            format!("[{}]", values.iter().map(plain).collect::<Vec<_>>().join(","))
        }
        Value::List(values) => list(values, "[", "]")?,
        Value::Tuple(values) if values.len() == 1 => list(values, "(", ",)")?,
        Value::Tuple(values) => list(values, "(", ")")?,
        Value::Range(range) => {
            let bound = |v: &Value| match v {
                Value::Unit => Ok(String::new()),
                v => debug_with(interp, v, precision),
            };
            format!("{}..{}{}", bound(&range.0)?, if range.2 { "=" } else { "" }, bound(&range.1)?)
        }
        Value::Option(None) => "None".into(),
        Value::Option(Some(v)) => format!("Some({})", debug_with(interp, v, precision)?),
        Value::Result(Ok(v)) => format!("Ok({})", debug_with(interp, v, precision)?),
        Value::Result(Err(e)) => format!("Err({})", interp.error_text(e)),
        Value::Array(x) => format!("{x:?}"),
        Value::Key(key) => format!("{key:?}"),
        Value::Struct(record) => {
            let fields =
                record.fields.iter().map(|(n, v)| Ok(format!("{n}: {}", debug_with(interp, v, precision)?)));
            format!("{} {{ {} }}", record.name, fields.collect::<Eval<Vec<_>>>()?.join(", "))
        }
        other => display_with(interp, other, None)?,
    })
}

/// Returns the type of a value, as `type_of` does.
pub(crate) fn type_text(value: &Value) -> String {
    match Arrays::of(value) {
        Ok(tree) => atmesh::type_of(tree).to_string(),
        Err(r) => r.title(),
    }
}
