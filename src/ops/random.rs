//! Random numbers: the threefry hash of a key and a counter, so that they depend on neither devices nor shardings.

use super::creation::{fresh, print};
use super::elementwise::{
    Takes, broadcast_shapes, factors as broadcast_factors, sentence as elementwise_sentence,
};
use super::moves::no_derivative;
use super::view::{arity, part};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Affine, Arg, Body, Code, Fun, Read, Sentence, Span};
use crate::program::{Batch, Batched, Examples};
use crate::program::{Builder, Operand, Primitive, Tangents, Value, typing};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// `random_bits`: element i is made of the two words of the key's hash of i.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RandomBits {
    /// The result's type, of unsigned integers.
    pub ty: ArrayType,
    /// How many leading dimensions the key has too: each key makes the bits of what is behind these.
    pub keys: usize,
}

/// `random_split`: key i is the hash of i.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RandomSplit {
    /// The result's type, of keys.
    pub ty: ArrayType,
    /// How many leading dimensions the key has too: each is split into what is behind these.
    pub keys: usize,
}

/// `random_fold_in`: the key's hash of a number. Key and number broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomFoldIn;

/// `random_key_data`: the two words of a key, uint32, along a new last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKeyData;

/// `random_wrap`: keys from their words along the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomWrap;

fn needs_key(name: &str, ty: &ArrayType) -> Result<(), Fault> {
    if ty.dtype != DType::Key {
        return Err(Fault::new(
            ErrorKind::Dtype,
            format!("{name} takes a key, and operand 0 is {}", ty.dtype),
        )
        .help("make one: `Key::new(seed)`"));
    }
    Ok(())
}

/// Refuses what is not a key, and keys of another shape than the result's `keys` leading dimensions.
fn needs_keys(name: &str, ty: &ArrayType, result: &ArrayType, keys: usize) -> Result<(), Fault> {
    needs_key(name, ty)?;
    if result.shape.get(..keys) == Some(&ty.shape[..]) {
        return Ok(());
    }
    let message = match keys {
        0 => format!("{name} takes one key, and operand 0 is {ty}"),
        _ => format!(
            "{name} takes a key for each of the first {keys} dimensions of {result}, and operand 0 is {ty}"
        ),
    };
    Err(Fault::new(ErrorKind::Shape, message).help("take one of them, or map over them: `vmap`"))
}

/// The type of what all keys make, from that of what one makes; on no mesh it is sharded as the keys are.
fn all_keys(ty: &ArrayType, examples: &Examples) -> ArrayType {
    match ty.mesh {
        Some(_) => examples.ty(ty),
        None => ty.dtype.of(examples.shape(&ty.shape)),
    }
}

/// A 64-bit word as an operand.
fn word(x: u64) -> Arg {
    Arg::Const(Scalar::Int(i128::from(x)))
}

/// The hash of each element's linear index, counted behind the dimensions of the keys, under the key that is read 0.
fn hashed(shape: &[usize], keys: usize) -> (Code, Arg) {
    let mut code = Code { insts: Vec::new() };
    let mut index = Arg::Const(Scalar::Int(0));
    for (d, &n) in shape.iter().enumerate().skip(keys) {
        index = if d == keys {
            Arg::Index(d)
        } else {
            let major =
                code.push(Fun::Mul, DType::I64, DType::I64, &[index, Arg::Const(Scalar::Int(n as i128))]);
            code.push(Fun::Add, DType::I64, DType::I64, &[major, Arg::Index(d)])
        };
    }
    let counter = code.push(Fun::Convert, DType::I64, DType::U64, &[index]);
    let hash = code.push(Fun::Threefry, DType::U64, DType::U64, &[Arg::Read(0), counter]);
    (code, hash)
}

/// The key of the leading `keys` indices, and `code` of it.
fn of_key(ty: &ArrayType, keys: usize, code: Code) -> Sentence {
    let extents = ty.shape.to_vec();
    let reads = vec![Read::plain(0, DType::U64, &extents, &(0..keys).map(Some).collect::<Vec<_>>())];
    Sentence { rank: extents.len(), extents, dtype: ty.dtype.storage(), reads, body: Body::Map(code) }
}

/// What is the same for all of them: no derivative.
macro_rules! integers {
    ($name:literal, $rank:ident) => {
        fn name(&self) -> &'static str {
            $name
        }
        fn priority(&self) -> Priority {
            Priority::$rank
        }
        no_derivative!($name);
    };
}

/// What is the same for those whose type is given: it is the result's, on the mesh of type or key.
macro_rules! typed {
    () => {
        fn params(&self) -> String {
            match self.keys {
                0 => print(&self.ty),
                keys => format!("{}, keys={keys}", print(&self.ty)),
            }
        }
        fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            let mut f = fresh(&results[0].1);
            f.operands = operands.iter().map(|key| Dim::each(0..key.rank())).collect();
            f
        }
        fn linearity(&self) -> Linearity {
            Linearity::Nullary
        }
        fn out(&self) -> Option<Spec> {
            (self.ty.mesh.is_some() || !self.ty.spec.is_whole()).then_some(self.ty.spec)
        }
        fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
            typing::by_factors_on(self, operands, self.ty.mesh.as_ref())
        }
    };
}

impl Primitive for RandomBits {
    integers!("random_bits", Plain);
    typed!();
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        needs_keys("random_bits", arity("random_bits", operands, 1)?[0], &self.ty, self.keys)?;
        if !self.ty.dtype.is_unsigned() {
            return Err(Fault::new(
                ErrorKind::Dtype,
                format!("bits are unsigned integers, not {}", self.ty.dtype),
            ));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    fn sentences(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let d = results[0].dtype;
        let (mut code, hash) = hashed(&results[0].shape, self.keys);
        let second = code.push(Fun::ShiftRightLogical, DType::U64, DType::U64, &[hash, word(32)]);
        if d == DType::U64 {
            // the first word is the upper half
            let first = code.push(Fun::ShiftLeft, d, d, &[hash, word(32)]);
            code.push(Fun::Or, d, d, &[first, second]);
        } else {
            let mixed = code.push(Fun::Xor, DType::U64, DType::U64, &[hash, second]);
            code.push(Fun::Convert, DType::U64, d, &[mixed]);
        }
        vec![of_key(&results[0], self.keys, code)]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(RandomBits { ty: all_keys(&self.ty, batch.examples), keys: self.keys + 1 }))
    }
}

impl Primitive for RandomSplit {
    integers!("random_split", Plain);
    typed!();
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        needs_keys("random_split", arity("random_split", operands, 1)?[0], &self.ty, self.keys)?;
        if self.ty.dtype != DType::Key {
            return Err(Fault::new(
                ErrorKind::Dtype,
                format!("a key is split into keys, not {}", self.ty.dtype),
            ));
        }
        Ok(vec![(DType::Key, self.ty.shape.clone())])
    }
    fn sentences(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        vec![of_key(&results[0], self.keys, hashed(&results[0].shape, self.keys).0)]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(RandomSplit { ty: all_keys(&self.ty, batch.examples), keys: self.keys + 1 }))
    }
}

impl Primitive for RandomFoldIn {
    integers!("random_fold_in", Elementwise);
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity("random_fold_in", operands, 2)?;
        let shape = broadcast_shapes(operands.iter().map(|o| &o.ty.shape[..]).enumerate())?;
        needs_key("random_fold_in", &operands[0].ty)?;
        Takes::Integer.check(operands, 1)?;
        Ok(vec![(DType::Key, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        broadcast_factors(operands, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        // the counter's high word is 0
        let mut code = Code::one(Fun::Convert, operands[1].dtype, DType::U32, &[Arg::Read(1)]);
        let counter = code.push(Fun::Convert, DType::U32, DType::U64, &[Arg::Inst(0)]);
        code.push(Fun::Threefry, DType::U64, DType::U64, &[Arg::Read(0), counter]);
        vec![elementwise_sentence(operands, &results[0], code)]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::broadcasting(Arc::new(*self))
    }
}

impl Primitive for RandomKeyData {
    integers!("random_key_data", Broadcast);
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity("random_key_data", operands, 1)?[0];
        needs_key("random_key_data", ty)?;
        Ok(vec![(DType::U32, ty.shape.iter().copied().chain([2]).collect())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = fresh(&results[0].1);
        f.operands = vec![Dim::each(0..operands[0].rank())];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let rank = operands[0].rank();
        let extents = results[0].shape.to_vec();
        let loops: Vec<_> = (0..rank).map(Some).collect();
        let reads = vec![Read::plain(0, DType::U64, &extents, &loops)];
        // word w begins at bit 32w
        let bit = Arg::Const(Scalar::Int(32));
        let mut code = Code::one(Fun::Mul, DType::I64, DType::I64, &[Arg::Index(rank), bit]);
        let by = code.push(Fun::Convert, DType::I64, DType::U64, &[Arg::Inst(0)]);
        let shifted = code.push(Fun::ShiftRightLogical, DType::U64, DType::U64, &[Arg::Read(0), by]);
        code.push(Fun::Convert, DType::U64, DType::U32, &[shifted]);
        vec![Sentence { extents, rank: rank + 1, dtype: DType::U32, reads, body: Body::Map(code) }]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(*self))
    }
}

impl Primitive for RandomWrap {
    integers!("random_wrap", Plain);
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity("random_wrap", operands, 1)?[0];
        let [lead @ .., 2] = &ty.shape[..] else {
            return Err(Fault::new(
                ErrorKind::Shape,
                format!("a key has two words along the last dimension, and operand 0 is {ty}"),
            ));
        };
        if ty.dtype != DType::U32 {
            return Err(Fault::new(ErrorKind::Dtype, format!("a key's words are uint32, not {}", ty.dtype))
                .help("convert them: `.astype(U32)`"));
        }
        Ok(vec![(DType::Key, lead.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = fresh(&results[0].1);
        let words = f.add(2);
        f.loops[words].whole = true;
        f.operands = vec![Dim::each(0..operands[0].rank())];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn sentences(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let rank = results[0].rank();
        let extents = results[0].shape.to_vec();
        let read = |word: i64| {
            let map = Affine::identity(rank).into_iter().chain([Affine::constant(word)]).collect();
            let fill = Scalar::zero(DType::U32);
            Read { dtype: DType::U32, parts: vec![part(0, Span::whole(&extents), map)], fill }
        };
        let reads = vec![read(0), read(1)];
        let mut code = Code::one(Fun::Convert, DType::U32, DType::U64, &[Arg::Read(0)]);
        let high = code.push(Fun::Convert, DType::U32, DType::U64, &[Arg::Read(1)]);
        let high = code.push(Fun::ShiftLeft, DType::U64, DType::U64, &[high, word(32)]);
        code.push(Fun::Or, DType::U64, DType::U64, &[Arg::Inst(0), high]);
        vec![Sentence { extents, rank, dtype: DType::U64, reads, body: Body::Map(code) }]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(*self))
    }
}

impl Builder {
    /// The key of a seed: its words are 0 and the seed.
    pub fn random_key(&mut self, seed: u32) -> Result<Value> {
        self.full(&DType::Key.of([]), u64::from(seed) << 32)
    }
    /// Random bits of exactly this type.
    pub fn random_bits(&mut self, key: &Value, ty: &ArrayType) -> Result<Value> {
        self.emit1(Arc::new(RandomBits { ty: ty.clone(), keys: 0 }), std::slice::from_ref(key))
    }
    /// An array of keys of exactly this type.
    pub fn random_split(&mut self, key: &Value, ty: &ArrayType) -> Result<Value> {
        self.emit1(Arc::new(RandomSplit { ty: ty.clone(), keys: 0 }), std::slice::from_ref(key))
    }
    /// The key's hash of a number.
    pub fn random_fold_in(&mut self, key: &Value, data: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomFoldIn), &[key.clone(), data.clone()])
    }
    /// The words of a key.
    pub fn random_key_data(&mut self, key: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomKeyData), std::slice::from_ref(key))
    }
    /// Keys from their words.
    pub fn random_wrap(&mut self, words: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomWrap), std::slice::from_ref(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        bits_of_a_key: RandomBits { ty: DType::U32.of([4]), keys: 0 }, ["key<fry>[]"] => "
            (a: key<fry>[]) {
              b: uint32[4] = random_bits[ty=u32[4]] a
              return b
            }
        ";
        one_key_becomes_many: RandomSplit { ty: DType::Key.of([3]), keys: 0 }, ["key<fry>[]"] => "
            (a: key<fry>[]) {
              b: key<fry>[3] = random_split[ty=key<fry>[3]] a
              return b
            }
        ";
        a_key_with_a_number: RandomFoldIn, ["key<fry>[]", "int32[]"] => "
            (a: key<fry>[], b: int32[]) {
              c: key<fry>[] = random_fold_in a b
              return c
            }
        ";
        bits_of_no_key_are_refused: RandomBits { ty: DType::U32.of([4]), keys: 0 }, ["uint32[]"] => "
            refused: random_bits takes a key, and operand 0 is uint32
            make one: `Key::new(seed)`
        ";
    }
}
