//! The kernel of a custom operation as a row kernel.
//!
//! The user's function is called for one row at a time, so that results do not depend on how rows
//! are sharded or batched.

use super::OpDeclaration;
use crate::core::{DType, ErrorKind, Fault, Shape, types::with_dtype};
use crate::kernels::row_kernel::{RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, catch_user_panic};
use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

/// The user's kernel: reads operands and writes results, or returns an error message.
type KernelFn = dyn Fn(&[RowInput<'_>], &mut [RowOutput<'_>]) -> Result<(), String> + Send + Sync;

/// A function that is identified by its name and its code.
///
/// Two closures without captures are equal if they come from the same source expression. A closure
/// with captures is equal only to its clones.
pub(crate) struct IdentifiedFn<F: ?Sized> {
    /// The index among the functions with this name.
    index: usize,
    /// The function.
    pub(crate) f: Arc<F>,
}

/// The functions registered under one name.
#[derive(Default)]
struct KnownFns {
    /// The number of functions.
    /// Closures with captures are only counted, as no other is equal to them.
    count: usize,
    /// The index of each closure without captures, by its type.
    by_type: HashMap<TypeId, usize>,
}

impl<F: ?Sized> IdentifiedFn<F> {
    /// Registers `f` under `name`.
    ///
    /// `T` is the type of the user's closure.
    pub(crate) fn new<T: 'static>(name: &str, f: Arc<F>) -> IdentifiedFn<F> {
        static REGISTRY: Mutex<Option<HashMap<String, KnownFns>>> = Mutex::new(None);
        let code = (size_of::<T>() == 0).then(TypeId::of::<T>);
        let mut known = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
        let codes = known.get_or_insert_default().entry(name.to_string()).or_default();
        let mut new = || {
            codes.count += 1;
            codes.count - 1
        };
        let index = match code {
            Some(code) => *codes.by_type.entry(code).or_insert_with(new),
            None => new(),
        };
        IdentifiedFn { index, f }
    }
    /// Returns `""` for the first function of its name, `"#2"` for the second one.
    pub(crate) fn suffix(&self) -> String {
        if self.index == 0 { String::new() } else { format!("#{}", self.index + 1) }
    }
}

impl<F: ?Sized> Clone for IdentifiedFn<F> {
    fn clone(&self) -> Self {
        IdentifiedFn { index: self.index, f: self.f.clone() }
    }
}
impl<F: ?Sized> PartialEq for IdentifiedFn<F> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl<F: ?Sized> Eq for IdentifiedFn<F> {}
impl<F: ?Sized> Hash for IdentifiedFn<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}
impl<F: ?Sized> fmt::Debug for IdentifiedFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index + 1)
    }
}

/// The kernel of a custom operation.
pub(crate) type UserKernel = IdentifiedFn<KernelFn>;

/// The row kernel of a custom operation for operands of certain shapes.
#[derive(Debug)]
pub(super) struct CustomRowKernel {
    /// The declaration of the operation.
    pub(super) declaration: Arc<OpDeclaration>,
    /// For each operand, the loops within a row that its dimensions run over, in order.
    pub(super) operand_loops: Vec<Vec<usize>>,
    /// The number of loops within a row.
    pub(super) row_rank: usize,
    /// The loops within a row that results are sums over.
    pub(super) summed_loops: Vec<usize>,
    /// The element type and shape of one row of each result.
    pub(super) result_rows: Vec<(DType, Shape)>,
}

impl RowKernel for CustomRowKernel {
    fn key(&self) -> String {
        let OpDeclaration { name, kernel, .. } = &*self.declaration;
        format!("{name}{}[{}]", kernel.suffix(), self.declaration.description())
    }
    fn cost(&self, elements: usize) -> f64 {
        self.declaration.ns_per_row.map_or(elements as f64, |c| c.to_f64())
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let fits =
            operands.len() == self.operand_loops.len() && operands.iter().all(|o| o.1.len() == self.row_rank);
        match fits {
            true => Ok(self.result_rows.clone()),
            false => Err(format!("{} does not take such rows", self.key())),
        }
    }
    fn sharding(&self, _: &[DType]) -> RowSharding {
        match &self.summed_loops[..] {
            [] => RowSharding::NotSharded,
            over => RowSharding::Sum { dims: over.to_vec() },
        }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let Some(first) = ins.first() else { return };
        let over = &first.shape()[..first.shape().len() - self.row_rank];
        let mut made: Vec<Option<RowOutput<'_>>> =
            (0..self.result_rows.len()).map(|k| outs.take(k)).collect();
        // The kernel writes all results, so unused ones need a buffer.
        let mut spare: Vec<UnusedResult> =
            self.result_rows.iter().map(|(dtype, shape)| UnusedResult::new(*dtype, shape)).collect();
        let num_rows: usize = over.iter().product();
        let mut at = vec![0; over.len()];
        for row in 0..num_rows {
            let mut rest = row;
            for (i, n) in at.iter_mut().zip(over).rev() {
                (*i, rest) = (rest % n, rest / n);
            }
            let operands: Vec<RowInput<'_>> =
                ins.iter().zip(&self.operand_loops).map(|(x, axes)| x.row(&at, axes)).collect();
            let mut results: Vec<RowOutput<'_>> = (made.iter_mut().zip(&mut spare))
                .map(|(made, spare)| match made {
                    Some(made) => made.row(&at),
                    None => spare.as_row_output(),
                })
                .collect();
            self.run_row(&operands, &mut results);
        }
    }
}

impl CustomRowKernel {
    /// Calls the kernel for one row; panics with a `Fault` if the kernel fails.
    fn run_row(&self, operands: &[RowInput<'_>], results: &mut [RowOutput<'_>]) {
        let name = self.declaration.name;
        let user_fault = |text: String| Fault::new(ErrorKind::User, text);
        let kernel = &self.declaration.kernel.f;
        // (the kernel may exchange the results in its list)
        let unwritten: Vec<_> = results.iter().map(RowOutput::unwritten_flag).collect();
        let missing = |k: &usize| unwritten[*k].get() && !self.result_rows[*k].1.contains(&0);
        let fault = match catch_user_panic(|| kernel(operands, results)) {
            Err(message) => user_fault(format!("the kernel of {name} panicked: {message}")),
            Ok(Err(message)) => user_fault(format!("the kernel of {name} failed: {message}")),
            Ok(Ok(())) => match (0..unwritten.len()).find(missing) {
                Some(k) => {
                    user_fault(format!("the kernel of {name} did not write result {k}")).help(format!(
                        "write all of it: `outs[{k}].view::<{}>()`",
                        rust_type_name(self.result_rows[k].0)
                    ))
                }
                None => return,
            },
        };
        resume_unwind(Box::new(fault))
    }
}

/// Returns the name of the element type in Rust.
fn rust_type_name(dtype: DType) -> &'static str {
    with_dtype!(dtype.storage(), T => std::any::type_name::<T>().rsplit("::").next().unwrap_or_default())
}

/// A buffer for one row of a result that is not used.
struct UnusedResult {
    /// The element type of the result.
    dtype: DType,
    /// The shape of one row.
    shape: Shape,
    /// The memory, aligned for all element types. Allocated on first use.
    buffer: Vec<u128>,
}

impl UnusedResult {
    /// Returns an empty buffer for rows of this type and shape.
    fn new(dtype: DType, shape: &Shape) -> UnusedResult {
        UnusedResult { dtype, shape: shape.clone(), buffer: Vec::new() }
    }
    /// Returns the buffer as a kernel output.
    fn as_row_output(&mut self) -> RowOutput<'_> {
        let bytes = self.shape.num_elements() * self.dtype.size();
        self.buffer.resize(bytes.div_ceil(size_of::<u128>()), 0);
        RowOutput::in_scratch(self.dtype.storage(), &self.shape, &mut self.buffer)
    }
}
