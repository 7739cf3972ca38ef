//! Derivatives of typed functions: gradients have the types of cotangents.

use super::sets::{Dual, Sets};
use super::shape::Shape;
use super::{Float, Typed, TypedArray, sealed::FromRule};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::api::transform::{Pullback, ReturnedTree, loss_and_cotangents};
use crate::api::tree::{Args, CallArgs, Cotangents, Loss, Output, Path, Retype, Tree};
use crate::core::{Element, Error, Result};
use crate::ir::program::CallSite;

/// The type of the gradient of a loss with respect to `A`.
///
/// It is `A` with the unreduced and the reduced axes of each array exchanged: a parameter
/// `T![f32; 16; R: X]` has a gradient `T![f32; 16; U: X]`. All other arrays keep their types, so
/// the gradient of a tree without such arrays has the type of the tree.
pub type CotangentOf<A> = <A as Retype<Cotangents>>::Out;

/// A typed array of floating-point numbers, and the type of its cotangents.
#[diagnostic::on_unimplemented(
    message = "cannot differentiate with respect to `{Self}`: its elements are not floating-point numbers",
    label = "derivatives are of floating-point arrays",
    note = "convert it first: `.convert::<f32>()`",
    note = "or capture it in the closure: captured values are constants"
)]
pub trait HasCotangent: TypedArray {
    /// The type of the cotangents.
    type Cotangent: FromRule + Tree;
}
#[diagnostic::do_not_recommend]
impl<T: Float, S: Shape, V: Dual> HasCotangent for Typed<T, S, V> {
    type Cotangent = Typed<T, S, V::Cotangent>;
}
impl<T: Element, S: Shape, V: Sets> Retype<Cotangents> for Typed<T, S, V>
where
    Typed<T, S, V>: HasCotangent,
{
    type Out = <Typed<T, S, V> as HasCotangent>::Cotangent;
    #[track_caller]
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        FromRule::from_rule(next())
    }
}

/// Builds the cotangent of `like` from its leaves, or with leaves that carry the error.
fn cotangents<A: Retype<Cotangents>>(like: &A, leaves: Result<Vec<Array>>, call: CallSite<'_>) -> A::Out {
    match leaves {
        Ok(all) => {
            let mut all = all.into_iter();
            in_call(call.location, || like.retype(&mut || all.next().expect("one for each leaf")))
        }
        Err(e) => {
            let wrong = poison(e);
            like.retype(&mut || wrong.clone())
        }
    }
}

/// Returns the gradient of `f` at a point. Each array of it has the type of its cotangent.
///
/// The rule of its type is [`CotangentOf`]: sizes, shardings and element types are those of the
/// point, and arrays that are reduced over an axis have gradients that are unreduced over it, so
/// that a program decides when the sum over the devices is made. [`grad`](crate::grad) returns the
/// type of the point, and so works only where the two are the same.
///
/// The point is an array, a tuple, or a struct that derives `Tree`, by value or by reference. `f`
/// returns one number, or a tuple of one number and auxiliary results. Arrays of integers have no
/// derivative, and do not compile.
///
/// ```
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let x = <T![f32; 8@X, 16]>::ones(&pod);
/// let w: T![f32; 16; R: X] = <T![f32; 16]>::ones(&pod).reshard(P![_; R: X]);
/// let g: T![f32; 16; U: X] = typed::grad(&w, |w| x.matmul(&w).sum(..)); // no all-reduce
/// let g: T![f32; 16] = g.reshard(P![_]);
/// assert_eq!(g.to_vec()?, [8.0; 16]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn grad<A: Args, R: Output<Tree: Loss>>(point: A, f: impl Fn(A::Owned) -> R) -> CotangentOf<A::Owned>
where
    A::Owned: Retype<Cotangents>,
{
    let (call, at) = (CallSite::here("grad"), point.into_tree());
    let found = loss_and_cotangents(&at, &|x| f(x).into_result(), call);
    cotangents(&at, found.map(|(_, leaves)| leaves), call)
}

/// Returns the result of `f`, and the gradient of its loss, as [`grad`] does.
///
/// The loss is the result, or the first element of a tuple; the other elements are returned as they
/// are.
///
/// ```
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let x = <T![f32; 4@X]>::ones(&Pod::mesh()?);
/// let ((loss, double), g) = typed::value_and_grad(&x, |x| (x.square().sum(..), &x * 2.0));
/// let (_, _): (T![f32; 4@X], T![f32; 4@X]) = (double, g);
/// assert_eq!(loss.item()?, 4.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<A: Args, R: Output<Tree: Loss>>(
    point: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, CotangentOf<A::Owned>)
where
    A::Owned: Retype<Cotangents>,
{
    let (call, at) = (CallSite::here("value_and_grad"), point.into_tree());
    let returned = ReturnedTree::new();
    match loss_and_cotangents(&at, &|x| returned.remember(f(x).into_result()), call) {
        Ok((out, leaves)) => (out, cotangents(&at, Ok(leaves), call)),
        Err(e) => (returned.poisoned(&e), cotangents(&at, Err(e), call)),
    }
}

/// Returns the result of `f`, and its pullback, which maps a cotangent of the result to the
/// cotangent of the point.
///
/// The types of both are those of [`CotangentOf`]. The result is any tree of floating-point arrays.
///
/// ```
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let x = <T![f32; 8@X, 4]>::ones(&pod);
/// let w: T![f32; 4; R: X] = <T![f32; 4]>::ones(&pod).reshard(P![_; R: X]);
/// let (y, pull) = typed::vjp(&w, |w| x.matmul(&w));
/// let dw: T![f32; 4; U: X] = pull.call(y.ones_like());
/// assert_eq!(dw.reshard(P![_]).to_vec()?, [8.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vjp<A: Args, R: Output<Tree: Retype<Cotangents>>>(
    point: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, TypedPullback<R::Tree, A::Owned>)
where
    A::Owned: Retype<Cotangents>,
{
    let (out, inner) = crate::api::transform::vjp(point, f);
    (out, TypedPullback { inner })
}

/// The pullback of [`vjp`]: a linear function from cotangents of the result to cotangents of the
/// point. It may be called many times.
#[must_use = "it does nothing until it is called"]
pub struct TypedPullback<R, A> {
    inner: Pullback<R, A>,
}
/// Prints the types of the result.
impl<R: Tree, A> std::fmt::Debug for TypedPullback<R, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
impl<R: Retype<Cotangents>, A: Retype<Cotangents>> TypedPullback<R, A> {
    /// Returns the cotangent of the point for a cotangent of the result.
    #[track_caller]
    pub fn call<C: CallArgs<CotangentOf<R>>>(&self, cotangent: C) -> CotangentOf<A> {
        let call = CallSite::here("vjp");
        let cotangent = cotangent.into_tree();
        // only its structure is compared
        let leaf = Array::poisoned(Error::internal("a structure has no arrays"));
        let structure = self.inner.result().retype(&mut || leaf.clone());
        let differs = structure.differs(&cotangent, &mut Path::named());
        cotangents(self.inner.point(), self.inner.pull(&cotangent, differs, call), call)
    }
}
