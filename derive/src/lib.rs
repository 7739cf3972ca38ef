//! Derive macros of atmesh: `Tree` for structs of arrays, and `Blocks` for structs of typed arrays.
//!
//! `#[derive(Tree)]` makes a struct of trees a tree itself. `#[derive(Blocks)]` lets a struct of
//! typed arrays pass through `shard_map`.

mod blocks;
mod owned;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Field, Fields, GenericParam, Index, Token, TypeParamBound, WherePredicate,
    parse_macro_input, parse_quote,
};

/// Makes a struct a tree of arrays: its fields are trees, its leaves have paths like `field.0.w`.
///
/// * If the struct has a type parameter (`struct Layer<T = Array> { w: T, b: T }`), a struct of
///   specs says how to shard one: `Layer<Spec>` implements `Specs`. `Layer<ArrayType>` may be
///   passed instead of `Layer`, to trace and lower a program without data.
/// * `#[tree(bound(D: Size, H: Size))]` on the struct: its type parameters are not trees but have
///   these bounds, such as sizes of typed arrays. `Clone` is implemented too, since Rust's own
///   derive cannot read `T![..]` in a struct with parameters and would require the sizes to be
///   `Clone`.
/// * `#[tree(skip)]` on a field: a plain value, which is part of the cache key of `jit` and must be
///   `Clone`, `Default`, `PartialEq`, `Debug`, `Send` and `Sync`. If a closure fails before it
///   returns, the field of its result has the default value.
///
/// ```ignore
/// #[derive(Clone, Tree)]
/// struct Layer<T = Array> {
///     w: T,
///     b: T,
/// }
/// ```
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Lets a struct of typed arrays enter and leave a typed `shard_map`.
///
/// The struct leaves it through a struct of out specs. Inside the `shard_map`, the fields have the
/// types of one device's blocks. Therefore the type of each field must be a type parameter of the
/// struct, without bounds.
///
/// ```ignore
/// #[derive(Blocks)]
/// struct Layer<W, B> {
///     w: W,
///     b: B,
/// }
/// ```
#[proc_macro_derive(Blocks)]
pub fn derive_blocks(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    blocks::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(_) => return Err(no_struct(input, "an enum")),
        Data::Union(_) => return Err(no_struct(input, "a union")),
    };
    let name = &input.ident;
    let skips = data.fields.iter().map(skipped).collect::<syn::Result<Vec<bool>>>()?;
    let members: Vec<Tokens> = (data.fields.iter().enumerate())
        .map(|(i, f)| match &f.ident {
            Some(ident) => quote!(#ident),
            None => {
                let i = Index::from(i);
                quote!(#i)
            }
        })
        .collect();
    let labels: Vec<String> = (data.fields.iter().enumerate())
        .map(|(i, f)| f.ident.as_ref().map_or_else(|| i.to_string(), ToString::to_string))
        .collect();
    let labels: Vec<&str> = labels.iter().map(|l| l.strip_prefix("r#").unwrap_or(l)).collect();

    let mut visit = Tokens::new();
    let mut rebuild = Tokens::new();
    let mut differs = Tokens::new();
    let mut filled = Tokens::new();
    let mut specs = Tokens::new();
    for (((member, label), skip), field) in members.iter().zip(&labels).zip(&skips).zip(&data.fields) {
        if *skip {
            // report errors about the type at the field
            let default = quote_spanned!(field.ty.span()=> ::core::default::Default::default());
            filled.extend(quote!(#member: #default,));
            rebuild.extend(quote!(#member: ::core::clone::Clone::clone(&self.#member),));
            differs.extend(quote! {
                if self.#member != other.#member {
                    return ::core::option::Option::Some(path.field(#label, |path| ::std::format!(
                        "`{}` is {:?} in one and {:?} in the other", path, self.#member, other.#member
                    )));
                }
            });
        } else {
            filled.extend(quote!(#member: ::atmesh::Tree::filled_with(error),));
            visit.extend(quote!(path.field(#label, |path| ::atmesh::Tree::visit(&self.#member, path, f));));
            rebuild.extend(
                quote!(#member: path.field(#label, |path| ::atmesh::Tree::rebuild(&self.#member, path, f)),),
            );
            differs.extend(quote! {
                let found = path.field(#label, |path| ::atmesh::Tree::differs(&self.#member, &other.#member, path));
                if found.is_some() {
                    return found;
                }
            });
            specs.extend(quote!((#label.into(), ::atmesh::Specs::spec_tree(&self.#member)),));
        }
    }

    let stated = stated_bounds(input)?;
    let bounded = |bound: TypeParamBound| {
        let mut g = input.generics.clone();
        if let Some(stated) = &stated {
            g.make_where_clause().predicates.extend(stated.iter().cloned());
            return g;
        }
        for p in &mut g.params {
            if let GenericParam::Type(t) = p {
                t.bounds.push(bound.clone());
            }
        }
        g
    };
    let tree = bounded(parse_quote!(::atmesh::Tree));
    let (ti, ty, tw) = tree.split_for_impl();
    let of_trees = input.generics.type_params().next().filter(|_| stated.is_none());
    let specs = of_trees.map(|_| {
        let g = bounded(parse_quote!(::atmesh::Specs));
        let (si, sy, sw) = g.split_for_impl();
        quote! {
            #[automatically_derived]
            impl #si ::atmesh::Specs for #name #sy #sw {
                fn spec_tree(&self) -> ::atmesh::tree::SpecTree {
                    ::atmesh::tree::SpecTree::Node(::std::vec![#specs])
                }
            }
        }
    });
    let clone = stated.as_ref().map(|_| {
        let fields =
            members.iter().map(|member| quote!(#member: ::core::clone::Clone::clone(&self.#member),));
        quote! {
            #[automatically_derived]
            impl #ti ::core::clone::Clone for #name #ty #tw {
                fn clone(&self) -> Self { Self { #(#fields)* } }
            }
        }
    });
    let fields: Vec<_> =
        data.fields.iter().zip(&members).zip(&skips).map(|((f, m), skip)| (f, m, *skip)).collect();
    let as_it_is = || {
        quote! {
            #[automatically_derived]
            impl #ti ::atmesh::Args for #name #ty #tw {
                type Owned = Self;
                fn into_tree(self) -> Self { self }
            }
        }
    };
    let args = stated.is_none().then(|| owned::args(input, &fields)).flatten().unwrap_or_else(as_it_is);
    let clone_where = {
        let mut w = tree.where_clause.clone().unwrap_or(parse_quote!(where));
        w.predicates.push(parse_quote!(Self: ::core::clone::Clone));
        w
    };
    // one check per field, so that an error points at the field that is not a tree
    let checks =
        data.fields.iter().zip(&skips).enumerate().filter(|(_, (_, skip))| !**skip).map(|(i, (f, _))| {
            let (check, field) = (format_ident!("field{i}"), &f.ty);
            quote! { fn #check #ti () #tw { tree::<#field>(); } }
        });
    let empty = matches!(data.fields, Fields::Unit) || skips.iter().all(|s| *s);
    let unused = if empty { quote!(let _ = f;) } else { quote!() };
    let unused_error = if empty { quote!(let _ = error;) } else { quote!() };
    Ok(quote! {
        #clone
        #[automatically_derived]
        impl #ti ::atmesh::Tree for #name #ty #tw {
            fn visit<'__a>(
                &'__a self,
                path: &mut ::atmesh::tree::Path,
                f: &mut dyn FnMut(&::atmesh::tree::Path, &'__a ::atmesh::Array),
            ) {
                #unused
                #visit
            }
            fn rebuild(
                &self,
                path: &mut ::atmesh::tree::Path,
                f: &mut dyn FnMut(&::atmesh::tree::Path, &::atmesh::Array) -> ::atmesh::Array,
            ) -> Self {
                #unused
                Self { #rebuild }
            }
            fn differs(&self, other: &Self, path: &mut ::atmesh::tree::Path) -> ::core::option::Option<::std::string::String> {
                #differs
                ::core::option::Option::None
            }
            fn filled_with(error: &::atmesh::Error) -> Self {
                #unused_error
                Self { #filled }
            }
        }
        #args
        #[automatically_derived]
        impl #ti ::atmesh::Param for #name #ty #clone_where {
            type Owned = Self;
            type Item<'__a> = Self;
            fn lend(owned: &Self) -> Self { ::core::clone::Clone::clone(owned) }
        }
        const _: () = {
            fn tree<T: ::atmesh::Tree>() {}
            #( #[allow(dead_code)] #checks )*
        };
        #specs
    })
}

fn no_struct(input: &DeriveInput, what: &str) -> syn::Error {
    let message = format!(
        "`Tree` is derived for structs: {what} is no fixed list of arrays\n\
         help: a plain value in a tree is a field with `#[tree(skip)]`, or `Static(..)`"
    );
    syn::Error::new_spanned(&input.ident, message)
}

/// Returns the bounds in `#[tree(bound(..))]` on the struct, if it has this attribute.
fn stated_bounds(input: &DeriveInput) -> syn::Result<Option<Vec<WherePredicate>>> {
    let mut stated = None;
    for attr in input.attrs.iter().filter(|a| a.path().is_ident("tree")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("bound") {
                return Err(meta.error("expected `#[tree(bound(D: Size))]`"));
            }
            let list;
            syn::parenthesized!(list in meta.input);
            let predicates = Punctuated::<WherePredicate, Token![,]>::parse_terminated(&list)?;
            stated.get_or_insert_with(Vec::new).extend(predicates);
            Ok(())
        })?;
    }
    Ok(stated)
}

/// Returns true if the field is marked `#[tree(skip)]`.
fn skipped(f: &Field) -> syn::Result<bool> {
    let mut skip = false;
    for attr in f.attrs.iter().filter(|a| a.path().is_ident("tree")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skip = true;
                Ok(())
            } else {
                Err(meta.error("expected `#[tree(skip)]`"))
            }
        })?;
    }
    Ok(skip)
}
