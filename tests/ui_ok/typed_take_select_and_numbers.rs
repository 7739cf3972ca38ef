use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}

// the literal's type is not needed to infer what follows
fn half(x: &T![bf16; 4@Data, 8]) -> T![bf16; 4@Data, 8] {
    (x * 0.5 + 1.0).relu()
}
fn generic<T: Float, B: Size, D: Size>(x: &T![T; B@Data, D], eps: T) -> T![T; B@Data, D] {
    (x + eps).relu() * 0.5 + 1e-5 - 1
}
fn next<T: Number>(x: &T![T; 4@Data]) -> T![T; 4@Data] {
    x + T::ONE
}
fn left(x: &T![f32; 4@Data], rate: f64, other: f32) -> T![f32; 4@Data] {
    (2 * x).relu() * 2 + (0.5 * x).exp() * rate * other + other * x
}
fn bytes(x: &T![u8; 4@Data], y: &T![i64; 4@Data]) -> (T![u8; 4@Data], T![i64; 4@Data]) {
    ((1 + x) * 3, y * 5_000_000_000 & 7)
}
fn assigned(x: &mut T![f32; 4@Data, 8], y: &T![f32; 8]) {
    *x += y;
    *x *= 0.5;
    *x -= x.clone();
}
fn descend<S: ElementwiseShape>(p: &Typed<f32, S>, g: &Typed<f32, S>, rate: &T![f32;]) -> Typed<f32, S> {
    p - g * rate.as_number() * 0.1
}
fn masks(x: &T![f32; 4@Data, 3, 3], m: &T![bool; 3, 3]) -> [T![f32; 4@Data, 3, 3]; 3] {
    // two numbers: the element type comes from where the result goes
    [x + m.select(0.0, -1e9), m.select(0.0, x).relu(), m.select(x, -x)]
}
fn embed<V: Size, D: Size, B: Size, S: Size>(
    table: &T![bf16; V, D@Model],
    tokens: &T![i32; B@Data, S],
) -> T![bf16; B@Data, S, D@Model] {
    table.take_to(tokens, D0, P![=, =, =])
}
fn cross_entropy<B: Size, S: Size, V: Size>(
    logits: &T![f32; B@Data, S, V],
    next: &T![i32; B@Data, S],
) -> T![f32; B@Data, S] {
    -logits.log_softmax(D2).take_along_axis(&next.expand_dims(D2), D2).squeeze(D2)
}
fn reductions(x: &T![f32; 8, 4, 4@Data, 3, 2]) -> (T![f32; 2], T![f32; ~, ~, ~, 3, 2], T![f32; 4], T![i32;]) {
    (x.sum((D0, D1, D2, D3)), x.mean(keep((D0, D1, D2))), x.max((D0, D2, D3, D4)), x.argmax(..))
}
