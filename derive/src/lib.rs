//! Derive macros of atmesh: `Tree` for structs of arrays, and `Blocks` for structs of typed arrays.
//!
//! `#[derive(Tree)]` makes a struct of trees a tree itself. `#[derive(Blocks)]` lets a struct of
//! typed arrays pass through `shard_map`.

mod attributes;
mod blocks;
mod owned;
mod retype;
mod std_traits;

use attributes::{StructOptions, skipped};
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Data, DataStruct, DeriveInput, Fields, GenericParam, Generics, Ident, Type, TypeParam, TypeParamBound,
    WherePredicate, parse_macro_input, parse_quote,
};

/// Makes a struct a tree of arrays: its fields are trees, its leaves have paths like `field.0.w`.
///
/// * If the struct has a type parameter (`struct Layer<T = Array> { w: T, b: T }`), a struct of
///   specs says how to shard one: `Layer<Spec>` implements `Specs`. `Layer<ArrayType>` may be
///   passed instead of `Layer`, to trace and lower a program without data.
/// * A type parameter with bounds (`struct Mlp<D: Size, H: Size>`) need not be a tree: it has the
///   bounds that the struct states. A parameter without bounds is a tree.
/// * The gradient of a struct of typed arrays, and a slice of it in a scan, are the same struct
///   with other leaf types (`atmesh::tree::Retype`). Parameters without bounds become their
///   counterparts; other fields keep their types.
/// * `#[tree(derive(Clone, Debug))]` on the struct implements `Clone` and `Debug`. A struct with
///   type parameters and fields `T![..]` needs it: Rust's own derives cannot read macros in the
///   types of such a struct, and say "`derive` cannot be used on items with type macros". Their
///   errors cannot be replaced by this derive, which adds one that says what to write.
///   `#[tree(derive())]` implements neither. `Default` and `PartialEq` are not offered, because
///   arrays have neither: an array belongs to a mesh, and under `jit` its elements are not known.
/// * `#[tree(crate = path)]` on the struct is the path of atmesh where it is not `::atmesh`: a
///   renamed dependency, or one that another crate exports.
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
///
/// #[derive(Tree)]
/// #[tree(derive(Clone, Debug))]
/// struct Mlp<D: Size, H: Size> {
///     up: T![f32; D, H@Model],
///     down: T![f32; H@Model, D],
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
/// struct, without bounds. `#[tree(crate = path)]` is the path of atmesh, as for `Tree`.
///
/// ```ignore
/// #[derive(Blocks)]
/// struct Layer<W, B> {
///     w: W,
///     b: B,
/// }
/// ```
#[proc_macro_derive(Blocks, attributes(tree))]
pub fn derive_blocks(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    blocks::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The type parameters of a struct: those without bounds are trees.
pub(crate) struct Parameters<'a>(&'a DeriveInput);

impl<'a> Parameters<'a> {
    pub(crate) fn of(input: &'a DeriveInput) -> Parameters<'a> {
        Parameters(input)
    }
    /// Returns true if the struct states a bound of the parameter, at the parameter or after
    /// `where`.
    pub(crate) fn has_bounds(&self, parameter: &TypeParam) -> bool {
        let stated = |p: &WherePredicate| match p {
            WherePredicate::Type(p) => {
                matches!(&p.bounded_ty, Type::Path(t) if t.path.is_ident(&parameter.ident))
            }
            _ => false,
        };
        let clause = self.0.generics.where_clause.as_ref();
        !parameter.bounds.is_empty() || clause.is_some_and(|w| w.predicates.iter().any(stated))
    }
    /// Returns true if there are parameters and each of them is a tree.
    fn are_trees(&self) -> bool {
        let mut parameters = self.0.generics.type_params();
        parameters.next().is_some() && !self.0.generics.type_params().any(|t| self.has_bounds(t))
    }
    /// Returns the generics of the struct with a bound on each parameter that has none.
    pub(crate) fn bounded(&self, bound: &TypeParamBound) -> Generics {
        let mut generics = self.0.generics.clone();
        for parameter in &mut generics.params {
            if let GenericParam::Type(t) = parameter
                && !self.has_bounds(t)
            {
                t.bounds.push(bound.clone());
            }
        }
        generics
    }
}

/// A struct to implement `Tree` for.
pub(crate) struct Struct<'a> {
    pub(crate) input: &'a DeriveInput,
    pub(crate) data: &'a DataStruct,
    /// The names or indices of the fields.
    pub(crate) members: Vec<Tokens>,
    /// The names of the fields in paths of leaves.
    pub(crate) labels: Vec<String>,
    /// True for each field that is a plain value.
    pub(crate) skips: Vec<bool>,
}

impl<'a> Struct<'a> {
    fn new(input: &'a DeriveInput) -> syn::Result<Struct<'a>> {
        let data = match &input.data {
            Data::Struct(data) => data,
            Data::Enum(_) => return Err(no_struct(input, "an enum")),
            Data::Union(_) => return Err(no_struct(input, "a union")),
        };
        let members: Vec<Tokens> = data.fields.members().map(|m| quote!(#m)).collect();
        let label = |m: &Tokens| m.to_string().trim_start_matches("r#").to_string();
        let labels = members.iter().map(label).collect();
        let skips = data.fields.iter().map(skipped).collect::<syn::Result<Vec<bool>>>()?;
        Ok(Struct { input, data, members, labels, skips })
    }

    /// Returns the members, labels and types of the fields that are trees.
    fn trees(&self) -> (Vec<&Tokens>, Vec<&String>, Vec<&Type>) {
        let fields = self.data.fields.iter().zip(&self.members).zip(&self.labels).zip(&self.skips);
        let trees = fields.filter(|(_, skip)| !**skip).map(|(((f, m), l), _)| (m, (l, &f.ty)));
        let (members, (labels, types)) = trees.unzip::<_, _, Vec<_>, (Vec<_>, Vec<_>)>();
        (members, labels, types)
    }

    /// Implements `Tree`.
    fn tree(&self) -> Tokens {
        let (mut visit, mut rebuild) = (Tokens::new(), Tokens::new());
        let (mut differs, mut filled) = (Tokens::new(), Tokens::new());
        let fields = self.data.fields.iter().zip(&self.members).zip(&self.labels).zip(&self.skips);
        for (((field, member), label), skip) in fields {
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
                filled.extend(quote!(#member: __atmesh::Tree::filled_with(error),));
                visit.extend(
                    quote!(path.field(#label, |path| __atmesh::Tree::visit(&self.#member, path, f));),
                );
                rebuild.extend(
                    quote!(#member: path.field(#label, |path| __atmesh::Tree::rebuild(&self.#member, path, f)),),
                );
                differs.extend(quote! {
                    let found = path.field(#label, |path| __atmesh::Tree::differs(&self.#member, &other.#member, path));
                    if found.is_some() {
                        return found;
                    }
                });
            }
        }
        let name = &self.input.ident;
        let generics = Parameters::of(self.input).bounded(&parse_quote!(__atmesh::Tree));
        let (head, arguments, bounds) = generics.split_for_impl();
        let empty = matches!(self.data.fields, Fields::Unit) || self.skips.iter().all(|s| *s);
        let unused = empty.then(|| quote!(let _ = f;));
        let unused_error = empty.then(|| quote!(let _ = error;));
        quote! {
            #[automatically_derived]
            impl #head __atmesh::Tree for #name #arguments #bounds {
                fn visit<'__a>(
                    &'__a self,
                    path: &mut __atmesh::tree::Path,
                    f: &mut dyn FnMut(&__atmesh::tree::Path, &'__a __atmesh::Array),
                ) {
                    #unused
                    #visit
                }
                fn rebuild(
                    &self,
                    path: &mut __atmesh::tree::Path,
                    f: &mut dyn FnMut(&__atmesh::tree::Path, &__atmesh::Array) -> __atmesh::Array,
                ) -> Self {
                    #unused
                    Self { #rebuild }
                }
                fn differs(&self, other: &Self, path: &mut __atmesh::tree::Path) -> ::core::option::Option<::std::string::String> {
                    #differs
                    ::core::option::Option::None
                }
                fn filled_with(error: &__atmesh::Error) -> Self {
                    #unused_error
                    Self { #filled }
                }
            }
        }
    }

    /// Implements `Args` and `Param`: structs are arguments and parameters of functions.
    fn arguments(&self) -> Tokens {
        let name = &self.input.ident;
        let generics = Parameters::of(self.input).bounded(&parse_quote!(__atmesh::Tree));
        let (head, arguments, bounds) = generics.split_for_impl();
        let unchanged = || {
            quote! {
                #[automatically_derived]
                impl #head __atmesh::Args for #name #arguments #bounds {
                    type Owned = Self;
                    fn into_tree(self) -> Self { self }
                }
            }
        };
        let fields = self.data.fields.iter().zip(&self.members).zip(&self.skips);
        let fields: Vec<_> = fields.map(|((f, m), skip)| (f, m, *skip)).collect();
        let args = owned::args(self.input, &fields).unwrap_or_else(unchanged);
        let mut cloned = bounds.cloned().unwrap_or(parse_quote!(where));
        cloned.predicates.push(parse_quote!(Self: ::core::clone::Clone));
        quote! {
            #args
            #[automatically_derived]
            impl #head __atmesh::Param for #name #arguments #cloned {
                type Owned = Self;
                type Item<'__a> = Self;
                fn lend(owned: &Self) -> Self { ::core::clone::Clone::clone(owned) }
            }
        }
    }

    /// Requires that each field is a tree, one by one, so that an error points at the field.
    fn checks(&self) -> Tokens {
        let generics = Parameters::of(self.input).bounded(&parse_quote!(__atmesh::Tree));
        let (head, _, bounds) = generics.split_for_impl();
        let (_, _, types) = self.trees();
        let checks = types.into_iter().enumerate().map(|(i, field)| {
            let check = format_ident!("field{i}");
            quote! { fn #check #head () #bounds { tree::<#field>(); } }
        });
        quote! {
            const _: () = {
                fn tree<T: __atmesh::Tree>() {}
                #( #[allow(dead_code)] #checks )*
            };
        }
    }

    /// Implements `Specs`, if each type parameter is a tree, so that it may be a spec, and each
    /// field is made of parameters.
    fn specs(&self) -> Option<Tokens> {
        let parameters = Parameters::of(self.input);
        let names: Vec<&Ident> = self.input.generics.type_params().map(|t| &t.ident).collect();
        let (_, _, types) = self.trees();
        if !parameters.are_trees() || !types.iter().all(|ty| owned::mentions(ty, &names) == Some(true)) {
            return None;
        }
        let name = &self.input.ident;
        let generics = parameters.bounded(&parse_quote!(__atmesh::Specs));
        let (head, arguments, bounds) = generics.split_for_impl();
        let (members, labels, _) = self.trees();
        Some(quote! {
            #[automatically_derived]
            impl #head __atmesh::Specs for #name #arguments #bounds {
                fn spec_tree(&self) -> __atmesh::tree::SpecTree {
                    __atmesh::tree::SpecTree::Node(::std::vec![
                        #((#labels.into(), __atmesh::Specs::spec_tree(&self.#members)),)*
                    ])
                }
            }
        })
    }
}

fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    let of = Struct::new(input)?;
    // with a wrong attribute the struct is a tree all the same, so that there is no second error
    let (options, error) = match StructOptions::new(input) {
        Ok(options) => (options, None),
        Err(error) => (StructOptions::all(), Some(error.into_compile_error())),
    };
    let std_traits = std_traits::implementations(&of, options.derive.as_ref());
    let (tree, arguments, checks, specs) = (of.tree(), of.arguments(), of.checks(), of.specs());
    let retype = retype::implementation(&of);
    let implementations = options.scope(&quote!(#tree #arguments #retype #checks #specs));
    Ok(quote!(#error #std_traits #implementations))
}

fn no_struct(input: &DeriveInput, what: &str) -> syn::Error {
    let message = format!(
        "`Tree` is derived for structs: {what} is no fixed list of arrays\n\
         help: a plain value in a tree is a field with `#[tree(skip)]`, or `Static(..)`"
    );
    syn::Error::new_spanned(&input.ident, message)
}
