//! `#[derive(Blocks)]`: lets structs of typed arrays pass through `shard_map`.

use crate::attributes::StructOptions;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, GenericParam, Ident, Type};

/// Returns the struct's type parameter that a field's type consists of, if it is one.
fn parameter<'a>(ty: &Type, params: &'a [Ident]) -> Option<&'a Ident> {
    match ty {
        Type::Path(p) if p.qself.is_none() => params.iter().find(|i| p.path.is_ident(*i)),
        _ => None,
    }
}

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        let why = "`Blocks` is derived for structs, whose fields are a fixed list";
        return Err(syn::Error::new_spanned(&input.ident, why));
    };
    let name = &input.ident;
    let mut params = Vec::new();
    for p in &input.generics.params {
        match p {
            GenericParam::Type(t) if t.bounds.is_empty() => params.push(t.ident.clone()),
            p => {
                let why = "`Blocks`: a parameter of the struct is the type of a field, without bounds: \
                           `struct Layer<W, B> { w: W, b: B }`";
                return Err(syn::Error::new_spanned(p, why));
            }
        }
    }
    if let Some(bounds) = &input.generics.where_clause {
        let why = "`Blocks`: the struct has no bounds, so that arrays, blocks and specs can be its fields";
        return Err(syn::Error::new_spanned(bounds, why));
    }
    let mut fields = Vec::new();
    for (f, member) in data.fields.iter().zip(data.fields.members()) {
        let Some(of) = parameter(&f.ty, &params) else {
            let field = quote!(#member);
            let why = format!(
                "`Blocks`: the type of field `{field}` must be a type parameter of `{name}`, since inside of `shard_map` it is another one\n\
                 help: write `struct {name}<W> {{ {field}: W }}`, and name the whole: `type Outside = {name}<T![..]>`\n\
                 help: or pass the fields as a tuple"
            );
            return Err(syn::Error::new_spanned(&f.ty, why));
        };
        fields.push((member, of));
    }
    if let Some(unused) = params.iter().find(|p| !fields.iter().any(|(_, of)| of == p)) {
        let why = "`Blocks`: no field has this type";
        return Err(syn::Error::new_spanned(unused, why));
    }

    let specs: Vec<Ident> = params.iter().map(|p| format_ident!("__Spec{p}")).collect();
    let spec_of = |of: &Ident| params.iter().position(|p| p == of).map(|at| &specs[at]);
    let (members, types): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let field_specs: Vec<_> = types.iter().map(|of| spec_of(of)).collect();
    let implementations = quote! {
        #[automatically_derived]
        impl<__Mesh, #(#params: __atmesh::typed::ShardMapIn<__Mesh>),*> __atmesh::typed::ShardMapIn<__Mesh> for #name<#(#params),*> {
            type Local = #name<#(<#params as __atmesh::typed::ShardMapIn<__Mesh>>::Local),*>;
            fn arrays(self, into: &mut __atmesh::typed::ShardMapArguments) {
                #(__atmesh::typed::ShardMapIn::<__Mesh>::arrays(self.#members, into);)*
            }
            fn blocks(from: &mut dyn ::core::iter::Iterator<Item = __atmesh::Array>) -> Self::Local {
                #name { #(#members: <#types as __atmesh::typed::ShardMapIn<__Mesh>>::blocks(from),)* }
            }
        }
        #[automatically_derived]
        impl<__Mesh, #(#specs,)* #(#params: __atmesh::typed::ShardMapOut<#specs, __Mesh>),*>
            __atmesh::typed::ShardMapOut<#name<#(#specs),*>, __Mesh> for #name<#(#params),*>
        {
            type Global = #name<#(<#params as __atmesh::typed::ShardMapOut<#specs, __Mesh>>::Global),*>;
            fn specs(into: &mut ::std::vec::Vec<__atmesh::Spec>) {
                #(<#types as __atmesh::typed::ShardMapOut<#field_specs, __Mesh>>::specs(into);)*
            }
            fn blocks(self, into: &mut ::std::vec::Vec<__atmesh::Array>) {
                #(__atmesh::typed::ShardMapOut::<#field_specs, __Mesh>::blocks(self.#members, into);)*
            }
            fn arrays(from: &mut dyn ::core::iter::Iterator<Item = __atmesh::Array>) -> Self::Global {
                #name { #(#members: <#types as __atmesh::typed::ShardMapOut<#field_specs, __Mesh>>::arrays(from),)* }
            }
        }
    };
    Ok(StructOptions::new(input)?.scope(&implementations))
}
