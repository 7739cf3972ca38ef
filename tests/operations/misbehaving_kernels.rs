//! Kernels written by users that do not keep the rules: their results are defined memory, or an
//! error, whatever safe code does.

use crate::error_checks::Unquoted as _;
use atmesh::diagnostic::Fault;
use atmesh::prelude::*;
use atmesh::program::loop_nest::{Access, Compute, LoopNest, RowKernelCall};
use atmesh::program::{
    BatchedOp, Dim, Factors, JvpArgs, Linearity, ParallelRowKernel, Primitive, RowInput, RowKernel,
    RowOutput, RowOutputs, SecondPass, Tangents, TransposeArgs, TypedOperand, VmapArgs,
};
use atmesh::types::Shape;
use atmesh::{EngineKind, ErrorKind, custom_op};
use std::mem::{forget, replace};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

/// Each view of a result shows what earlier views wrote.
#[test]
fn a_view_keeps_what_is_written() -> Result<()> {
    let x = Array::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let each = custom_op("each", "...j->...j", |ins, outs| {
        let x = ins[0].view::<f32>();
        for i in 0..x.len() {
            outs[0].view::<f32>()[[i]] = x[[i]] * 2.0;
        }
    });
    for engine in ENGINES {
        let y = jit(|x: &Array| each.call(x)).engine(engine).call(&x)?;
        assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0], "{engine}");
    }
    Ok(())
}

/// A kernel that exchanges its result for another and forgets it has not written it.
#[test]
fn a_forgotten_result_is_an_error() {
    let x = Array::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let lost = custom_op("lost", "...j->...j", |_, outs| {
        forget(replace(&mut outs[0], RowOutput::from_slice::<f32>(&[0], &mut [])));
    });
    let bools = custom_op("bools", "...j->...j", |_, outs| {
        forget(replace(&mut outs[0], RowOutput::from_slice::<bool>(&[0], &mut [])));
    });
    let bools = bools.returns([Bool]);
    for engine in ENGINES {
        for op in [&lost, &bools] {
            drop(Array::full([2, 3], 77.0f32));
            let error = jit(|x: &Array| op.call(x)).engine(engine).call(&x).expect_err("it writes nothing");
            assert_eq!(error.kind(), ErrorKind::User, "{engine}: {error}");
            assert!(error.unquoted().contains("did not write result 0"), "{engine}: {error}");
        }
    }
}

/// A kernel has no arrays: operations on them are the same error on every engine.
#[test]
fn operations_on_arrays_in_a_kernel_are_errors() -> Result<()> {
    let (x, row) = (Array::ones([2, 3]), Array::ones([3]));
    let mesh = Mesh::new([("X", 2)])?;
    type Inside = fn(&Array, &Mesh) -> Result<Vec<f32>>;
    let list: [(&str, Inside); 5] = [
        ("add", |x, _| (x + 1.0).to_vec()),
        ("sum", |x, _| Ok(vec![(x.sin() * 2.0).sum(..).item()?])),
        ("jit", |x, _| jit(|x: &Array| x + 1.0).call(x)?.to_vec()),
        ("grad", |x, _| grad(x, |x| x.square().sum(..)).to_vec()),
        ("shard_map", |x, m| shard_map(m, p![], p![], |x: &Array| x + 1.0).call(x)?.to_vec()),
    ];
    for engine in ENGINES {
        for (name, inside) in list {
            let (row, mesh) = (row.clone(), mesh.clone());
            let op = custom_op("op", "...j->...j", move |_, outs| {
                let y = inside(&row, &mesh)?;
                outs[0].view::<f32>().iter_mut().zip(y).for_each(|(out, y)| *out = y);
                Ok::<(), atmesh::Error>(())
            });
            let error = jit(|x: &Array| op.call(x)).engine(engine).call(&x).expect_err("it has no arrays");
            let text = error.unquoted();
            assert!(text.contains("the kernel of op failed"), "{name} on {engine}: {text}");
            assert!(text.contains("an operation on arrays in a kernel"), "{name} on {engine}: {text}");
        }
        let device = custom_op("device", "...j->...j", {
            let mesh = mesh.clone();
            move |_, _| spmd(&mesh, (), (), |dev: &Device| dev.barrier("X")).call(())
        });
        let error = jit(|x: &Array| device.call(x)).engine(engine).call(&x).expect_err("it is one device");
        assert!(error.unquoted().contains("`spmd` is called by code that runs on a device"), "{error}");
        // the thread computes again after the kernel
        assert_eq!((&x + 1.0).to_vec::<f32>()?, [2.0; 6], "{engine}");
    }
    Ok(())
}

/// The way in which a kernel does not keep the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Misbehavior {
    /// It keeps them.
    None,
    /// It forgets its result.
    Forgets,
    /// It exchanges the list of its results, and forgets it.
    ForgetsAll,
    /// The last chunk needs more scratch than the others.
    Scratch,
    /// The size of scratch grows each time that it is asked for.
    Growing,
    /// The bytes of scratch overflow.
    Overflow,
    /// Another region of the results each time.
    Region,
    /// Columns that do not divide a row.
    Columns,
    /// No columns.
    NoColumns,
    /// An alignment that no row has.
    Alignment,
    /// The direction changes each time.
    Direction,
}

impl RowKernel for Misbehavior {
    fn key(&self) -> String {
        format!("{self:?}")
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        match self {
            Misbehavior::Forgets => forget(outs.take(0)),
            Misbehavior::ForgetsAll => forget(replace(outs, RowOutputs::new([]))),
            _ => {
                if let Some(mut y) = outs.take(0) {
                    y.view::<f32>().assign(&ins[0].view::<f32>());
                }
            }
        }
    }
    fn cost(&self, elements: usize) -> f64 {
        elements as f64 * 100.0
    }
    fn parallel(&self, _: &[DType], n: usize, _: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        Some(Arc::new(TwoPasses { kind: *self, elements: n, asked: AtomicUsize::new(0) }))
    }
}

/// The two passes of a kernel that copies a row; the scratch is not used.
#[derive(Debug)]
struct TwoPasses {
    kind: Misbehavior,
    elements: usize,
    /// The number of answers so far.
    asked: AtomicUsize,
}

impl ParallelRowKernel for TwoPasses {
    fn second_pass(&self) -> SecondPass {
        let whole = self.elements;
        let columns =
            |operand_columns, result_columns| SecondPass::Columns { operand_columns, result_columns };
        match (self.kind, self.asked.fetch_add(1, Relaxed)) {
            (Misbehavior::Region, 0) => columns(whole, whole),
            (Misbehavior::Region, k) if k % 2 == 1 => columns(whole, 1),
            (Misbehavior::Region, _) => SecondPass::FullRow,
            (Misbehavior::Columns, _) => columns(whole - 1, 7),
            (Misbehavior::NoColumns, _) => columns(0, 0),
            _ => SecondPass::Elements,
        }
    }
    fn alignment(&self) -> usize {
        if self.kind == Misbehavior::Alignment { usize::MAX } else { 1 }
    }
    fn reverse(&self) -> bool {
        self.kind == Misbehavior::Direction && self.asked.fetch_add(1, Relaxed) % 2 == 1
    }
    fn scratch(&self, positions: usize) -> (DType, usize) {
        let k = self.asked.fetch_add(1, Relaxed);
        match self.kind {
            Misbehavior::Scratch => (F32, if 2 * positions >= self.elements { 1 } else { 1 << 12 }),
            Misbehavior::Growing => (F32, 1 << k.min(24)),
            Misbehavior::Overflow => (F64, (1 << 61) + 1),
            _ => (F32, 1),
        }
    }
    fn run_first_pass(&self, _: Range<usize>, _: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        scratch.view::<f32>().fill(7.0);
    }
    fn run_second_pass(
        &self,
        _: usize,
        positions: Range<usize>,
        ins: &[RowInput<'_>],
        _: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        match self.kind {
            Misbehavior::Forgets => return forget(outs.take(0)),
            Misbehavior::ForgetsAll => return forget(replace(outs, RowOutputs::new([]))),
            _ => {}
        }
        let Some(mut y) = outs.take(0) else { return };
        let (x, mut y) = (ins[0].view::<f32>(), y.view::<f32>());
        for (y, i) in y.iter_mut().zip(positions.cycle()) {
            *y = x[[i]];
        }
    }
}

/// A primitive that applies a kernel to a vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OfKernel(Misbehavior);

impl Primitive for OfKernel {
    fn name(&self) -> &'static str {
        "of_kernel"
    }
    fn params(&self) -> String {
        self.0.key()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(vec![(operands[0].ty.dtype, operands[0].ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let dims = Dim::each(0..operands[0].rank());
        Factors {
            operands: vec![dims.clone()],
            results: vec![dims],
            ..Factors::from_sizes(&operands[0].shape)
        }
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(self.clone()))
    }
    fn loop_nests(&self, operands: &[ArrayType], _: &[ArrayType]) -> Vec<LoopNest> {
        let x = &operands[0];
        let extents = vec![x.shape[0]; 2];
        let accesses = vec![Access::from_loops(0, x.dtype, &extents, &[Some(1)])];
        let call =
            RowKernelCall { kernel: Arc::new(self.0), result_index: 0, row_loops: [0].into_iter().collect() };
        vec![LoopNest { extents, rank: 1, dtype: x.dtype, accesses, compute: Compute::RowKernel(call) }]
    }
}

/// Memory accesses rely on one answer to each question, so that a kernel that answers differently
/// each time reads and writes only its own memory.
#[test]
fn passes_that_change_their_answers_stay_in_their_memory() {
    const N: usize = 100_001;
    let x = Array::arange(0..N as i32).astype(F32);
    for kind in [
        Misbehavior::None,
        Misbehavior::Forgets,
        Misbehavior::ForgetsAll,
        Misbehavior::Scratch,
        Misbehavior::Growing,
        Misbehavior::Overflow,
        Misbehavior::Region,
        Misbehavior::Columns,
        Misbehavior::NoColumns,
        Misbehavior::Alignment,
        Misbehavior::Direction,
    ] {
        for engine in [EngineKind::Lockstep, EngineKind::Threads] {
            drop(Array::full([N], 77.0f32));
            let own = |x: &Array| Array::apply(Arc::new(OfKernel(kind)), &[x.into()]).swap_remove(0);
            let y = jit(own).engine(engine).call(&x).and_then(|y| y.to_vec::<f32>());
            let y = y.unwrap_or_else(|e| panic!("{kind:?} on {engine}: {e}"));
            let forgets = matches!(kind, Misbehavior::Forgets | Misbehavior::ForgetsAll);
            let want = |i: usize| if forgets { 0.0 } else { i as f32 };
            let wrong = (0..N).filter(|i| y[*i] != want(*i)).count();
            // (an answer that changes may change which elements are read)
            assert!(wrong == 0 || kind == Misbehavior::Direction, "{kind:?} on {engine}: {wrong} are wrong");
        }
    }
}
