//! The module tree of a crate, read from its files, and the attributes that select code for the device.

use super::refusal::{Refusal, refusal};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Item, Lit, Meta};

/// A file whose module docs have a line that starts with this is in the device subset.
pub const MARKER: &str = "Device subset";

/// One file of the crate.
pub struct Module {
    /// Names from the crate root; empty for the root itself.
    pub path: Vec<String>,
    /// Index of the parent module.
    pub parent: Option<usize>,
    /// File name for messages, relative to the workspace.
    pub file: String,
    /// The file has [`MARKER`].
    pub device: bool,
    /// Items that are not compiled for tests only.
    pub items: Vec<Item>,
}

/// Reads the root file and all modules that it declares.
pub fn load(root: &Path, shown_from: &Path) -> Result<Vec<Module>, Refusal> {
    let mut modules: Vec<Module> = Vec::new();
    read(root, shown_from, Vec::new(), None, &mut modules)?;
    Ok(modules)
}

fn read(
    file: &Path,
    shown_from: &Path,
    path: Vec<String>,
    parent: Option<usize>,
    modules: &mut Vec<Module>,
) -> Result<(), Refusal> {
    let shown: String = file.strip_prefix(shown_from).unwrap_or(file).display().to_string();
    let nowhere = |reason: String| Refusal { file: shown.clone(), line: 1, column: 1, reason };
    let text: String = fs::read_to_string(file).map_err(|e| nowhere(format!("cannot be read: {e}")))?;
    let parsed: syn::File = syn::parse_file(&text)
        .map_err(|e| refusal(e.span(), format!("does not parse: {e}")).in_file(&shown))?;
    let device: bool = parsed.attrs.iter().any(|a| doc_line(a).is_some_and(|l| l.trim().starts_with(MARKER)));
    let items: Vec<Item> = parsed.items.into_iter().filter(|item| !is_test_only(attributes(item))).collect();
    let me: usize = modules.len();
    let children: Vec<(String, proc_macro2::Span)> = items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(m) if m.content.is_none() => Some((m.ident.to_string(), m.span())),
            _ => None,
        })
        .collect();
    modules.push(Module { path: path.clone(), parent, file: shown.clone(), device, items });
    for (name, span) in children {
        let mut below: Vec<String> = path.clone();
        below.push(name.clone());
        match child_file(file, path.is_empty(), &name) {
            Some(child) => read(&child, shown_from, below, Some(me), modules)?,
            None => return Err(refusal(span, format!("no file for module `{name}`")).in_file(&shown)),
        }
    }
    Ok(())
}

/// Finds `x.rs` or `x/mod.rs` in the folder of the declaring module.
fn child_file(file: &Path, is_root: bool, name: &str) -> Option<PathBuf> {
    let stem = file.file_stem()?;
    let folder: PathBuf =
        if is_root || stem == "mod" { file.parent()?.into() } else { file.with_extension("") };
    [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")].into_iter().find(|p| p.is_file())
}

/// Attributes of an item; none for kinds of items that the translator ignores.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The text of a `//!` or `///` line.
pub fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    if !pair.path.is_ident("doc") {
        return None;
    }
    match &pair.value {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The first paragraph of the docs, one entry per line.
pub fn doc_lines(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(doc_line);
    lines.map(|l| l.trim().to_string()).take_while(|l| !l.is_empty()).collect()
}

/// The text in the parentheses of a `#[cfg(...)]`, without spaces.
fn cfg_text(attribute: &Attribute) -> Option<String> {
    let Meta::List(list) = &attribute.meta else { return None };
    list.path.is_ident("cfg").then(|| list.tokens.to_string().replace(' ', ""))
}

/// True for `#[cfg(test)]`.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().filter_map(cfg_text).any(|text| text == "test")
}

/// True for `#[cfg(not(device))]`: for the host, not translated.
pub fn is_host_only(attributes: &[Attribute]) -> bool {
    attributes.iter().filter_map(cfg_text).any(|text| text == "not(device)")
}

/// Finds a `#[cfg]` that is neither of the two above.
pub fn other_cfg(attributes: &[Attribute]) -> Option<&Attribute> {
    attributes.iter().find(|a| cfg_text(a).is_some_and(|text| text != "test" && text != "not(device)"))
}

/// True if the attributes include `#[name]` or `#[name(... word ...)]`.
pub fn has_attribute(attributes: &[Attribute], name: &str, word: Option<&str>) -> bool {
    attributes.iter().any(|a| match (&a.meta, word) {
        (Meta::Path(path), None) => path.is_ident(name),
        (Meta::List(list), Some(word)) => {
            let text: String = list.tokens.to_string();
            list.path.is_ident(name) && text.split([',', ' ']).any(|part| part.trim() == word)
        }
        _ => false,
    })
}
