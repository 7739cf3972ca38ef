//! The function of a user's operation: called for one line at a time, so that what comes out depends on what goes in alone.

use super::Declared;
use crate::diagnostic::{ErrorKind, Fault};
use crate::program::line::{Cut, In, Line, Out, Outs, guarded};
use crate::types::{DType, Shape, with_dtype};
use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

/// The user's code: reads the operands, writes the results, or says why it cannot.
type Code = dyn Fn(&[In<'_>], &mut [Out<'_>]) -> Result<(), String> + Send + Sync;

/// A function that is told from others by its name and its code. Two closures that capture nothing are the same where they are one piece of
/// source; of those that capture something each is its own.
pub(crate) struct Own<F: ?Sized> {
    /// The number among those of this name.
    number: usize,
    pub(crate) f: Arc<F>,
}

/// The codes of one name.
#[derive(Default)]
struct Codes {
    /// How many there are. Of those that capture something no more is kept: no other is the same.
    count: usize,
    /// The numbers of those that capture nothing.
    plain: HashMap<TypeId, usize>,
}

impl<F: ?Sized> Own<F> {
    /// `f` of this name; `code` is the type of what the user wrote, of `size` bytes.
    pub(crate) fn new<T: 'static>(name: &str, f: Arc<F>) -> Own<F> {
        static KNOWN: Mutex<Option<HashMap<String, Codes>>> = Mutex::new(None);
        let code = (size_of::<T>() == 0).then(TypeId::of::<T>);
        let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
        let codes = known.get_or_insert_default().entry(name.to_string()).or_default();
        let mut new = || {
            codes.count += 1;
            codes.count - 1
        };
        let number = match code {
            Some(code) => *codes.plain.entry(code).or_insert_with(new),
            None => new(),
        };
        Own { number, f }
    }
    /// `""` of the first of its name, `"#2"` of the second.
    pub(crate) fn suffix(&self) -> String {
        if self.number == 0 { String::new() } else { format!("#{}", self.number + 1) }
    }
}

impl<F: ?Sized> Clone for Own<F> {
    fn clone(&self) -> Self {
        Own { number: self.number, f: self.f.clone() }
    }
}
impl<F: ?Sized> PartialEq for Own<F> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<F: ?Sized> Eq for Own<F> {}
impl<F: ?Sized> Hash for Own<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
impl<F: ?Sized> fmt::Debug for Own<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number + 1)
    }
}

/// The kernel of a user's operation.
pub(crate) type Kernel = Own<Code>;

/// The function of lines of an operation on operands of certain shapes.
#[derive(Debug)]
pub(super) struct Lined {
    pub(super) of: Arc<Declared>,
    /// Of each operand the loops along a line that it runs over, in the order of its dimensions.
    pub(super) axes: Vec<Vec<usize>>,
    /// How many loops there are along a line.
    pub(super) along: usize,
    /// Those that results are sums over.
    pub(super) sums: Vec<usize>,
    /// A line of each result.
    pub(super) results: Vec<(DType, Shape)>,
}

impl Line for Lined {
    fn key(&self) -> String {
        let Declared { name, kernel, .. } = &*self.of;
        format!("{name}{}[{}]", kernel.suffix(), self.of.text())
    }
    fn cost(&self, elements: usize) -> f64 {
        self.of.cost.map_or(elements as f64, |c| c.to_f64())
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let fits = operands.len() == self.axes.len() && operands.iter().all(|o| o.1.len() == self.along);
        match fits {
            true => Ok(self.results.clone()),
            false => Err(format!("{} does not take such lines", self.key())),
        }
    }
    fn cut(&self, _: &[DType]) -> Cut {
        match &self.sums[..] {
            [] => Cut::Whole,
            over => Cut::Sum { over: over.to_vec() },
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let Some(first) = ins.first() else { return };
        let over = &first.shape()[..first.shape().len() - self.along];
        let mut made: Vec<Option<Out<'_>>> = (0..self.results.len()).map(|k| outs.take(k)).collect();
        // what nobody asked for is written all the same
        let mut spare: Vec<Spare> =
            self.results.iter().map(|(dtype, shape)| Spare::new(*dtype, shape)).collect();
        let lines: usize = over.iter().product();
        let mut at = vec![0; over.len()];
        for line in 0..lines {
            let mut rest = line;
            for (i, n) in at.iter_mut().zip(over).rev() {
                (*i, rest) = (rest % n, rest / n);
            }
            let operands: Vec<In<'_>> =
                ins.iter().zip(&self.axes).map(|(x, axes)| x.line(&at, axes)).collect();
            let mut results: Vec<Out<'_>> = (made.iter_mut().zip(&mut spare))
                .map(|(made, spare)| match made {
                    Some(made) => made.line(&at),
                    None => spare.out(),
                })
                .collect();
            self.one(&operands, &mut results);
        }
    }
}

impl Lined {
    fn one(&self, operands: &[In<'_>], results: &mut [Out<'_>]) {
        let name = self.of.name;
        let told = |text: String| Fault::new(ErrorKind::Other, text);
        let kernel = &self.of.kernel.f;
        let fault = match guarded(|| kernel(operands, results)) {
            Err(said) => told(format!("the kernel of {name} panicked: {said}")),
            Ok(Err(said)) => told(format!("the kernel of {name} failed: {said}")),
            Ok(Ok(())) => match results.iter().position(|r| r.unwritten() && !r.shape().contains(&0)) {
                Some(k) => told(format!("the kernel of {name} did not write result {k}"))
                    .help(format!("write all of it: `outs[{k}].view::<{}>()`", rust(self.results[k].0))),
                None => return,
            },
        };
        resume_unwind(Box::new(fault))
    }
}

/// The element type as Rust names it.
fn rust(dtype: DType) -> &'static str {
    with_dtype!(dtype.storage(), T => std::any::type_name::<T>().rsplit("::").next().unwrap_or_default())
}

/// Room for a line of a result that nobody asked for.
struct Spare {
    dtype: DType,
    shape: Shape,
    room: Vec<u128>,
}

impl Spare {
    fn new(dtype: DType, shape: &Shape) -> Spare {
        Spare { dtype, shape: shape.clone(), room: Vec::new() }
    }
    fn out(&mut self) -> Out<'_> {
        let bytes = self.shape.elements() * self.dtype.size();
        self.room.resize(bytes.div_ceil(size_of::<u128>()), 0);
        Out::within(self.dtype.storage(), &self.shape, &mut self.room)
    }
}
