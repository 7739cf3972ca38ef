//! The proc macros of atmesh's typed layer: `S!`, `T!`, `P!`, `N!`, `mesh!`, `dim!` and `einsum!`.
//!
//! Each is called through a macro of the library, which passes the library's path in brackets
//! first, because a proc macro has no `$crate`. Malformed input is an error at the offending token;
//! everything else is checked by the traits.

mod declare;
mod einsum;
mod notation;
mod tables;
mod tokens;

use proc_macro::TokenStream;

/// Expands a shape.
#[proc_macro]
pub fn shape(input: TokenStream) -> TokenStream {
    tokens::run(input, |it| notation::dims(it, &mut Vec::new()))
}
/// Expands a size.
#[proc_macro]
pub fn size(input: TokenStream) -> TokenStream {
    tokens::run(input, |it| {
        let size = notation::size(it)?;
        it.end("one size")?;
        Ok(size)
    })
}
/// Expands a spec.
#[proc_macro]
pub fn spec(input: TokenStream) -> TokenStream {
    tokens::run(input, notation::spec)
}
/// Expands the type of an array.
#[proc_macro]
pub fn array(input: TokenStream) -> TokenStream {
    tokens::run(input, notation::array)
}
/// Expands a mesh declaration.
#[proc_macro]
pub fn mesh(input: TokenStream) -> TokenStream {
    tokens::run(input, declare::mesh)
}
/// Expands the declaration of a named size.
#[proc_macro]
pub fn dim(input: TokenStream) -> TokenStream {
    tokens::run(input, declare::dim)
}
/// Expands an einsum.
#[proc_macro]
pub fn einsum(input: TokenStream) -> TokenStream {
    tokens::run(input, einsum::einsum)
}
/// Expands the tables of decimal arithmetic, for the library itself.
#[proc_macro]
pub fn digits(_: TokenStream) -> TokenStream {
    tables::digits()
}
/// Expands the table of groups of three digits, for the library itself.
#[proc_macro]
pub fn groups(_: TokenStream) -> TokenStream {
    tables::groups()
}
/// Expands the table of `typenum` integers, for the library itself.
#[proc_macro]
pub fn typenums(input: TokenStream) -> TokenStream {
    tables::typenums(input)
}
