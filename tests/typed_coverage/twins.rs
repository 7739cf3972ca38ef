//! The table of typed forms and their untyped twins.

use crate::operands::Operands;
use crate::{twins_of_arrays, twins_of_grids, twins_of_rows};
use atmesh::prelude::*;
use atmesh::typed::Typed;

/// The results of a typed form and of the untyped method.
pub(crate) struct Twin {
    /// The name of the typed form.
    pub(crate) name: &'static str,
    /// The type that the typed form states.
    stated: String,
    typed: Array,
    untyped: Array,
}
impl Twin {
    /// Records the results. The type of `typed` is written in the table.
    pub(crate) fn new<T, S, V>(name: &'static str, typed: Typed<T, S, V>, untyped: Array) -> Twin
    where
        Typed<T, S, V>: atmesh::typed::TypedArray<Elem = T, Shape = S, Sets = V>,
        T: atmesh::Element,
        S: atmesh::typed::shape::Shape,
        V: atmesh::typed::sets::Sets,
    {
        Twin { name, stated: Typed::<T, S, V>::type_text(), typed: typed.untyped(), untyped }
    }
}

/// Adds lines to the table: `name: type, typed form, untyped method;`.
macro_rules! twins { ($list:ident; $($name:ident: $ty:ty, $typed:expr, $untyped:expr;)*) => { $( {
    let typed: $ty = $typed;
    $list.push($crate::twins::Twin::new(stringify!($name), typed, $untyped));
} )* } }
/// Adds lines for methods that return one type: the operand, the arguments of both forms, names.
macro_rules! each { ($list:ident, $x:expr => $ty:ty, $typed:tt $untyped:tt; $($name:ident)*) => { $( {
    let typed: $ty = $x.$name $typed;
    $list.push($crate::twins::Twin::new(stringify!($name), typed, $x.as_untyped().$name $untyped));
} )* } }
pub(crate) use {each, twins};

/// Returns all lines of the table.
pub(crate) fn all(o: &Operands) -> Vec<Twin> {
    let mut list = Vec::new();
    twins_of_arrays::elementwise(o, &mut list);
    twins_of_arrays::shapes(o, &mut list);
    twins_of_rows::reductions(o, &mut list);
    twins_of_rows::along_dims(o, &mut list);
    twins_of_rows::vectors(o, &mut list);
    twins_of_grids::windows(o, &mut list);
    twins_of_grids::products(o, &mut list);
    twins_of_grids::linalg(o, &mut list);
    list
}

/// Formats elements so that equal text means equal bits, except for the payload of NaN.
fn elements(x: &Array) -> String {
    use DType::*;
    macro_rules! by { ($($d:ident $t:ty),*) => { match x.dtype().unwrap() {
        $( $d => format!("{:?}", x.to_vec::<$t>().unwrap()), )*
        d => panic!("{d}"),
    } } }
    by!(Bool bool, I32 i32, I64 i64, U32 u32, U64 u64, F32 f32, F64 f64, C64 atmesh::Complex<f32>, C128 atmesh::Complex<f64>)
}

#[test]
fn typed_forms_return_the_types_and_bits_of_their_twins() {
    let operands = Operands::new();
    let table = all(&operands);
    let mut wrong = Vec::new();
    for Twin { name, stated, typed, untyped } in &table {
        let found = match untyped.ty() {
            Ok(ty) => ty.to_string(),
            Err(e) => panic!("{name}: {e}"),
        };
        if found != *stated || type_of(typed).to_string() != *stated {
            wrong.push(format!("{name}: {stated} is stated, the untyped method returns {found}"));
        }
        if elements(typed) != elements(untyped) {
            wrong.push(format!("{name}: other elements"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.len() > 240, "{} lines", table.len());
}

#[test]
fn typed_forms_agree_with_their_twins_on_every_engine() {
    let operands = Operands::new();
    let names: Vec<&str> = all(&operands).iter().map(|t| t.name).collect();
    let mut before: Option<Vec<String>> = None;
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let both =
            |o: &Operands| -> Vec<Array> { all(o).into_iter().flat_map(|t| [t.typed, t.untyped]).collect() };
        let made = jit(both).engine(engine).call(&operands).unwrap_or_else(|e| panic!("{engine}: {e}"));
        let text: Vec<String> = made.iter().map(elements).collect();
        for (k, name) in names.iter().enumerate() {
            assert_eq!(text[2 * k], text[2 * k + 1], "{name} on {engine}");
        }
        // matrix products of the reference engine have another order
        if engine != EngineKind::Reference {
            let before = before.get_or_insert_with(|| text.clone());
            assert_eq!(*before, text, "{engine}");
        }
    }
}
