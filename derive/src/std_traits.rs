//! `Clone` and `Debug` of structs whose fields have types that are written with macros.

use crate::attributes::StdTraits;
use crate::{Parameters, Struct};
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Fields, parse_quote};

/// Returns the implementations that `#[tree(derive(..))]` asks for.
///
/// If a generic struct has a macro in the type of a field, and there is no such attribute, then
/// this returns an error that says to write one: Rust's own derives reject such a struct, and
/// their error does not say what to write.
pub(crate) fn implementations(of: &Struct<'_>, stated: Option<&StdTraits>) -> Tokens {
    let Some(stated) = stated else {
        let macros = of.data.fields.iter().any(|f| crate::owned::has_macro(&f.ty));
        return if macros && of.input.generics.type_params().next().is_some() {
            advice(of)
        } else {
            Tokens::new()
        };
    };
    let clone = stated.clone.then(|| clone(of));
    let debug = stated.debug.then(|| debug(of));
    quote!(#clone #debug)
}

fn advice(of: &Struct<'_>) -> Tokens {
    let name = &of.input.ident;
    let why = format!(
        "`Clone` of the generic struct `{name}` comes from `Tree`, since Rust's own derives cannot read \
         macros such as `T![..]` in it\n\
         help: write `#[derive(Tree)] #[tree(derive(Clone))]`, or `#[tree(derive(Clone, Debug))]`\n\
         help: for a struct with neither: `#[tree(derive())]`"
    );
    syn::Error::new_spanned(name, why).into_compile_error()
}

fn clone(of: &Struct<'_>) -> Tokens {
    let (name, members) = (&of.input.ident, &of.members);
    let generics = Parameters::of(of.input).bounded(&parse_quote!(::core::clone::Clone));
    let (head, arguments, bounds) = generics.split_for_impl();
    // an error about a field's type points at the field
    let copies = of.data.fields.iter().zip(members).map(|(f, member)| {
        let copy = quote_spanned!(f.ty.span()=> ::core::clone::Clone::clone(&self.#member));
        quote!(#member: #copy,)
    });
    quote! {
        #[automatically_derived]
        impl #head ::core::clone::Clone for #name #arguments #bounds {
            fn clone(&self) -> Self { Self { #(#copies)* } }
        }
    }
}

fn debug(of: &Struct<'_>) -> Tokens {
    let (name, members, labels) = (&of.input.ident, &of.members, &of.labels);
    let generics = Parameters::of(of.input).bounded(&parse_quote!(::core::fmt::Debug));
    let (head, arguments, bounds) = generics.split_for_impl();
    let shown = name.to_string();
    let body = match of.data.fields {
        Fields::Named(_) => quote!(f.debug_struct(#shown)#(.field(#labels, &self.#members))*.finish()),
        Fields::Unnamed(_) => quote!(f.debug_tuple(#shown)#(.field(&self.#members))*.finish()),
        Fields::Unit => quote!(f.write_str(#shown)),
    };
    quote! {
        #[automatically_derived]
        impl #head ::core::fmt::Debug for #name #arguments #bounds {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result { #body }
        }
    }
}
