//! `Args` for structs: converts a struct of array-like values (types, say) to a struct of arrays.

use proc_macro2::{Ident, Span, TokenStream as Tokens, TokenTree};
use quote::quote;
use syn::{DeriveInput, Field, GenericArgument, GenericParam, PathArguments, Type};

/// Returns the implementation of `Args` for a struct whose type parameters are unbounded trees.
/// If each parameter may be passed for a tree, then the struct may be passed for the struct of
/// these trees. Returns `None` if the types of the fields do not determine the conversion.
pub(crate) fn args(input: &DeriveInput, fields: &[(&Field, &Tokens, bool)]) -> Option<Tokens> {
    let params: Vec<&Ident> = input.generics.type_params().map(|p| &p.ident).collect();
    let plain = |p: &GenericParam| matches!(p, GenericParam::Type(t) if t.bounds.is_empty());
    if params.is_empty() || input.generics.where_clause.is_some() || !input.generics.params.iter().all(plain)
    {
        return None;
    }
    let mut made = Tokens::new();
    for (field, member, skip) in fields {
        let value = quote!(self.#member);
        let value = if *skip && mentions(&field.ty, &params)? {
            return None;
        } else {
            tree(&field.ty, &params, value, 0)?
        };
        made.extend(quote!(#member: #value,));
    }
    let name = &input.ident;
    Some(quote! {
        #[automatically_derived]
        impl<#(#params: __atmesh::Args),*> __atmesh::Args for #name<#(#params),*> {
            type Owned = #name<#(#params::Owned),*>;
            #[track_caller]
            fn into_tree(self) -> Self::Owned { #name { #made } }
        }
    })
}

/// Returns true if a macro is part of a type.
pub(crate) fn has_macro(ty: &Type) -> bool {
    mentions(ty, &[]).is_none()
}

/// Returns true if a type mentions a parameter; `None` if a macro hides the answer.
pub(crate) fn mentions(ty: &Type, params: &[&Ident]) -> Option<bool> {
    fn look(tokens: Tokens, params: &[&Ident]) -> Option<bool> {
        tokens.into_iter().try_fold(false, |found, token| {
            let here = match token {
                TokenTree::Ident(ident) => params.contains(&&ident),
                TokenTree::Group(group) => look(group.stream(), params)?,
                TokenTree::Punct(p) if p.as_char() == '!' => return None,
                _ => false,
            };
            Some(found || here)
        })
    }
    look(quote!(#ty), params)
}

/// Returns code that converts a value of this type, with each parameter replaced by its tree.
fn tree(ty: &Type, params: &[&Ident], value: Tokens, depth: usize) -> Option<Tokens> {
    if !mentions(ty, params)? {
        return Some(value);
    }
    let inner = |ty: &Type| {
        let x = Ident::new(&format!("x{depth}"), Span::mixed_site());
        tree(ty, params, quote!(#x), depth + 1).map(|made| quote!(|#x| #made))
    };
    match ty {
        Type::Array(list) => inner(&list.elem).map(|f| quote!(#value.map(#f))),
        Type::Path(path) if path.qself.is_none() => {
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(args) = &last.arguments else {
                // the type is the parameter itself
                return Some(quote!(__atmesh::Args::into_tree(#value)));
            };
            match (last.ident.to_string().as_str(), args.args.first()) {
                ("Vec", Some(GenericArgument::Type(of))) => {
                    inner(of).map(|f| quote!(#value.into_iter().map(#f).collect()))
                }
                ("Option", Some(GenericArgument::Type(of))) => inner(of).map(|f| quote!(#value.map(#f))),
                ("BTreeMap", _) => {
                    let GenericArgument::Type(of) = args.args.get(1)? else { return None };
                    let (key, x) =
                        (Ident::new("key", Span::mixed_site()), Ident::new("x", Span::mixed_site()));
                    let each = |f: Tokens| quote!(|(#key, #x)| (#key, (#f)(#x)));
                    let each = inner(of).map(each)?;
                    Some(quote!(#value.into_iter().map(#each).collect()))
                }
                ("Box" | "PhantomData" | "Static", _) => None,
                // the type is another struct of trees
                _ => Some(quote!(__atmesh::Args::into_tree(#value))),
            }
        }
        _ => None,
    }
}
