//! Random primitives, which hash a key and a counter with Threefry.
//!
//! The counter is the index of an element, so results do not depend on devices or shardings.

use super::creation::{format_type, result_factors};
use super::dim_check::{access_piece, arity};
use super::elementwise::{
    DTypeClass, broadcast_shapes, factors as broadcast_factors, loop_nest as elementwise_sentence,
};
use super::structural::no_derivative;
use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Scalar, Shape, Spec};
use crate::ir::program::{
    Access, AffineExpr, BatchDim, BatchedOp, Builder, Dim, Factors, Linearity, LoopNest, Primitive, Priority,
    ScalarArg, ScalarCode, ScalarOp, StridedRange, Tangents, TypedOperand, Value, VmapArgs, typing,
};
use std::sync::Arc;

/// Random bits: element i is a hash of i under a key (`random_bits`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RandomBits {
    /// The type of the result. Its elements are unsigned integers.
    pub ty: ArrayType,
    /// The number of leading dimensions that the result shares with the key operand.
    /// Each key generates the elements in the remaining dimensions.
    pub num_key_dims: usize,
}

/// The keys that are split off a key: key i is the hash of i under the key (`random_split`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RandomSplit {
    /// The type of the result. Its elements are keys.
    pub ty: ArrayType,
    /// The number of leading dimensions that the result shares with the key operand.
    /// Each key is split into the keys in the remaining dimensions.
    pub num_key_dims: usize,
}

/// The key that is derived from a key and an integer: `random_fold_in`.
///
/// Both operands broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomFoldIn;

/// The two uint32 words of a key, along a new last dimension: `random_key_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKeyData;

/// The keys that have the words along the last dimension: `random_wrap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomWrap;

/// Returns an error if the operand is not a key.
fn check_key(name: &str, ty: &ArrayType) -> Result<(), Fault> {
    if ty.dtype != DType::Key {
        return Err(fault!(Dtype, "{name} takes a key, and operand 0 is {}", ty.dtype)
            .help("make one: `Key::new(seed)`"));
    }
    Ok(())
}

/// Returns an error unless the operand is keys in the shape of the first `keys` dimensions.
fn check_keys(name: &str, ty: &ArrayType, result: &ArrayType, keys: usize) -> Result<(), Fault> {
    check_key(name, ty)?;
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

/// Returns the result type for a batch of keys.
///
/// Without a mesh, the result is sharded like the keys.
fn batched_type(ty: &ArrayType, batch_dim: &BatchDim) -> ArrayType {
    let Some(_) = ty.mesh else { return ty.dtype.array_type(batch_dim.shape(&ty.shape)) };
    batch_dim.ty(ty)
}

/// Returns a 64-bit constant as an operand of scalar code.
fn u64_constant(x: u64) -> ScalarArg {
    ScalarArg::Const(Scalar::Int(i128::from(x)))
}

/// Returns scalar code for the hash of each element's linear index, under the key of access 0.
///
/// Indices are counted within the dimensions after the first `keys` ones.
fn hash_indices(shape: &[usize], keys: usize) -> (ScalarCode, ScalarArg) {
    let mut code = ScalarCode { insts: Vec::new() };
    let mut index = ScalarArg::Const(Scalar::Int(0));
    for (d, &n) in shape.iter().enumerate().skip(keys) {
        index = if d == keys {
            ScalarArg::Index(d)
        } else {
            let major = code.push(
                ScalarOp::Mul,
                DType::I64,
                DType::I64,
                &[index, ScalarArg::Const(Scalar::Int(n as i128))],
            );
            code.push(ScalarOp::Add, DType::I64, DType::I64, &[major, ScalarArg::Index(d)])
        };
    }
    let counter = code.push(ScalarOp::Convert, DType::I64, DType::U64, &[index]);
    let hash = code.push(ScalarOp::Threefry, DType::U64, DType::U64, &[ScalarArg::Access(0), counter]);
    (code, hash)
}

/// Returns a loop nest that applies `code` to the key at the first `keys` indices.
fn per_key_loop_nest(ty: &ArrayType, keys: usize, code: ScalarCode) -> LoopNest {
    let extents = ty.shape.to_vec();
    let reads = vec![Access::from_loops(0, DType::U64, &extents, &(0..keys).map(Some).collect::<Vec<_>>())];
    LoopNest::map(extents, ty.dtype.storage(), reads, code)
}

/// Defines the rules that are the same for all random primitives; they have no derivative.
macro_rules! integer_rules {
    ($name:literal, $rank:ident, $linearity:ident) => {
        described!(self, $name, Linearity::$linearity);
        fn priority(&self) -> Priority {
            Priority::$rank
        }
        no_derivative!($name);
    };
}

/// Defines the rules of the primitives that have the result type as a parameter.
///
/// The result is on the mesh of this type, or on the mesh of the key if the type has none.
macro_rules! given_type_rules {
    () => {
        fn params(&self) -> String {
            match self.num_key_dims {
                0 => format_type(&self.ty),
                keys => format!("{}, keys={keys}", format_type(&self.ty)),
            }
        }
        fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            let mut f = result_factors(&results[0].1);
            f.operands = operands.iter().map(|key| Dim::each(0..key.rank())).collect();
            f
        }
        fn out_sharding(&self) -> Option<Spec> {
            (self.ty.mesh.is_some() || !self.ty.spec.is_replicated()).then_some(self.ty.spec)
        }
        fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
            typing::by_factors_on(self, operands, self.ty.mesh.as_ref())
        }
    };
}

impl Primitive for RandomBits {
    integer_rules!("random_bits", Plain, Nullary);
    given_type_rules!();
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check_keys("random_bits", arity("random_bits", operands, 1)?[0], &self.ty, self.num_key_dims)?;
        if !self.ty.dtype.is_unsigned() {
            return Err(fault!(Dtype, "bits are unsigned integers, not {}", self.ty.dtype));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    fn loop_nests(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let d = results[0].dtype;
        let (mut code, hash) = hash_indices(&results[0].shape, self.num_key_dims);
        let second =
            code.push(ScalarOp::ShiftRightLogical, DType::U64, DType::U64, &[hash, u64_constant(32)]);
        if d == DType::U64 {
            // The first word is the upper half.
            let first = code.push(ScalarOp::ShiftLeft, d, d, &[hash, u64_constant(32)]);
            code.push(ScalarOp::Or, d, d, &[first, second]);
        } else {
            let mixed = code.push(ScalarOp::Xor, DType::U64, DType::U64, &[hash, second]);
            code.push(ScalarOp::Convert, DType::U64, d, &[mixed]);
        }
        vec![per_key_loop_nest(&results[0], self.num_key_dims, code)]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(RandomBits {
            ty: batched_type(&self.ty, batch.batch_dim),
            num_key_dims: self.num_key_dims + 1,
        }))
    }
}

impl Primitive for RandomSplit {
    integer_rules!("random_split", Plain, Nullary);
    given_type_rules!();
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check_keys("random_split", arity("random_split", operands, 1)?[0], &self.ty, self.num_key_dims)?;
        if self.ty.dtype != DType::Key {
            return Err(fault!(Dtype, "a key is split into keys, not {}", self.ty.dtype));
        }
        Ok(vec![(DType::Key, self.ty.shape.clone())])
    }
    fn loop_nests(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        vec![per_key_loop_nest(
            &results[0],
            self.num_key_dims,
            hash_indices(&results[0].shape, self.num_key_dims).0,
        )]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(RandomSplit {
            ty: batched_type(&self.ty, batch.batch_dim),
            num_key_dims: self.num_key_dims + 1,
        }))
    }
}

impl Primitive for RandomFoldIn {
    integer_rules!("random_fold_in", Elementwise, None);
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity("random_fold_in", operands, 2)?;
        let shape = broadcast_shapes(operands.iter().map(|o| &o.ty.shape[..]).enumerate())?;
        check_key("random_fold_in", &operands[0].ty)?;
        DTypeClass::Integer.check(operands, 1)?;
        Ok(vec![(DType::Key, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        broadcast_factors(operands, &results[0].1)
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        // The high word of the counter is 0.
        let mut code =
            ScalarCode::single(ScalarOp::Convert, operands[1].dtype, DType::U32, &[ScalarArg::Access(1)]);
        let counter = code.push(ScalarOp::Convert, DType::U32, DType::U64, &[ScalarArg::Inst(0)]);
        code.push(ScalarOp::Threefry, DType::U64, DType::U64, &[ScalarArg::Access(0), counter]);
        vec![elementwise_sentence(operands, &results[0], code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(*self))
    }
}

impl Primitive for RandomKeyData {
    integer_rules!("random_key_data", Broadcast, None);
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity("random_key_data", operands, 1)?[0];
        check_key("random_key_data", ty)?;
        Ok(vec![(DType::U32, ty.shape.iter().copied().chain([2]).collect())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = result_factors(&results[0].1);
        f.operands = vec![Dim::each(0..operands[0].rank())];
        f
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let rank = operands[0].rank();
        let extents = results[0].shape.to_vec();
        let loops: Vec<_> = (0..rank).map(Some).collect();
        let reads = vec![Access::from_loops(0, DType::U64, &extents, &loops)];
        // Word w starts at bit 32·w.
        let bit = ScalarArg::Const(Scalar::Int(32));
        let mut code =
            ScalarCode::single(ScalarOp::Mul, DType::I64, DType::I64, &[ScalarArg::Index(rank), bit]);
        let by = code.push(ScalarOp::Convert, DType::I64, DType::U64, &[ScalarArg::Inst(0)]);
        let shifted =
            code.push(ScalarOp::ShiftRightLogical, DType::U64, DType::U64, &[ScalarArg::Access(0), by]);
        code.push(ScalarOp::Convert, DType::U64, DType::U32, &[shifted]);
        vec![LoopNest::map(extents, DType::U32, reads, code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(*self))
    }
}

impl Primitive for RandomWrap {
    integer_rules!("random_wrap", Plain, None);
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity("random_wrap", operands, 1)?[0];
        let [lead @ .., 2] = &ty.shape[..] else {
            return Err(fault!(Shape, "a key has two words along the last dimension, and operand 0 is {ty}"));
        };
        if ty.dtype != DType::U32 {
            return Err(fault!(Dtype, "a key's words are uint32, not {}", ty.dtype)
                .help("convert them: `.astype(U32)`"));
        }
        Ok(vec![(DType::Key, lead.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = result_factors(&results[0].1);
        let words = f.add_loop(2);
        f.loops[words].need_replication = true;
        f.operands = vec![Dim::each(0..operands[0].rank())];
        f
    }
    fn loop_nests(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let rank = results[0].rank();
        let extents = results[0].shape.to_vec();
        let read = |word: i64| {
            let map = AffineExpr::identity(rank).into_iter().chain([AffineExpr::constant(word)]).collect();
            let fill = Scalar::zero(DType::U32);
            Access {
                dtype: DType::U32,
                pieces: vec![access_piece(0, StridedRange::full_box(&extents), map)],
                fill,
            }
        };
        let reads = vec![read(0), read(1)];
        let mut code = ScalarCode::single(ScalarOp::Convert, DType::U32, DType::U64, &[ScalarArg::Access(0)]);
        let high = code.push(ScalarOp::Convert, DType::U32, DType::U64, &[ScalarArg::Access(1)]);
        let high = code.push(ScalarOp::ShiftLeft, DType::U64, DType::U64, &[high, u64_constant(32)]);
        code.push(ScalarOp::Or, DType::U64, DType::U64, &[ScalarArg::Inst(0), high]);
        vec![LoopNest::map(extents, DType::U64, reads, code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(*self))
    }
}

impl Builder {
    /// Emits the key of a seed, whose words are 0 and the seed.
    pub fn random_key(&mut self, seed: u32) -> Result<Value> {
        self.full(&DType::Key.array_type([]), u64::from(seed) << 32)
    }
    /// Emits random bits of exactly this type.
    pub fn random_bits(&mut self, key: &Value, ty: &ArrayType) -> Result<Value> {
        self.emit1(Arc::new(RandomBits { ty: ty.clone(), num_key_dims: 0 }), std::slice::from_ref(key))
    }
    /// Emits an array of keys of exactly this type.
    pub fn random_split(&mut self, key: &Value, ty: &ArrayType) -> Result<Value> {
        self.emit1(Arc::new(RandomSplit { ty: ty.clone(), num_key_dims: 0 }), std::slice::from_ref(key))
    }
    /// Emits the key that is derived from a key and an integer.
    pub fn random_fold_in(&mut self, key: &Value, data: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomFoldIn), &[key.clone(), data.clone()])
    }
    /// Emits the words of a key.
    pub fn random_key_data(&mut self, key: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomKeyData), std::slice::from_ref(key))
    }
    /// Emits keys from their words.
    pub fn random_wrap(&mut self, words: &Value) -> Result<Value> {
        self.emit1(Arc::new(RandomWrap), std::slice::from_ref(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        bits_of_a_key: RandomBits { ty: DType::U32.array_type([4]), num_key_dims: 0 }, ["key<fry>[]"] => "
            (a: key<fry>[]) {
              b: uint32[4] = random_bits[ty=u32[4]] a
              return b
            }
        ";
        one_key_becomes_many: RandomSplit { ty: DType::Key.array_type([3]), num_key_dims: 0 }, ["key<fry>[]"] => "
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
        bits_of_no_key_are_rejected: RandomBits { ty: DType::U32.array_type([4]), num_key_dims: 0 }, ["uint32[]"] => "
            error: random_bits takes a key, and operand 0 is uint32
            make one: `Key::new(seed)`
        ";
    }
}
