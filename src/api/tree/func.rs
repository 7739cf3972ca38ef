//! The trait of functions that can be traced.

use super::{Param, Tree};

/// A function that can be traced. The marker `M` is `fn(A, B, ..) -> R`, found by inference.
///
/// Parameters are taken by value or by reference
/// ([closures and arguments](crate#closures-and-arguments)).
///
/// ```
/// use atmesh::{Array, Func, Jit, Tree, jit};
/// // a function that compiles any function of one array
/// fn compiled<'f, M, F>(f: F) -> Jit<'f, Array, Array>
/// where
///     F: Func<M, In = Array, Ret = Array> + 'f,
/// {
///     jit(move |x: &Array| f.apply(x))
/// }
/// assert_eq!(compiled(|x: &Array| x + 1).call(1)?.item::<i32>()?, 2);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this function cannot be traced",
    label = "a parameter is not an array",
    note = "each parameter is an array, a tree of arrays or a reference to one, with its type written out: `|x: &Array, w: Array|`",
    note = "a struct of arrays is a tree with `#[derive(Tree)]`; anything that is not an array can be captured, or passed as `Static<_>`"
)]
pub trait Func<M> {
    /// The tree of the only parameter, or the tuple of the trees of several.
    type In: Tree;
    /// The return type.
    type Ret;
    /// Returns the number of parameters.
    ///
    /// A function that wraps another one, such as [`Jit`](crate::Jit), has as many as that one.
    fn arity(&self) -> usize;
    /// Calls the function.
    fn apply(&self, input: &Self::In) -> Self::Ret;
}

// A function of one parameter takes its tree as the input; a function of more takes their tuple.
// The marker `fn(..) -> R` keeps the impls disjoint. The second bound lets a parameter be a
// reference of any lifetime. It bounds `&'f Fun`, not `Fun`: otherwise functions known only by a
// bound (`impl Fn(&Array) -> Array`) match no impl as soon as there are two arities. There is no
// `do_not_recommend` here: it would hide rustc's own "closure is `FnMut` because it mutates ..
// here".
macro_rules! funcs {
    ($T:ident) => { funcs! { @ $T::Owned, $T, $T } };
    ($($T:ident)*) => { funcs! { @ ($($T::Owned,)*), ($($T,)*), $($T)* } };
    (@ $In:ty, $pat:pat, $($T:ident)*) => {
        impl<Fun, R, $($T: Param),*> Func<fn($($T),*) -> R> for Fun
        where Fun: Fn($($T),*) -> R, for<'f> &'f Fun: Fn($($T::Item<'f>),*) -> R {
            type In = $In;
            type Ret = R;
            fn arity(&self) -> usize {
                <[&str]>::len(&[$(stringify!($T)),*])
            }
            #[allow(non_snake_case)]
            fn apply(&self, $pat: &Self::In) -> R {
                #[allow(clippy::too_many_arguments)]
                fn call<R, $($T),*>(f: impl Fn($($T),*) -> R, $($T: $T),*) -> R { f($($T),*) }
                call(self, $($T::lend($T)),*)
            }
        }
    };
}
prefixes! { funcs [] (A) (B) (C) (D) (E) (F) (G) (H) (I) (J) (K) (L) }
