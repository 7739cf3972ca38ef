//! The notation of atmesh's typed layer: what `S!`, `T!`, `P!`, `N!`, `mesh!`, `dim!` and `einsum!` write.
//!
//! Each is called through a macro of the library, which passes the library's path in brackets first (a proc macro has no `$crate`). What
//! cannot be meant is an error at the token; the rest is left to the traits.

mod declare;
mod einsum;
mod notation;
mod tables;
mod tokens;

use proc_macro::TokenStream;

/// A shape.
#[proc_macro]
pub fn shape(input: TokenStream) -> TokenStream {
    tokens::run(input, |it| notation::dims(it, &mut Vec::new()))
}
/// A size.
#[proc_macro]
pub fn size(input: TokenStream) -> TokenStream {
    tokens::run(input, |it| {
        let size = notation::size(it)?;
        it.end("one size")?;
        Ok(size)
    })
}
/// A spec.
#[proc_macro]
pub fn spec(input: TokenStream) -> TokenStream {
    tokens::run(input, notation::spec)
}
/// The type of an array.
#[proc_macro]
pub fn array(input: TokenStream) -> TokenStream {
    tokens::run(input, notation::array)
}
/// A mesh.
#[proc_macro]
pub fn mesh(input: TokenStream) -> TokenStream {
    tokens::run(input, declare::mesh)
}
/// A named size.
#[proc_macro]
pub fn dim(input: TokenStream) -> TokenStream {
    tokens::run(input, declare::dim)
}
/// An einsum.
#[proc_macro]
pub fn einsum(input: TokenStream) -> TokenStream {
    tokens::run(input, einsum::einsum)
}
/// The tables of decimal arithmetic, for the library itself.
#[proc_macro]
pub fn tables(input: TokenStream) -> TokenStream {
    tables::decimal(input)
}
/// The table of `typenum` integers, for the library itself.
#[proc_macro]
pub fn typenums(input: TokenStream) -> TokenStream {
    tables::typenums(input)
}
