//! Values as trees of arrays: arguments and results of traced functions.

use crate::error::ErrorResponse;
use crate::syntax::{Name, NumType};
use crate::value::{Record, Value};
use atmesh::tree::{Path, SpecTree};
use atmesh::{Args, Array, Error, Key, Param, Tree};
use std::rc::Rc;

/// A tree of arrays, as traced functions take and return.
#[derive(Clone, Debug)]
pub(crate) enum Arrays {
    Array(Array),
    Key(Key),
    List(Vec<Arrays>),
    Tuple(Vec<Arrays>),
    Struct(Name, Vec<(Name, Arrays)>),
    Option(Option<Box<Arrays>>),
    Plain(Plain),
}

/// A plain value in a tree, which is part of its structure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plain {
    Bool(bool),
    Int(i128, NumType),
    Float(f64, NumType),
    Text(Name),
}

impl Tree for Arrays {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        match self {
            Arrays::Array(x) => f(path, x),
            Arrays::Key(key) => f(path, key.array()),
            Arrays::List(list) | Arrays::Tuple(list) => {
                for (i, x) in list.iter().enumerate() {
                    path.entry(i, |path| x.visit(path, f));
                }
            }
            Arrays::Struct(_, fields) => {
                for (name, x) in fields {
                    path.key(name, |path| x.visit(path, f));
                }
            }
            Arrays::Option(x) => x.iter().for_each(|x| x.visit(path, f)),
            Arrays::Plain(_) => {}
        }
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Arrays {
        let mut list = |list: &[Arrays], f: &mut dyn FnMut(&Path, &Array) -> Array| -> Vec<Arrays> {
            list.iter().enumerate().map(|(i, x)| path.entry(i, |path| x.rebuild(path, f))).collect()
        };
        match self {
            Arrays::Array(x) => Arrays::Array(f(path, x)),
            Arrays::Key(key) => Arrays::Key(Key::from_array(f(path, key.array()))),
            Arrays::List(all) => Arrays::List(list(all, f)),
            Arrays::Tuple(all) => Arrays::Tuple(list(all, f)),
            Arrays::Struct(name, fields) => {
                let each =
                    fields.iter().map(|(n, x)| (n.clone(), path.key(n, |path| x.rebuild(path, f)))).collect();
                Arrays::Struct(name.clone(), each)
            }
            Arrays::Option(x) => Arrays::Option(x.as_ref().map(|x| Box::new(x.rebuild(path, f)))),
            Arrays::Plain(plain) => Arrays::Plain(plain.clone()),
        }
    }
    fn differs(&self, other: &Arrays, path: &mut Path) -> Option<String> {
        let different =
            |path: &Path| Some(format!("`{path}` has another structure in one than in the other"));
        match (self, other) {
            (Arrays::Array(_), Arrays::Array(_)) | (Arrays::Key(_), Arrays::Key(_)) => None,
            (Arrays::List(a), Arrays::List(b)) | (Arrays::Tuple(a), Arrays::Tuple(b)) => {
                if a.len() != b.len() {
                    return different(path);
                }
                let mut pairs = a.iter().zip(b).enumerate();
                pairs.find_map(|(i, (a, b))| path.entry(i, |path| a.differs(b, path)))
            }
            (Arrays::Struct(_, a), Arrays::Struct(_, b)) => {
                if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| a.0 != b.0) {
                    return different(path);
                }
                a.iter().zip(b).find_map(|(a, b)| path.key(&a.0, |path| a.1.differs(&b.1, path)))
            }
            (Arrays::Option(Some(a)), Arrays::Option(Some(b))) => a.differs(b, path),
            (Arrays::Option(None), Arrays::Option(None)) => None,
            (Arrays::Plain(a), Arrays::Plain(b)) if a == b => None,
            _ => different(path),
        }
    }
    fn filled_with(error: &Error) -> Arrays {
        Arrays::Array(Array::filled_with(error))
    }
}
impl Args for Arrays {
    type Owned = Arrays;
    fn into_tree(self) -> Arrays {
        self
    }
}
impl Param for Arrays {
    type Owned = Arrays;
    type Item<'a> = Arrays;
    fn lend(owned: &Arrays) -> Arrays {
        owned.clone()
    }
}

/// A pair of trees: the loss with other results, or a carry with a row.
pub(crate) type Pair = (Array, Arrays);

impl Arrays {
    /// Converts a value; scalars become arrays, as in calls of the crate.
    pub(crate) fn of(value: &Value) -> Result<Arrays, ErrorResponse> {
        let list = |list: &[Value]| list.iter().map(Arrays::of).collect::<Result<Vec<_>, _>>();
        Ok(match value {
            Value::Array(x) => Arrays::Array(x.clone()),
            Value::Key(key) => Arrays::Key(key.clone()),
            Value::Type(ty) => Arrays::Array(ty.clone().into_tree()),
            Value::Int(..) | Value::Float(..) | Value::Bool(_) => Arrays::Array(number_array(value)?),
            Value::List(all) => Arrays::List(list(all)?),
            Value::Tuple(all) => Arrays::Tuple(list(all)?),
            Value::Unit => Arrays::Tuple(Vec::new()),
            Value::Struct(record) if &*record.name == "Static" => match record.fields.first() {
                Some((name, value)) => {
                    Arrays::Struct("Static".into(), vec![(name.clone(), Arrays::Plain(plain(value)?))])
                }
                None => Arrays::Tuple(Vec::new()),
            },
            Value::Struct(record) => {
                let each = record.fields.iter().map(|(name, x)| Ok((name.clone(), Arrays::of_field(x)?)));
                Arrays::Struct(record.name.clone(), each.collect::<Result<_, ErrorResponse>>()?)
            }
            Value::Option(x) => Arrays::Option(x.as_ref().map(|x| Arrays::of(x).map(Box::new)).transpose()?),
            Value::Result(Ok(x)) => Arrays::of(x)?,
            Value::Result(Err(e)) => return Err(crate::fixit::without_source(e)),
            other => {
                return Err(syntax_error!("an array or a tree of arrays is expected, not {}", other.what()));
            }
        })
    }
    /// Converts a field of a struct, whose plain values are not traced.
    fn of_field(value: &Value) -> Result<Arrays, ErrorResponse> {
        match value {
            Value::Int(..) | Value::Float(..) | Value::Bool(_) | Value::Text(_) => {
                plain(value).map(Arrays::Plain)
            }
            other => Arrays::of(other),
        }
    }
    /// Converts the tree back to a value.
    pub(crate) fn value(self) -> Value {
        let values = |list: Vec<Arrays>| Rc::new(list.into_iter().map(Arrays::value).collect::<Vec<_>>());
        match self {
            Arrays::Array(x) => Value::Array(x),
            Arrays::Key(key) => Value::Key(key),
            Arrays::List(list) => Value::List(values(list)),
            Arrays::Tuple(list) if list.is_empty() => Value::Unit,
            Arrays::Tuple(list) => Value::Tuple(values(list)),
            Arrays::Struct(name, fields) => {
                let fields = fields.into_iter().map(|(n, x)| (n, x.value())).collect();
                Value::Struct(Rc::new(Record { name, fields }))
            }
            Arrays::Option(x) => Value::option(x.map(|x| x.value())),
            Arrays::Plain(Plain::Bool(b)) => Value::Bool(b),
            Arrays::Plain(Plain::Int(n, ty)) => Value::Int(n, ty),
            Arrays::Plain(Plain::Float(x, ty)) => Value::Float(x, ty),
            Arrays::Plain(Plain::Text(text)) => Value::Text(text),
        }
    }
    /// Returns the array, if the tree is one.
    pub(crate) fn as_array(&self) -> Option<&Array> {
        match self {
            Arrays::Array(x) => Some(x),
            _ => None,
        }
    }
    /// Splits a pair; `None` if the tree is not one.
    pub(crate) fn pair(self) -> Option<(Arrays, Arrays)> {
        match self {
            Arrays::Tuple(list) => <[Arrays; 2]>::try_from(list).ok().map(|[a, b]| (a, b)),
            _ => None,
        }
    }
}

fn plain(value: &Value) -> Result<Plain, ErrorResponse> {
    Ok(match value {
        Value::Bool(b) => Plain::Bool(*b),
        Value::Int(n, ty) => Plain::Int(*n, *ty),
        Value::Float(x, ty) => Plain::Float(*x, *ty),
        Value::Text(text) => Plain::Text(text.clone()),
        other => return Err(syntax_error!("a plain value is expected, not {}", other.what())),
    })
}

/// Returns a number as an argument of a traced function.
fn number_array(value: &Value) -> Result<Array, ErrorResponse> {
    let too_large = || syntax_error!("the number is too large for an int32: `Array::from` keeps its type");
    Ok(match value {
        Value::Bool(b) => b.into_tree(),
        Value::Float(x, _) => x.into_tree(),
        Value::Int(n, NumType::Open | NumType::I32) => {
            i32::try_from(*n).map_err(|_| too_large())?.into_tree()
        }
        Value::Int(n, NumType::Usize | NumType::Extent) => {
            usize::try_from(*n).map_err(|_| too_large())?.into_tree()
        }
        Value::Int(n, NumType::U32) => u32::try_from(*n).map_err(|_| too_large())?.into_tree(),
        Value::Int(n, _) => i64::try_from(*n).map_err(|_| too_large())?.into_tree(),
        other => return Err(syntax_error!("a number is expected, not {}", other.what())),
    })
}

/// Converts specs: one, `Inferred`, or a tuple, list or struct of them.
pub(crate) fn specs(value: &Value) -> Result<SpecTree, ErrorResponse> {
    let numbered = |list: &[Value]| -> Result<SpecTree, ErrorResponse> {
        let each = list.iter().enumerate().map(|(i, v)| Ok((i.to_string(), specs(v)?)));
        Ok(SpecTree::Node(each.collect::<Result<_, ErrorResponse>>()?))
    };
    match value {
        Value::Spec(spec) => Ok(SpecTree::One(*spec)),
        Value::Path(name) if &**name == "Inferred" => Ok(SpecTree::Inferred),
        Value::Option(None) => Ok(SpecTree::Inferred),
        Value::Option(Some(v)) => specs(v),
        Value::List(list) | Value::Tuple(list) => numbered(list),
        Value::Struct(record) => {
            let each = record.fields.iter().map(|(n, v)| Ok((n.to_string(), specs(v)?)));
            Ok(SpecTree::Node(each.collect::<Result<_, ErrorResponse>>()?))
        }
        other => Err(syntax_error!("specs, like p![\"X\", _], are expected, not {}", other.what())),
    }
}
