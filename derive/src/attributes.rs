//! `#[tree(..)]` attributes: what they state about a struct, and about a field.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{DeriveInput, Field, Ident, Path, Result, Token};

/// The traits of the standard library that `Tree` implements for a struct on request.
#[derive(Default)]
pub(crate) struct StdTraits {
    pub(crate) clone: bool,
    pub(crate) debug: bool,
}

/// What `#[tree(..)]` states about a struct.
pub(crate) struct StructOptions {
    /// The path of atmesh: `crate = path`. Defaults to `::atmesh`.
    pub(crate) library: Path,
    /// The list `derive(..)`. `None` if there is none.
    pub(crate) derive: Option<StdTraits>,
}

impl StructOptions {
    pub(crate) fn new(input: &DeriveInput) -> Result<StructOptions> {
        let mut options = StructOptions { library: syn::parse_quote!(::atmesh), derive: None };
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("tree")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    options.library = meta.value()?.call(Path::parse_mod_style)?;
                } else if meta.path.is_ident("derive") {
                    let list = options.derive.get_or_insert_default();
                    std_traits(&meta, list)?;
                } else {
                    return Err(meta.error("expected `derive(Clone, Debug)` or `crate = path::of::atmesh`"));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }

    /// Returns the options that implement everything.
    pub(crate) fn all() -> StructOptions {
        let derive = Some(StdTraits { clone: true, debug: true });
        StructOptions { library: syn::parse_quote!(::atmesh), derive }
    }

    /// Wraps implementations in a scope in which `__atmesh` is the library.
    pub(crate) fn scope(&self, implementations: &Tokens) -> Tokens {
        let library = &self.library;
        quote! {
            const _: () = {
                use #library as __atmesh;
                #implementations
            };
        }
    }
}

/// Parses `(Clone, Debug)`.
fn std_traits(meta: &ParseNestedMeta, traits: &mut StdTraits) -> Result<()> {
    let list;
    syn::parenthesized!(list in meta.input);
    for name in Punctuated::<Ident, Token![,]>::parse_terminated(&list)? {
        let why = match name.to_string().as_str() {
            "Clone" => {
                traits.clone = true;
                continue;
            }
            "Debug" => {
                traits.debug = true;
                continue;
            }
            "Default" => {
                "arrays have no default value, since they belong to a mesh\n\
                 help: fill the fields with `Typed::zeros(&pod)`\n\
                 help: zeros like those of another struct: `tree::map(&model, |x| x.zeros_like())`"
            }
            "PartialEq" | "Eq" => {
                "arrays are not compared by `==`: under `jit` their elements are not known yet\n\
                 help: compare elements: `a.w.to_vec()? == b.w.to_vec()?`"
            }
            _ => "expected `Clone` or `Debug`",
        };
        return Err(syn::Error::new(name.span(), why));
    }
    Ok(())
}

/// Returns true if the field is marked `#[tree(skip)]`.
pub(crate) fn skipped(f: &Field) -> Result<bool> {
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
