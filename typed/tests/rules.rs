//! Tests of the result types of the rules, by `assert_type_eq_all!`.
use atmesh_typed::rules::broadcast::ZipOf;
use atmesh_typed::rules::dot::MatmulOf;
use atmesh_typed::size::{
    AddSize, DivideUp, GathersOver, IntoTypenum, MulSize, SizeProduct, SplitsOver, SubSize,
};
use atmesh_typed::{N, S, dim, mesh, text};
use static_assertions::assert_type_eq_all;
use typenum::consts::U4096;

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Embed = 64);
type U11008 = typenum::Sum<typenum::Prod<typenum::consts::U11, typenum::consts::U1000>, typenum::consts::U8>;

assert_type_eq_all!(MatmulOf<S![8@X, 16], S![16, 32@Y]>, S![8@X, 32@Y]);
assert_type_eq_all!(ZipOf<S![8, 16@Y], S![16@Y]>, S![8, 16@Y]);
assert_type_eq_all!(S![4096 * 3, { 4096 * 3 }, 50257, 11008@X], S![12288, 12288, 50_257, 11008@X]);
assert_type_eq_all!(<N![11008] as SplitsOver<(X, Y)>>::Tile, N![1376]);
assert_type_eq_all!(<N![1376] as GathersOver<(X, Y)>>::Full, N![11008]);
assert_type_eq_all!(<N![1_048_576] as SplitsOver<Y>>::Tile, N![262_144]);
assert_type_eq_all!(<N![999_999] as GathersOver<X>>::Full, N![1_999_998]);
assert_type_eq_all!(<N![1000] as SplitsOver<Y>>::Tile, N![250]);
assert_type_eq_all!(S![U4096@X], S![4096@X]);
assert_type_eq_all!(<N![4096] as IntoTypenum>::Typenum, U4096);
assert_type_eq_all!(<N![11008] as IntoTypenum>::Typenum, U11008);
assert_type_eq_all!(<N![999_999_999] as AddSize<N![1]>>::Out, N![1_000_000_000]);
assert_type_eq_all!(<N![1_000_000_000] as SubSize<N![1]>>::Out, N![999_999_999]);
assert_type_eq_all!(<Embed as AddSize<N![0]>>::Out, <N![65] as SubSize<N![1]>>::Out, N![64]);
assert_type_eq_all!(<N![65_536] as MulSize<N![65_536]>>::Out, N![4_294_967_296]);
assert_type_eq_all!(<Embed as MulSize<Embed>>::Out, N![4096]);
assert_type_eq_all!(<Batch as MulSize<Embed>>::Out, SizeProduct<Batch, Embed>);
assert_type_eq_all!(<N![7] as DivideUp<N![2]>>::Out, <N![49] as DivideUp<N![16]>>::Out, N![4]);
assert_type_eq_all!(<N![4_294_967_296] as SplitsOver<(X, Y)>>::Tile, N![536_870_912]);
assert_type_eq_all!(<N![4_294_967_296] as IntoTypenum>::Typenum, typenum::consts::U4294967296);
assert_type_eq_all!(S![typenum::consts::U4294967296], S![4_294_967_296]);

#[test]
fn types_print_without_values() {
    assert_eq!(text::<S![4@X, 2], ()>(), "[4@X,2]");
    assert_eq!(text::<S![8@(X, Y), ?, ~], ()>(), "[8@(X,Y),?,1]");
    assert_eq!(text::<S![SizeProduct<Batch, SizeProduct<Embed, Batch>>@X], ()>(), "[Batch*64*Batch@X]");
}
