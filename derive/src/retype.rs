//! `Retype` for structs: the same struct with other leaf types.

use crate::{Parameters, Struct};
use proc_macro2::{Group, Ident, TokenStream as Tokens, TokenTree};
use quote::quote;
use syn::{GenericParam, Type, WherePredicate};

/// Returns true if one of the parameters is among the tokens.
fn mentions(tokens: Tokens, params: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(of) => params.contains(&&of),
        TokenTree::Group(group) => mentions(group.stream(), params),
        _ => false,
    })
}

/// Replaces each parameter by its counterpart.
fn replace(tokens: Tokens, params: &[&Ident]) -> Tokens {
    let one = |token| match token {
        TokenTree::Ident(of) if params.contains(&&of) => {
            quote!(<#of as __atmesh::tree::Retype<__Leaves>>::Out)
        }
        TokenTree::Group(group) => {
            let inner = replace(group.stream(), params);
            TokenTree::Group(Group::new(group.delimiter(), inner)).into()
        }
        token => token.into(),
    };
    tokens.into_iter().flat_map(one).collect()
}

/// Returns the implementation of `Retype`. A type parameter without bounds becomes its counterpart;
/// fields that do not name such a parameter keep their types.
pub(crate) fn implementation(of: &Struct<'_>) -> Tokens {
    let (name, parameters) = (&of.input.ident, Parameters::of(of.input));
    let trees = of.input.generics.type_params().filter(|t| !parameters.has_bounds(t));
    let mut params: Vec<&Ident> = trees.map(|t| &t.ident).collect();
    let kept = of.data.fields.iter().zip(&of.skips).filter(|(_, skip)| **skip);
    if kept.map(|(f, _)| &f.ty).any(|ty| mentions(quote!(#ty), &params)) {
        params.clear();
    }
    let mut generics = parameters.bounded(&syn::parse_quote!(__atmesh::tree::Retype<__Leaves>));
    let leaves: GenericParam = syn::parse_quote!(__Leaves);
    generics.params.insert(generics.lifetimes().count(), leaves);
    let bounds = generics.make_where_clause();
    // the bounds hold for the struct and for its counterpart
    let others = bounds.predicates.iter().map(|p| replace(quote!(#p), &params));
    let others: Vec<WherePredicate> = others.filter_map(|p| syn::parse2(p).ok()).collect();
    bounds.predicates.extend(others);
    let mut made = Tokens::new();
    for ((field, member), skip) in of.data.fields.iter().zip(&of.members).zip(&of.skips) {
        let ty = &field.ty;
        let is_parameter = matches!(ty, Type::Path(p) if params.iter().any(|of| p.path.is_ident(*of)));
        made.extend(if *skip {
            quote!(#member: ::core::clone::Clone::clone(&self.#member),)
        } else if is_parameter {
            quote!(#member: __atmesh::tree::Retype::<__Leaves>::retype(&self.#member, next),)
        } else {
            let other = replace(quote!(#ty), &params);
            bounds.predicates.push(syn::parse_quote!(#ty: __atmesh::tree::RetypeTo<__Leaves, #other>));
            quote!(#member: __atmesh::tree::RetypeTo::<__Leaves, #other>::retype_to(&self.#member, next),)
        });
    }
    let (head, _, bounds) = generics.split_for_impl();
    let (_, own, _) = of.input.generics.split_for_impl();
    let out = replace(quote!(#name #own), &params);
    let unused = of.skips.iter().all(|skip| *skip).then(|| quote!(let _ = next;));
    quote! {
        #[automatically_derived]
        impl #head __atmesh::tree::Retype<__Leaves> for #name #own #bounds {
            type Out = #out;
            fn retype(&self, next: &mut dyn ::core::ops::FnMut() -> __atmesh::Array) -> Self::Out {
                #unused
                #name { #made }
            }
        }
    }
}
